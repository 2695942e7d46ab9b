//! The lifetime of requests and responses in C: builds for debugging abort when one is used after its end.

#[cfg(debug_assertions)]
use std::collections::VecDeque;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(debug_assertions)]
use std::sync::{Arc, Mutex, PoisonError};

use crate::callback_name::CallbackName;

/// Whether an object that C has a pointer to is still valid. Without debug assertions it knows nothing and costs nothing.
pub(crate) struct HandleLifetime {
    #[cfg(debug_assertions)]
    has_ended: AtomicBool,
    #[cfg(debug_assertions)]
    owner: Arc<CallbackName>,
}

#[cfg(debug_assertions)]
impl HandleLifetime {
    pub(crate) fn of(owner: &Arc<CallbackName>) -> Self {
        Self {
            has_ended: AtomicBool::new(false),
            owner: owner.clone(),
        }
    }

    /// Marks the end.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Aborts the program if the end has come.
    pub(crate) fn check(&self, what: &str) {
        if self.has_ended.load(Ordering::Acquire) {
            let owner = &self.owner;
            #[allow(
                clippy::print_stderr,
                reason = "the process ends here, and a log may not be set"
            )]
            {
                eprintln!(
                    "apus: a {what} of the handler of {owner} was used after its end: it is valid until the handler returns, or \
                     until apus_complete()"
                );
            }
            std::process::abort();
        }
    }
}

#[cfg(not(debug_assertions))]
impl HandleLifetime {
    pub(crate) fn of(_: &std::sync::Arc<CallbackName>) -> Self {
        Self {}
    }

    pub(crate) fn end(&self) {}

    pub(crate) fn check(&self, _: &str) {}
}

/// Objects that have ended, the last ones of all threads: their memory is not used again soon, so that a use of them is noticed.
#[cfg(debug_assertions)]
static RETIRED: Mutex<VecDeque<Box<dyn std::any::Any + Send>>> = Mutex::new(VecDeque::new());

/// The number of objects that are kept.
#[cfg(debug_assertions)]
const MAX_RETIRED: usize = 256;

/// Keeps the memory of an object that has ended.
#[cfg(debug_assertions)]
pub(crate) fn retire<T: 'static>(ended: Box<T>) {
    struct Ended<T>(#[allow(dead_code, reason = "only its memory is kept")] Box<T>);
    // SAFETY: the object was emptied by its owner before: nothing of a thread is left in it.
    unsafe impl<T> Send for Ended<T> {}

    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    retired.push_back(Box::new(Ended(ended)));
    let oldest = if retired.len() > MAX_RETIRED {
        retired.pop_front()
    } else {
        None
    };
    drop(retired);
    drop(oldest);
}
