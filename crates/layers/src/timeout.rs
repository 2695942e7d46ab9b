//! A limit of the time that an answer may take: 503 or 504 (RFC 9110 sections 15.6.4 and 15.6.5).

use std::time::Duration;

use apus_http::{Answer, Request, StatusCode, header};

use apus_handler::Error;
use apus_handler::IntoResponse;
use apus_handler::{Middleware, Next};

/// Gives up on an answer that takes too long, and drops what was working on it.
///
/// Time counts until the response begins, content of the request that a handler waits for included.
/// Content of the response may take as long as it likes. The answer is 503, with `Retry-After` if
/// that was given.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    after: Duration,
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl Timeout {
    /// Gives up after so long.
    pub fn new(after: Duration) -> Self {
        Self {
            after,
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: None,
        }
    }

    /// Answers 504: what takes so long is another server that is asked in turn.
    #[must_use]
    pub fn gateway_timeout(mut self) -> Self {
        self.status = StatusCode::GATEWAY_TIMEOUT;
        self
    }

    /// Tells the client when to try again, in whole seconds (RFC 9110 section 10.2.3).
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    fn error(self) -> Error {
        let error = Error::new(self.status, "the answer took too long");
        match self.retry_after {
            Some(after) => error.header(header::RETRY_AFTER, after.as_secs().into()),
            None => error,
        }
    }
}

impl Middleware<()> for Timeout {
    fn call(&self, request: Request, next: Next) -> Answer {
        let rendering = next.rendering(&request);
        match next.call(request) {
            Answer::Now(response) => Answer::Now(response),
            Answer::Later(future) => {
                let timeout = *self;
                Answer::later(async move {
                    match tokio::time::timeout(timeout.after, future).await {
                        Ok(response) => response,
                        Err(_) => rendering.apply(timeout.error().into_response()),
                    }
                })
            }
        }
    }
}
