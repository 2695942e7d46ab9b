//! Server-Sent Events: responses whose body is a stream of events, sent from any thread.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use apus::sse::{EncodedEvent, Event, Sse};
use apus::{HeaderName, HeaderValue, IntoResponse};
use futures_core::Stream;

use crate::error::{ApusStatus, CallError};
use crate::ffi::{attempt, object, protect, status};
use crate::handles::ApusResponse;
use crate::response::known;
use crate::text::{optional_name, text};

/// The body of a response with events (Server-Sent Events).
pub struct ApusSse {
    shared: Arc<Mutex<EventQueue>>,
}

/// The most bytes of events that wait for a client.
const MAX_WAITING: usize = 64 * 1024;

#[derive(Default)]
struct EventQueue {
    events: VecDeque<EncodedEvent>,
    waiting: usize,
    has_ended: bool,
    is_closed: bool,
    waker: Option<Waker>,
}

fn lock(shared: &Mutex<EventQueue>) -> MutexGuard<'_, EventQueue> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events, as the response reads them.
struct QueuedEvents(Arc<Mutex<EventQueue>>);

impl Stream for QueuedEvents {
    type Item = EncodedEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EncodedEvent>> {
        let mut queue = lock(&self.0);
        if let Some(event) = queue.events.pop_front() {
            queue.waiting = queue.waiting.saturating_sub(event.as_bytes().len());
            return Poll::Ready(Some(event));
        }
        if queue.has_ended {
            return Poll::Ready(None);
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for QueuedEvents {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.is_closed = true;
        queue.events = VecDeque::new();
    }
}

/// Makes the response an event stream (text/event-stream), and returns its sender, which has to be closed. A comment is
/// sent after 15 seconds without an event. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_sse(response: Option<&mut ApusResponse>) -> Option<Box<ApusSse>> {
    object("apus_response_sse", || {
        let response = known(response)?;
        let shared = Arc::default();
        let mut stream = Sse::new(QueuedEvents(Arc::clone(&shared))).into_response();
        for (name, value) in stream.headers().iter() {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value);
            if let (Ok(name), Ok(value)) = (name, value) {
                response.headers_mut().insert(&name, &value);
            }
        }
        *response.body_mut() = stream.take_body();
        response.set_coding_chosen(stream.is_coding_chosen());
        Ok(ApusSse { shared })
    })
}

/// Sends an event. `event` (its type) and `id` may be NULL. From any thread. Errors: APUS_FULL (64 KiB wait), APUS_CLOSED,
/// APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_sse_send(
    sse: Option<&ApusSse>,
    event: *const c_char,
    id: *const c_char,
    data: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_sse_send", || {
        let sse = sse.ok_or_else(|| CallError::null("sse"))?;
        let mut made = Event::new();
        if let Some(event) = optional_name(event, "event")? {
            made = made.event(event);
        }
        if let Some(id) = optional_name(id, "id")? {
            made = made.id(id);
        }
        let made = EncodedEvent::from(made.data(text(data, len, "data")?));
        let mut queue = lock(&sse.shared);
        if queue.is_closed {
            return Err(CallError::closed("the event stream"));
        }
        if queue.waiting >= MAX_WAITING {
            return Err(CallError::new(
                ApusStatus::Full,
                format!("less than {MAX_WAITING} bytes that wait"),
                format!("{} bytes", queue.waiting),
                "send fewer events to a client that reads slowly, or close its stream",
            ));
        }
        queue.waiting = queue.waiting.saturating_add(made.as_bytes().len());
        queue.events.push_back(made);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    })
}

/// Whether the client is gone. From any thread.
#[unsafe(no_mangle)]
pub extern "C" fn apus_sse_is_closed(sse: Option<&ApusSse>) -> bool {
    attempt("apus_sse_is_closed", || {
        let sse = sse.ok_or_else(|| CallError::null("sse"))?;
        Ok(lock(&sse.shared).is_closed)
    })
}

/// Ends the stream, and takes over `sse`. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_sse_close(sse: Option<Box<ApusSse>>) {
    protect("apus_sse_close", || {
        let Some(sse) = sse else { return };
        let mut queue = lock(&sse.shared);
        queue.has_ended = true;
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    });
}
