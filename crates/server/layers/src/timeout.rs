//! A limit of the time until a response begins: 503 or 504 (RFC 9110 sections 15.6.4 and 15.6.5).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{Request, Response, ResponseFuture, StatusCode, header};
use tokio::time::Instant;

use crate::client_wait::ClientWait;
use apus_handler::Error;
use apus_handler::{Middleware, Next};

/// A layer that drops a handler that takes too long, and responds with 503.
///
/// The time ends when the response begins. The time in which the handler waits for the client to send more of the
/// body of its request does not count: the limits of the server judge slow clients
/// ([`Limits`](https://docs.rs/apus/latest/apus/struct.Limits.html): `body_timeout` and `body_rate`), and respond
/// with 408. The response has `Retry-After` if [`Timeout::retry_after`] sets it.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    after: Duration,
    status: StatusCode,
    retry_after: Option<Duration>,
}

/// The least time between two looks at the time that a handler took while it waits for its client.
const RECHECK: Duration = Duration::from_millis(20);

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

    /// The response, or `None` if it takes too long without the time that its handler waits for the client.
    async fn wait(
        self,
        mut response: Pin<Box<dyn Future<Output = Response>>>,
        client: Option<Arc<ClientWait>>,
    ) -> Option<Response> {
        let began = Instant::now();
        let mut look = self.after;
        loop {
            // A waker for the end of a wait is not needed: the next look is never later than the limit.
            match tokio::time::timeout(look, &mut response).await {
                Ok(response) => return Some(response),
                Err(_) => {
                    let waited = client.as_ref().map_or(Duration::ZERO, |wait| wait.total());
                    let taken = began.elapsed().saturating_sub(waited);
                    let left = self.after.saturating_sub(taken);
                    if left.is_zero() {
                        return None;
                    }
                    look = if client.as_ref().is_some_and(|wait| wait.is_waiting()) {
                        left.max(RECHECK)
                    } else {
                        left
                    };
                }
            }
        }
    }
}

impl Middleware<()> for Timeout {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        let client = ClientWait::measure(request.body_mut());
        match next.call(request) {
            ResponseFuture::Now(response) => ResponseFuture::Now(response),
            ResponseFuture::Later(future) => {
                let timeout = *self;
                ResponseFuture::later(async move {
                    match timeout.wait(future, client).await {
                        Some(response) => response,
                        None => rendering.respond(timeout.error()),
                    }
                })
            }
        }
    }
}
