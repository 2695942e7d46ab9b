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

/// A response of events, sent as they come.
///
/// It is not stored by caches and not compressed, and proxies are asked not to hold it back.
pub struct Sse {
    events: Pin<Box<dyn Stream<Item = EncodedEvent>>>,
    heartbeat: Option<Duration>,
}

/// A client may not notice for long that its connection is lost, nor do we, while nothing is sent; and what
/// stands between closes connections that are quiet, some after half a minute.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment, and no event.
const BEAT: Bytes = Bytes::from_static(b":\n\n");

/// Events that are there together are sent together, up to about so many bytes.
const TOGETHER: usize = 16 * 1024;

impl Sse {
    /// The events of a stream, as of a [`Subscription`](super::Subscription). The response ends with it.
    pub fn new<S>(events: S) -> Self
    where
        S: Stream<Item: Into<EncodedEvent>> + 'static,
    {
        Self::of(Box::pin(EncodedEvents(Box::pin(events))))
    }

    /// The events that a future tells. It runs as the client reads; the response ends with it, and the other
    /// way about.
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
            heartbeat: Some(HEARTBEAT),
        }
    }

    /// After how long without an event a comment is sent; after 15 seconds, unless this is called. `None`
    /// sends none.
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
            stopping: Box::pin(apus_net::stopping()),
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
            // What nginx, and those who learned it from nginx, take for a word.
            .with_header(
                &HeaderName::from_static("x-accel-buffering"),
                &HeaderValue::from_static("no"),
            )
            .with_body(body);
        // Compression would hold back what waits for more.
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

/// A stream whose events are in the form in which they are sent.
struct EncodedEvents<S>(Pin<Box<S>>);

impl<S: Stream<Item: Into<EncodedEvent>>> Stream for EncodedEvents<S> {
    type Item = EncodedEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EncodedEvent>> {
        let polled = self.0.as_mut().poll_next(cx);
        polled.map(|event| event.map(Into::into))
    }
}

/// The content: whole events, and beats between them.
struct SseBody {
    events: Pin<Box<dyn Stream<Item = EncodedEvent>>>,
    has_ended: bool,
    heartbeat: Option<Duration>,
    /// When something was sent last; `None` before the first poll.
    sent_at: Option<Instant>,
    /// Moved only when it fires.
    timer: Option<Pin<Box<Sleep>>>,
    stopping: Pin<Box<dyn Future<Output = ()>>>,
}

impl BodyStream for SseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.has_ended || self.stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let content = match self.gather(cx) {
            Some(content) => content,
            None if self.has_ended => return Poll::Ready(None),
            None if self.is_quiet(cx) => BEAT,
            None => return Poll::Pending,
        };
        self.sent_at = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::Data(content))))
    }
}

impl SseBody {
    /// The events that are there.
    fn gather(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        let first = self.next(cx)?;
        let Some(second) = self.next(cx) else {
            return Some(first);
        };
        let mut together = BytesMut::with_capacity(first.len().saturating_add(second.len()));
        together.extend_from_slice(&first);
        together.extend_from_slice(&second);
        while together.len() < TOGETHER
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

    /// Whether nothing was sent for as long as may be.
    fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
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
