//! A limit of the time until a response begins: 503 or 504 (RFC 9110 sections 15.6.4 and 15.6.5).

use std::time::Duration;

use apus_http::{Request, ResponseFuture, StatusCode, header};

use apus_handler::Error;
use apus_handler::{Middleware, Next};

/// A layer that drops a handler that takes too long, and responds with 503.
///
/// The time ends when the response begins. It includes the time that a handler waits for the body of the
/// request, and not the time that the body of the response takes. The response has `Retry-After` if
/// [`Timeout::retry_after`] sets it.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    after: Duration,
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl Timeout {
    /// A limit of this length.
    pub fn new(after: Duration) -> Self {
        Self {
            after,
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: None,
        }
    }

    /// Responds with 504, for a handler that waits for another server.
    #[must_use]
    pub fn gateway_timeout(mut self) -> Self {
        self.status = StatusCode::GATEWAY_TIMEOUT;
        self
    }

    /// The time after which the client may try again, in whole seconds (RFC 9110 section 10.2.3).
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    fn error(self) -> Error {
        let error = Error::new(self.status, "the response took too long");
        match self.retry_after {
            Some(after) => error.header(header::RETRY_AFTER, after.as_secs().into()),
            None => error,
        }
    }
}

impl Middleware<()> for Timeout {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        match next.call(request) {
            ResponseFuture::Now(response) => ResponseFuture::Now(response),
            ResponseFuture::Later(future) => {
                let timeout = *self;
                ResponseFuture::later(async move {
                    match tokio::time::timeout(timeout.after, future).await {
                        Ok(response) => response,
                        Err(_) => rendering.respond(timeout.error()),
                    }
                })
            }
        }
    }
}
