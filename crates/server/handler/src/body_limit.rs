//! `BodyLimit`: the layer that limits request bodies (413, RFC 9110 section 15.5.14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus_http::{Body, Request, ResponseFuture, SharedBodyLimit, StatusCode};

use crate::error::Error;
use crate::middleware::{Middleware, Next};

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
        let limits = request.extensions().get::<RequestBodyLimits>()?;
        Some(limits.in_memory.load(Ordering::Relaxed))
    }

    /// The length at which the body of a request ends with an error, if a layer set one.
    pub fn of_body(request: &Request) -> Option<u64> {
        let limits = request.extensions().get::<RequestBodyLimits>()?;
        Some(limits.body.max())
    }

    /// The detail of a 413, for all that limit a body.
    pub fn message(bytes: u64) -> String {
        format!("the body must not be longer than {bytes} bytes")
    }

    /// Changes the limit of a request, but not the limit of extractors that keep the body in memory.
    pub fn replace_bytes(request: &Request, bytes: u64) {
        if let Some(limits) = request.extensions().get::<RequestBodyLimits>() {
            limits.body.set_max(bytes);
        }
    }
}

/// The limits of a request, shared by its layers and its body.
#[derive(Clone, Debug)]
struct RequestBodyLimits {
    body: Arc<SharedBodyLimit>,
    /// The limit of extractors that keep the body in memory.
    in_memory: Arc<AtomicU64>,
}

impl Middleware<()> for BodyLimit {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        if matches!(request.body_mut(), Body::Empty) {
            return next.call(request);
        }
        if let Some(limits) = request.extensions().get::<RequestBodyLimits>() {
            limits.body.set_max(self.bytes);
            limits.in_memory.store(self.bytes, Ordering::Relaxed);
            return next.call(request);
        }
        let limit = Arc::new(SharedBodyLimit::new(self.bytes));
        *request.body_mut() = request.take_body().limit_shared(limit.clone());
        request.extensions_mut().insert(RequestBodyLimits {
            body: limit.clone(),
            in_memory: Arc::new(AtomicU64::new(self.bytes)),
        });
        let rendering = next.rendering(&request);
        next.call(request).map(move |response| {
            // The handler may have turned the error into another one.
            if !limit.is_exceeded() || !response.status().is_server_error() {
                return response;
            }
            let detail = Self::message(limit.max());
            let error = Error::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
            rendering.respond(error)
        })
    }
}
