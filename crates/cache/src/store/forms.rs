//! Other forms of an object's content, as compressed ones: made once, and shared by all who serve it.
//!
//! They are in memory, are counted there as the object's own content is, and leave with it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Store;
use super::object::Object;

/// How many other forms of an object there can be.
pub const FORMS: usize = 3;

/// The other forms of one object's content.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    made: [OnceLock<Bytes>; FORMS],
    /// A bit for each that is made, or being made, or not worth it.
    taken: AtomicU8,
}

impl Forms {
    fn bit(number: usize) -> u8 {
        u32::try_from(number)
            .ok()
            .and_then(|number| 1_u8.checked_shl(number))
            .unwrap_or_default()
    }

    /// The bytes of memory of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        let made = self.made.iter().filter_map(OnceLock::get);
        made.map(|form| form.len() as u64).sum()
    }
}

/// The duty to make a form. One that is dropped leaves it to the next who comes.
#[derive(Debug)]
pub struct FormTicket {
    store: Store,
    object: Arc<Object>,
    number: usize,
    ended: bool,
}

impl Object {
    /// The form with this number, which is less than [`FORMS`], if it was made.
    pub fn form(&self, number: usize) -> Option<&Bytes> {
        self.forms()?.made.get(number)?.get()
    }

    /// Takes over the making of a form. `None` if it was made, if somebody makes it, or if it turned
    /// out not worth it.
    pub fn make_form(self: &Arc<Self>, store: &Store, number: usize) -> Option<FormTicket> {
        let bit = Forms::bit(number);
        if number >= FORMS || self.forms_or_new().taken.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return None;
        }
        Some(FormTicket {
            store: store.clone(),
            object: self.clone(),
            number,
            ended: false,
        })
    }
}

impl FormTicket {
    /// The object.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The form is made. It is not kept if it is larger than an object in memory may be.
    pub fn keep(mut self, form: Bytes) {
        self.ended = true;
        let shared = self.store.shared();
        if form.len() as u64 > shared.settings.memory_object_bytes {
            return;
        }
        if let Some(place) = self.object.forms_or_new().made.get(self.number) {
            let _ = place.set(form);
        }
        shared.resized(&self.object);
    }

    /// There is to be no such form.
    pub fn refuse(mut self) {
        self.ended = true;
    }
}

impl Drop for FormTicket {
    fn drop(&mut self) {
        if !self.ended {
            let taken = &self.object.forms_or_new().taken;
            taken.fetch_and(!Forms::bit(self.number), Ordering::AcqRel);
        }
    }
}
