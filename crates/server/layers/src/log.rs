//! `Logged`: the layer that logs a line for each request.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use apus_http::{
    Completion, Method, Request, RequestId, ResponseFuture, ResponseOutcome, StatusCode,
};

use apus_handler::{Middleware, Next};

/// The target of the events, for filters.
const TARGET: &str = "apus::request";

/// The outcome of a request whose handler panicked.
const PANICKED: &str = "panicked";

/// A layer that logs a line for each request at its end: method, path, status, bytes of the body, duration,
/// the client's address, and the [id](Request::id) of the request.
///
/// Lines are events of `tracing` at the level `INFO` with the target `apus::request`. They do not contain the
/// query, which can contain secrets. A request that ends without a response gets a line too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logged(());

impl Logged {
    /// Logs all requests.
    pub fn new() -> Self {
        Self(())
    }
}

impl Middleware<()> for Logged {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            return next.call(request);
        }
        let mut line = RequestLogLine {
            method: request.method().clone(),
            path: request.original_target().path().to_owned(),
            client: request.client().ip,
            id: request.id(),
            started: Instant::now(),
            status: None,
            is_of_panic: false,
            end: None,
        };
        next.call(request).map(move |mut response| {
            line.status = Some(response.status());
            line.is_of_panic = response.is_of_panic();
            response.on_complete(move |completion| line.finish(completion));
            response
        })
    }
}

/// The line of a request, which is logged when this is dropped.
struct RequestLogLine {
    method: Method,
    path: String,
    client: Option<IpAddr>,
    id: RequestId,
    started: Instant,
    status: Option<StatusCode>,
    /// Whether a layer further in made the response of a panic.
    is_of_panic: bool,
    end: Option<RequestLogEnd>,
}

/// The end of the response.
struct RequestLogEnd {
    status: StatusCode,
    bytes: u64,
    duration: Duration,
    outcome: &'static str,
}

impl RequestLogEnd {
    fn of(completion: &Completion) -> Self {
        Self {
            status: completion.status,
            bytes: completion.body_bytes,
            duration: completion.duration,
            outcome: match completion.outcome {
                ResponseOutcome::Complete => "complete",
                ResponseOutcome::ClientGone => "client gone",
                ResponseOutcome::SourceFailed => "source failed",
            },
        }
    }
}

impl RequestLogLine {
    fn finish(mut self, completion: &Completion) {
        let mut end = RequestLogEnd::of(completion);
        if self.is_of_panic {
            end.outcome = PANICKED;
        }
        self.end = Some(end);
    }
}

impl Drop for RequestLogLine {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| RequestLogEnd {
            status: self.status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            bytes: 0,
            duration: self.started.elapsed(),
            outcome: if self.is_of_panic || std::thread::panicking() {
                PANICKED
            } else {
                "not sent"
            },
        });
        let status = match (end.outcome, self.status) {
            // No status was sent.
            ("not sent", None) => 0,
            _ => end.status.as_u16(),
        };
        tracing::info!(
            target: TARGET,
            method = %self.method,
            path = self.path,
            status,
            bytes = end.bytes,
            duration_us = u64::try_from(end.duration.as_micros()).unwrap_or(u64::MAX),
            client = self.client.map(tracing::field::display),
            request_id = %self.id,
            outcome = end.outcome,
        );
    }
}
