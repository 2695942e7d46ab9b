//! The form of field lines that a codec keeps beside them, for lines that are sent again and again.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Headers;
use crate::response_head::FieldSummary;

/// The form that a codec encodes field lines to, such as those of a cached file. It is empty until the
/// lines are encoded for the second time, because most are encoded only once. Several threads may read it,
/// as they may read the lines.
#[derive(Default)]
pub(crate) struct EncodedForm {
    was_encoded: AtomicBool,
    encoded: OnceLock<Box<EncodedLines>>,
}

struct EncodedLines {
    summary: FieldSummary,
    form: Box<dyn Any + Send + Sync>,
}

impl EncodedForm {
    /// The encoded form of `headers`, which this belongs to, unless they are encoded for the first time.
    #[inline]
    pub(crate) fn get_or_encode<T: Any + Send + Sync>(
        &self,
        headers: &Headers,
        encode: impl FnOnce(&Headers) -> T,
    ) -> Option<&T> {
        if !self.was_encoded.load(Ordering::Relaxed) {
            self.was_encoded.store(true, Ordering::Relaxed);
            return None;
        }
        let encoded = self.encoded.get_or_init(|| {
            Box::new(EncodedLines {
                summary: FieldSummary::of(headers),
                form: Box::new(encode(headers)),
            })
        });
        encoded.form.downcast_ref()
    }

    /// The summary of the lines, if they are encoded.
    pub(crate) fn summary(&self) -> Option<FieldSummary> {
        self.encoded.get().map(|encoded| encoded.summary)
    }

    /// Removes it, because the lines change.
    #[inline]
    pub(crate) fn clear(&mut self) {
        *self.was_encoded.get_mut() = false;
        if self.encoded.get().is_some() {
            self.encoded = OnceLock::new();
        }
    }
}

/// A copy starts empty, because most copies are changed next.
impl Clone for EncodedForm {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for EncodedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedForm").finish_non_exhaustive()
    }
}
