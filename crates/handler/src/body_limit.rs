//! `BodyLimit`: the layer that limits request bodies (413, RFC 9110 section 15.5.14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use apus_http::{Answer, Body, BodyError, BodyStream, Frame, Request, StatusCode};

use crate::error::Error;
use crate::middleware::{Middleware, Next};
use crate::respond::IntoResponse;

/// A layer that limits the length of request bodies.
///
/// The innermost layer counts: a route for uploads can allow more than the application around it. It also
/// replaces `App::body_limit` for extractors that keep the body in memory. A body is rejected when it is
/// read: at once if its length is known, else as soon as it is too long.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    bytes: u64,
}

impl BodyLimit {
    /// A limit in bytes.
    pub fn new(bytes: u64) -> Self {
        Self { bytes }
    }

    /// The limit that layers set for a request.
    pub fn of(request: &Request) -> Option<u64> {
        let limit = request.extensions().get::<Arc<BodyLimitState>>()?;
        Some(limit.in_memory.load(Ordering::Relaxed))
    }

    /// Changes the limit of a request, but not the limit of extractors that keep the body in memory.
    pub fn replace_bytes(request: &Request, bytes: u64) {
        if let Some(limit) = request.extensions().get::<Arc<BodyLimitState>>() {
            limit.bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

/// The state that the layers of a request share with its body. It is used by one thread at a time.
#[derive(Debug)]
struct BodyLimitState {
    bytes: AtomicU64,
    /// The limit of extractors that keep the body in memory.
    in_memory: AtomicU64,
    is_exceeded: AtomicBool,
}

impl Middleware<()> for BodyLimit {
    fn call(&self, mut request: Request, next: Next) -> Answer {
        if matches!(request.body_mut(), Body::Empty) {
            return next.call(request);
        }
        if let Some(limit) = request.extensions().get::<Arc<BodyLimitState>>() {
            limit.bytes.store(self.bytes, Ordering::Relaxed);
            limit.in_memory.store(self.bytes, Ordering::Relaxed);
            return next.call(request);
        }
        let limit = Arc::new(BodyLimitState {
            bytes: AtomicU64::new(self.bytes),
            in_memory: AtomicU64::new(self.bytes),
            is_exceeded: AtomicBool::new(false),
        });
        *request.body_mut() = Body::stream(BodyLimitStream {
            inner: request.take_body(),
            read: 0,
            limit: limit.clone(),
        });
        request.extensions_mut().insert(limit.clone());
        let rendering = next.rendering(&request);
        next.call(request).map(move |response| {
            // The handler may have turned the error into another one.
            if !limit.is_exceeded.load(Ordering::Relaxed) || !response.status().is_server_error() {
                return response;
            }
            let bytes = limit.bytes.load(Ordering::Relaxed);
            let detail = format_args!("the content must not be longer than {bytes} bytes");
            let error = Error::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
            rendering.apply(error.into_response())
        })
    }
}

/// A body that ends with an error when it is too long.
struct BodyLimitStream {
    inner: Body,
    read: u64,
    limit: Arc<BodyLimitState>,
}

impl BodyLimitStream {
    /// Whether this number of further bytes exceeds the limit.
    fn exceeds(&self, more: u64) -> bool {
        let exceeds = self.read.saturating_add(more) > self.limit.bytes.load(Ordering::Relaxed);
        if exceeds {
            self.limit.is_exceeded.store(true, Ordering::Relaxed);
        }
        exceeds
    }
}

impl BodyStream for BodyLimitStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        // A body that is known to be too long is not requested from the client.
        if self.exceeds(self.inner.len().unwrap_or(0)) {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        }
        let frame = ready!(self.inner.poll_frame(cx));
        let length = match &frame {
            Some(Ok(Frame::Data(bytes))) => bytes.len() as u64,
            Some(Ok(Frame::File(range))) => range.len,
            _ => 0,
        };
        if self.exceeds(length) {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        }
        self.read = self.read.saturating_add(length);
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.len()
    }
}
