//! Requests that wait for the response to another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// A forwarded request without a response yet.
#[derive(Debug, Default)]
pub(crate) struct PendingRequest {
    /// The secondary key that the waiting requests have in common: the part that is known.
    pub(crate) secondary: Box<[u8]>,
    state: AtomicU8,
    notify: Notify,
}

const OPEN: u8 = 0;
const AGAIN: u8 = 1;
const PASS: u8 = 2;

impl PendingRequest {
    pub(crate) fn new(secondary: &[u8]) -> Self {
        Self {
            secondary: secondary.into(),
            ..Self::default()
        }
    }

    /// Lets the waiting requests look up the store again.
    pub(crate) fn look_again(&self) {
        self.close(WaitOutcome::Again);
    }

    /// Ends the wait of the other requests.
    pub(crate) fn close(&self, outcome: WaitOutcome) {
        let state = match outcome {
            WaitOutcome::Again => AGAIN,
            WaitOutcome::Pass => PASS,
        };
        self.state.store(state, Ordering::Release);
        self.notify.notify_waiters();
    }
}

/// The result of waiting for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The request has ended or begun to fill an object: look up the store again.
    Again,
    /// The response cannot be shared: every request has to be forwarded separately.
    Pass,
}

/// Waits for the request that fetches.
#[derive(Debug)]
pub struct FillWait(pub(crate) Arc<PendingRequest>);

impl FillWait {
    /// The result. The caller limits the time of the wait: the future may be dropped at any time.
    pub async fn outcome(&self) -> WaitOutcome {
        let mut notified = std::pin::pin!(self.0.notify.notified());
        loop {
            // Registered before the state is read, so that no notification is missed between the
            // two.
            notified.as_mut().enable();
            match self.0.state.load(Ordering::Acquire) {
                OPEN => {}
                PASS => return WaitOutcome::Pass,
                _ => return WaitOutcome::Again,
            }
            notified.as_mut().await;
            notified.set(self.0.notify.notified());
        }
    }
}
