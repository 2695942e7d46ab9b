//! `BodyLimit`: the layer that limits request bodies (413, RFC 9110 section 15.5.14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use apus_http::{Answer, Body, BodyError, BodyStream, Frame, Request, StatusCode};

use crate::error::Error;
use crate::middleware::{Middleware, Next};
use crate::respond::IntoResponse;

/// The longest content that requests may bring, whoever reads it and however.
///
/// The innermost one counts: a route for uploads may allow more than the application around it. It also
/// takes the place of `App::body_limit` for extractors that keep content in memory. Content is
/// refused when it is read: at once where its length was told, else as soon as there is too much.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    bytes: u64,
}

impl BodyLimit {
    /// At most this number of bytes.
    pub fn new(bytes: u64) -> Self {
        Self { bytes }
    }

    /// The limit that layers set for a request.
    pub fn of(request: &Request) -> Option<u64> {
        let limit = request.extensions().get::<Arc<BodyLimitState>>()?;
        Some(limit.in_memory.load(Ordering::Relaxed))
    }

    /// Lets a request bring so much, but extractors keep no more of it than before.
    pub fn replace_bytes(request: &Request, bytes: u64) {
        if let Some(limit) = request.extensions().get::<Arc<BodyLimitState>>() {
            limit.bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

/// What the layers around a request and its content share. One thread has it at a time.
#[derive(Debug)]
struct BodyLimitState {
    bytes: AtomicU64,
    /// What extractors may keep.
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
        *request.body_mut() = Body::stream(LimitedBody {
            inner: request.take_body(),
            read: 0,
            limit: limit.clone(),
        });
        request.extensions_mut().insert(limit.clone());
        let rendering = next.rendering(&request);
        next.call(request).map(move |response| {
            // Whatever a handler made of the error that it got.
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

/// Content that ends with an error when there is too much of it.
struct LimitedBody {
    inner: Body,
    read: u64,
    limit: Arc<BodyLimitState>,
}

impl LimitedBody {
    /// Whether so much more is too much.
    fn exceeds(&self, more: u64) -> bool {
        let exceeds = self.read.saturating_add(more) > self.limit.bytes.load(Ordering::Relaxed);
        if exceeds {
            self.limit.is_exceeded.store(true, Ordering::Relaxed);
        }
        exceeds
    }
}

impl BodyStream for LimitedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        // Content whose length is known is not asked for in vain.
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
