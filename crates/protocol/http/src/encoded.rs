//! The forms of field lines that codecs keep beside them, for lines that are sent again and again.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::field_summary::FieldSummary;

/// The format of encoded field lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCompression {
    /// HPACK (RFC 7541), for HTTP/2.
    Hpack,
    /// QPACK (RFC 9204), for HTTP/3.
    Qpack,
}

/// The encoded forms of field lines, such as the header of a cached file, and the facts about them. It is
/// empty until the lines are sent for the second time, because most are sent only once. Several threads may
/// read it, as they may read the lines.
#[derive(Default)]
pub(crate) struct EncodedForm {
    was_encoded: AtomicBool,
    was_summarized: AtomicBool,
    /// The summary of the lines that these ones are a copy of.
    copied: Option<FieldSummary>,
    kept: OnceLock<Box<KeptForm>>,
}

struct KeptForm {
    summary: FieldSummary,
    hpack: OnceLock<Box<dyn Any + Send + Sync>>,
    qpack: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl EncodedForm {
    /// The encoded form of the lines, unless they are encoded for the first time.
    #[inline]
    pub(crate) fn get_or_encode<T: Any + Send + Sync>(
        &self,
        format: FieldCompression,
        summarize: impl FnOnce() -> FieldSummary,
        encode: impl FnOnce() -> T,
    ) -> Option<&T> {
        if !self.was_encoded.load(Ordering::Relaxed) {
            self.was_encoded.store(true, Ordering::Relaxed);
            return None;
        }
        let kept = self.kept(summarize);
        let form = match format {
            FieldCompression::Hpack => &kept.hpack,
            FieldCompression::Qpack => &kept.qpack,
        };
        form.get_or_init(|| Box::new(encode())).downcast_ref()
    }

    /// The summary of the lines, which `summarize` makes.
    #[inline]
    pub(crate) fn summary(&self, summarize: impl FnOnce() -> FieldSummary) -> FieldSummary {
        if !self.was_summarized.load(Ordering::Relaxed) {
            self.was_summarized.store(true, Ordering::Relaxed);
            return self.copied.unwrap_or_else(summarize);
        }
        self.kept(summarize).summary
    }

    /// The form of a copy of the lines. It has no encoded forms, because most copies are changed next; few of the changes are of what the
    /// summary is about. The summary is made for the second copy.
    pub(crate) fn copy(&self, summarize: impl FnOnce() -> FieldSummary) -> Self {
        let copied = if self.was_summarized.load(Ordering::Relaxed) {
            Some(self.kept(summarize).summary)
        } else {
            self.was_summarized.store(true, Ordering::Relaxed);
            self.copied
        };
        Self {
            copied,
            ..Self::default()
        }
    }

    fn kept(&self, summarize: impl FnOnce() -> FieldSummary) -> &KeptForm {
        self.kept.get_or_init(|| {
            Box::new(KeptForm {
                summary: summarize(),
                hpack: OnceLock::new(),
                qpack: OnceLock::new(),
            })
        })
    }

    /// Removes it, because the lines change.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.copied = None;
        self.clear_forms();
    }

    /// Removes the encoded forms, because lines change that the summary is not about.
    #[inline]
    pub(crate) fn clear_forms(&mut self) {
        *self.was_encoded.get_mut() = false;
        *self.was_summarized.get_mut() = false;
        if self.kept.get().is_some() {
            self.kept = OnceLock::new();
        }
    }
}

impl fmt::Debug for EncodedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedForm").finish_non_exhaustive()
    }
}
