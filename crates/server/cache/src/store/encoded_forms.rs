//! Compressed forms of an object's body, made once for all workers.
//!
//! They are in memory, count as memory of the object, and are dropped with it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Store;
use super::object::Object;

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

    /// The bytes of memory of all forms.
    pub(crate) fn bytes(&self) -> u64 {
        let made = self.forms.iter().filter_map(OnceLock::get);
        made.map(|form| form.len() as u64).sum()
    }
}

/// The permit to make a form. If it is dropped, a later request may make the form.
#[derive(Debug)]
pub struct EncodeTicket {
    store: Store,
    object: Arc<Object>,
    index: usize,
    ended: bool,
}

impl Object {
    /// The form with this index, which is less than [`ENCODED_FORMS`], if it is made.
    pub fn encoded_form(&self, index: usize) -> Option<&Bytes> {
        self.forms()?.forms.get(index)?.get()
    }

    /// Claims the making of a form. `None` if it is made, being made, or not worth making.
    pub fn claim_encoded_form(
        self: &Arc<Self>,
        store: &Store,
        index: usize,
    ) -> Option<EncodeTicket> {
        let bit = EncodedForms::bit(index);
        if index >= ENCODED_FORMS
            || self.forms_or_new().claimed.fetch_or(bit, Ordering::AcqRel) & bit != 0
        {
            return None;
        }
        Some(EncodeTicket {
            store: store.clone(),
            object: self.clone(),
            index,
            ended: false,
        })
    }
}

impl EncodeTicket {
    /// The object.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Stores the form, unless it is larger than an object in memory may be.
    pub fn keep(mut self, form: Bytes) {
        self.ended = true;
        let shared = self.store.shared();
        if form.len() as u64 > shared.settings.memory_object_bytes {
            return;
        }
        if let Some(slot) = self.object.forms_or_new().forms.get(self.index) {
            let _ = slot.set(form);
        }
        shared.update_size(&self.object);
    }

    /// Reports that the form is not worth making.
    pub fn refuse(mut self) {
        self.ended = true;
    }
}

impl Drop for EncodeTicket {
    fn drop(&mut self) {
        if !self.ended {
            let claimed = &self.object.forms_or_new().claimed;
            claimed.fetch_and(!EncodedForms::bit(self.index), Ordering::AcqRel);
        }
    }
}
