//! One request between whoever waits for its response and the task that drives the connection.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::client::{ClientResponse, RequestFailure};

/// Where the outcome of a request is put, and who is to be told what.
#[derive(Default)]
pub(super) struct ResponseSlot(RefCell<ResponseSlotState>);

#[derive(Default)]
struct ResponseSlotState {
    outcome: Option<Result<ClientResponse, RequestFailure>>,
    /// Whether nobody waits for it any more.
    abandoned: bool,
    sender: Option<Waker>,
    driver: Option<Waker>,
}

/// Waits for the outcome. If it is dropped before, the request is taken back.
pub(super) struct ResponseFuture(pub(super) Rc<ResponseSlot>);

impl ResponseSlot {
    /// Tells the outcome.
    pub(super) fn settle(&self, outcome: Result<ClientResponse, RequestFailure>) {
        let mut state = self.0.borrow_mut();
        state.driver = None;
        if state.abandoned {
            // The content of a response that nobody takes ends with it.
            drop(state);
            drop(outcome);
            return;
        }
        state.outcome = Some(outcome);
        if let Some(sender) = state.sender.take() {
            sender.wake();
        }
    }

    /// Whether nobody waits for the outcome.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.borrow().abandoned
    }

    /// Has `driver` woken when nobody waits any more.
    pub(super) fn watch(&self, driver: Waker) {
        self.0.borrow_mut().driver = Some(driver);
    }
}

impl Future for ResponseFuture {
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

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        state.abandoned = true;
        let (outcome, driver) = (state.outcome.take(), state.driver.take());
        drop(state);
        drop(outcome);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}
