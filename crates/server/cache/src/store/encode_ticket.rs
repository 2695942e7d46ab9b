//! The permit to make a compressed form of an object's body.

use std::sync::Arc;

use bytes::Bytes;

use super::Store;
use super::object::Object;

/// The permit to make a form. If it is dropped, a later request may make the form.
#[derive(Debug)]
pub struct EncodeTicket {
    store: Store,
    object: Arc<Object>,
    index: usize,
    ended: bool,
}

impl Object {
    /// The form with this index, which is less than [`ENCODED_FORMS`](super::ENCODED_FORMS), if it is made.
    pub fn encoded_form(&self, index: usize) -> Option<&Bytes> {
        self.forms()?.get(index)
    }

    /// Claims the making of a form. `None` if it is made, being made, or not worth making.
    pub fn claim_encoded_form(
        self: &Arc<Self>,
        store: &Store,
        index: usize,
    ) -> Option<EncodeTicket> {
        if !self.forms_or_new().claim(index) {
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
        self.object.forms_or_new().set(self.index, form);
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
            self.object.forms_or_new().release(self.index);
        }
    }
}
