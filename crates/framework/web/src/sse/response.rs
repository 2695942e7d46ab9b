//! `Sse`: a response whose body is a stream of events.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use apus_http::{
    Body, BodyError, BodyStream, Frame, HeaderName, HeaderValue, Response, StatusCode, header,
};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use tokio::time::{Instant, Sleep};

use super::run::EventFutureStream;
use super::{EncodedEvent, Events};
use apus_handler::respond::IntoResponse;

/// A response whose body is a stream of events.
///
/// It is not cached and not compressed, and has a field that disables buffering in proxies.
pub struct Sse {
    events: Pin<Box<dyn Stream<Item = EncodedEvent>>>,
    heartbeat: Option<Duration>,
}

/// The default interval. Without traffic neither side notices a lost connection, and some proxies close
/// idle connections after half a minute.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment, which clients ignore.
const HEARTBEAT_COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// The size up to which available events are sent in one frame, in bytes.
const MAX_BATCH: usize = 16 * 1024;

impl Sse {
    /// Sends the events of a stream, for example a [`Subscription`](super::Subscription). The response ends
    /// with the stream.
    pub fn new<S>(events: S) -> Self
    where
        S: Stream<Item: Into<EncodedEvent>> + 'static,
    {
        Self::of(Box::pin(EncodedEvents(Box::pin(events))))
    }

    /// Sends the events of a future, which runs while the client reads. The response ends with the future,
    /// and the future is dropped with the response.
    pub fn run<F, R>(future: F) -> Self
    where
        F: FnOnce(Events) -> R,
        R: Future<Output = ()> + 'static,
    {
        Self::of(Box::pin(EventFutureStream::new(future)))
    }

    fn of(events: Pin<Box<dyn Stream<Item = EncodedEvent>>>) -> Self {
        Self {
            events,
            heartbeat: Some(DEFAULT_HEARTBEAT),
        }
    }

    /// Sets the time without an event after which a comment is sent. Default: 15 seconds. `None` sends no
    /// comments.
    #[must_use]
    pub fn heartbeat(mut self, after: Option<Duration>) -> Self {
        self.heartbeat = after;
        self
    }
}

impl IntoResponse for Sse {
    fn into_response(self) -> Response {
        let body = Body::stream(SseBody {
            events: self.events,
            has_ended: false,
            heartbeat: self.heartbeat,
            sent_at: None,
            timer: None,
            stopping: Box::pin(apus_net::worker_stop()),
        });
        let mut response = Response::new(StatusCode::OK)
            .with_header(
                &header::CONTENT_TYPE,
                &HeaderValue::from_static("text/event-stream"),
            )
            .with_header(
                &header::CACHE_CONTROL,
                &HeaderValue::from_static("no-store"),
            )
            // Disables buffering in nginx and other proxies.
            .with_header(
                &HeaderName::from_static("x-accel-buffering"),
                &HeaderValue::from_static("no"),
            )
            .with_body(body);
        // Compression would delay events.
        response.set_coding_chosen(true);
        response
    }
}

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sse")
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}

/// A stream of encoded events.
struct EncodedEvents<S>(Pin<Box<S>>);

impl<S: Stream<Item: Into<EncodedEvent>>> Stream for EncodedEvents<S> {
    type Item = EncodedEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EncodedEvent>> {
        let polled = self.0.as_mut().poll_next(cx);
        polled.map(|event| event.map(Into::into))
    }
}

/// The body: complete events, and heartbeat comments between them.
struct SseBody {
    events: Pin<Box<dyn Stream<Item = EncodedEvent>>>,
    has_ended: bool,
    heartbeat: Option<Duration>,
    /// The time of the last frame; `None` before the first poll.
    sent_at: Option<Instant>,
    /// Reset only when it fires.
    timer: Option<Pin<Box<Sleep>>>,
    stopping: Pin<Box<dyn Future<Output = ()>>>,
}

impl BodyStream for SseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.has_ended || self.stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let data = match self.gather(cx) {
            Some(data) => data,
            None if self.has_ended => return Poll::Ready(None),
            None if self.needs_heartbeat(cx) => HEARTBEAT_COMMENT,
            None => return Poll::Pending,
        };
        self.sent_at = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::Data(data))))
    }
}

impl SseBody {
    /// All events that are available.
    fn gather(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        let first = self.next(cx)?;
        let Some(second) = self.next(cx) else {
            return Some(first);
        };
        let mut together = BytesMut::with_capacity(first.len().saturating_add(second.len()));
        together.extend_from_slice(&first);
        together.extend_from_slice(&second);
        while together.len() < MAX_BATCH
            && let Some(next) = self.next(cx)
        {
            together.extend_from_slice(&next);
        }
        Some(together.freeze())
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        match self.events.as_mut().poll_next(cx) {
            Poll::Ready(Some(event)) => Some(event.into_bytes()),
            Poll::Ready(None) => {
                self.has_ended = true;
                None
            }
            Poll::Pending => None,
        }
    }

    /// Whether nothing was sent for the heartbeat interval.
    fn needs_heartbeat(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(heartbeat) = self.heartbeat else {
            return false;
        };
        let sent_at = *self.sent_at.get_or_insert_with(Instant::now);
        let deadline = sent_at + heartbeat;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        false
    }
}
