//! Events that a future tells: it runs as the client reads, and no longer than the client is there.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::Prepared;

/// Where a future that was given to [`Sse::run`](super::Sse::run) tells its events.
///
/// Once the client is gone, the future is dropped where it waits.
#[derive(Debug)]
pub struct Events(Rc<RefCell<Slot>>);

/// The event that is next, and who waits to tell another.
#[derive(Debug, Default)]
struct Slot {
    event: Option<Prepared>,
    sender: Option<Waker>,
}

impl Events {
    /// Sends an event; waits while the client reads slowly.
    pub async fn send(&mut self, event: impl Into<Prepared>) {
        let mut event = Some(event.into());
        poll_fn(|cx| {
            let mut slot = self.0.borrow_mut();
            if slot.event.is_none() {
                slot.event = event.take();
                return Poll::Ready(());
            }
            slot.sender = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The events of a future, as a stream.
pub(super) struct Told<F> {
    future: Option<Pin<Box<F>>>,
    slot: Rc<RefCell<Slot>>,
}

impl<F: Future<Output = ()>> Told<F> {
    pub(super) fn new(future: impl FnOnce(Events) -> F) -> Self {
        let slot = Rc::<RefCell<Slot>>::default();
        Self {
            future: Some(Box::pin(future(Events(Rc::clone(&slot))))),
            slot,
        }
    }

    fn take(&self, cx: &Context<'_>) -> Option<Prepared> {
        let mut slot = self.slot.borrow_mut();
        let event = slot.event.take()?;
        if let Some(sender) = slot.sender.take()
            && !sender.will_wake(cx.waker())
        {
            sender.wake();
        }
        Some(event)
    }
}

impl<F: Future<Output = ()>> Stream for Told<F> {
    type Item = Prepared;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Prepared>> {
        if let Some(future) = &mut self.future
            && future.as_mut().poll(cx).is_ready()
        {
            self.future = None;
        }
        match (self.take(cx), &self.future) {
            (Some(event), _) => Poll::Ready(Some(event)),
            (None, None) => Poll::Ready(None),
            (None, Some(_)) => Poll::Pending,
        }
    }
}
