//! Statements as they are sent, written once for each worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

thread_local! {
    static WRITTEN: RefCell<HashMap<&'static str, Arc<str>>> = RefCell::default();
}

/// The statement that was made of this one.
pub(super) fn written(text: &'static str, write: impl FnOnce() -> String) -> Arc<str> {
    WRITTEN.with_borrow_mut(|written| {
        written
            .entry(text)
            .or_insert_with(|| write().into())
            .clone()
    })
}
