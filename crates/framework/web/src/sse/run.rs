//! `Events`: the events that a future sends while the client reads them.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::EncodedEvent;

/// The sender of events of a future in [`Sse::run`](super::Sse::run).
///
/// The future is dropped when the client disconnects.
#[derive(Debug)]
pub struct Events(Rc<RefCell<EventSlot>>);

/// The next event, and the waker of a sender that waits to send another.
#[derive(Debug, Default)]
struct EventSlot {
    event: Option<EncodedEvent>,
    sender: Option<Waker>,
}

impl Events {
    /// Sends an event; waits while the client reads slowly.
    pub async fn send(&mut self, event: impl Into<EncodedEvent>) {
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
pub(super) struct EventFutureStream<F> {
    future: Option<Pin<Box<F>>>,
    slot: Rc<RefCell<EventSlot>>,
}

impl<F: Future<Output = ()>> EventFutureStream<F> {
    pub(super) fn new(future: impl FnOnce(Events) -> F) -> Self {
        let slot = Rc::<RefCell<EventSlot>>::default();
        Self {
            future: Some(Box::pin(future(Events(Rc::clone(&slot))))),
            slot,
        }
    }

    fn take(&self, cx: &Context<'_>) -> Option<EncodedEvent> {
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

impl<F: Future<Output = ()>> Stream for EventFutureStream<F> {
    type Item = EncodedEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EncodedEvent>> {
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
