//! Wakers to wake after a lock is released.

use std::task::Waker;

/// Wakers to wake after the lock is released.
#[must_use]
#[derive(Default)]
pub(crate) struct WakerList(pub(super) Vec<Waker>);

impl From<Vec<Waker>> for WakerList {
    fn from(wakers: Vec<Waker>) -> Self {
        Self(wakers)
    }
}

impl WakerList {
    pub(crate) fn wake_all(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}
