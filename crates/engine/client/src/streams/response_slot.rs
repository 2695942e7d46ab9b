//! The slot for the result of one request, between its sender and the task that drives the connection.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::{ClientResponse, RequestFailure};

/// The result of a request, and the tasks to wake.
#[derive(Default)]
pub(super) struct ResponseSlot(RefCell<ResponseSlotState>);

#[derive(Default)]
struct ResponseSlotState {
    outcome: Option<Result<ClientResponse, RequestFailure>>,
    /// Whether the sender stopped waiting.
    abandoned: bool,
    sender: Option<Waker>,
    driver: Option<Waker>,
}

/// Waits for the result. If it is dropped early, the request is cancelled.
pub(crate) struct StreamResponse(pub(super) Rc<ResponseSlot>);

impl ResponseSlot {
    /// Stores the result.
    pub(super) fn settle(&self, outcome: Result<ClientResponse, RequestFailure>) {
        let mut state = self.0.borrow_mut();
        state.driver = None;
        if state.abandoned {
            // This drops the body of a response that is not wanted.
            drop(state);
            drop(outcome);
            return;
        }
        state.outcome = Some(outcome);
        if let Some(sender) = state.sender.take() {
            sender.wake();
        }
    }

    /// Whether the sender stopped waiting for the result.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.borrow().abandoned
    }

    /// Registers `driver`, to be woken when the sender stops waiting.
    pub(super) fn watch(&self, driver: Waker) {
        self.0.borrow_mut().driver = Some(driver);
    }
}

impl Future for StreamResponse {
    type Output = Result<ClientResponse, RequestFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.borrow_mut();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        match &state.sender {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => state.sender = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for StreamResponse {
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        state.abandoned = true;
        let (outcome, driver) = (state.outcome.take(), state.driver.take());
        // Before other code runs: what drops a body may come back to this slot.
        drop(state);
        drop(outcome);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}
