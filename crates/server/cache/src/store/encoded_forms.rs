//! Compressed forms of an object's body, made once for all workers.
//!
//! They are in memory, count as memory of the object, and are dropped with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;

/// The most encoded forms of an object.
pub const ENCODED_FORMS: usize = 3;

/// The encoded forms of one object.
#[derive(Debug, Default)]
pub(crate) struct EncodedForms {
    forms: [OnceLock<Bytes>; ENCODED_FORMS],
    /// A bit for each form that is made, being made, or not worth making.
    claimed: AtomicU8,
}

impl EncodedForms {
    fn bit(index: usize) -> u8 {
        u32::try_from(index)
            .ok()
            .and_then(|index| 1_u8.checked_shl(index))
            .unwrap_or_default()
    }

    /// The form with this index, if it is made.
    pub(crate) fn get(&self, index: usize) -> Option<&Bytes> {
        self.forms.get(index)?.get()
    }

    /// Claims the making of a form. Returns `false` if it is claimed already.
    pub(crate) fn claim(&self, index: usize) -> bool {
        let bit = Self::bit(index);
        index < ENCODED_FORMS && self.claimed.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Gives up the claim of a form.
    pub(crate) fn release(&self, index: usize) {
        self.claimed.fetch_and(!Self::bit(index), Ordering::AcqRel);
    }

    /// Sets a form that was claimed.
    pub(crate) fn set(&self, index: usize, form: Bytes) {
        if let Some(slot) = self.forms.get(index) {
            let _ = slot.set(form);
        }
    }

    /// The bytes of memory of all forms.
    pub(crate) fn bytes(&self) -> u64 {
        let made = self.forms.iter().filter_map(OnceLock::get);
        made.map(|form| form.len() as u64).sum()
    }
}
