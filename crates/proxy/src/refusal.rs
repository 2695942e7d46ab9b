//! Error responses of the proxy (RFC 9110 sections 15.6.3 to 15.6.5), and what it logs.

use std::sync::Arc;
use std::time::Instant;

use apus_http::{BodyError, HeaderValue, Request, Response, StatusCode, header};
use apus_net::client::{FailureCause, RequestFailure};
use apus_upstream::{Attempt, AttemptOutcome, Failed, FailedKind, NodeLabel};

use super::forward::Circle;
use super::log_rate::LogRate;
use super::websocket::WrongAnswer;

/// What is logged about a group, by one worker. Past some lines a second they are counted only.
pub(super) struct Log {
    pub(super) group: Arc<str>,
    rate: LogRate,
}

impl Log {
    pub(super) fn new(group: Arc<str>) -> Self {
        Self {
            group,
            rate: LogRate::default(),
        }
    }

    /// Whether a line may be written; and how many were withheld before it.
    pub(super) fn line(&self) -> Option<u64> {
        self.rate.allows(Instant::now())
    }
}

/// The answer to a request that came through here too often (RFC 5842 section 7.2).
pub(super) fn circle(request: &Request, Circle: Circle) -> Response {
    tracing::error!(
        host = request.host().unwrap_or(""),
        path = request.path(),
        "a request is proxied in a circle"
    );
    Response::new(StatusCode::LOOP_DETECTED)
}

/// The answer to a request whose content broke off before anybody was asked.
pub(super) fn content(error: &BodyError) -> Response {
    tracing::debug!(%error, "a client did not send its request whole");
    Response::new(of_content(error))
}

/// The answer to a WebSocket handshake that a node did not answer right.
pub(super) fn handshake(log: &Log, node: &NodeLabel, WrongAnswer: WrongAnswer) -> Response {
    if let Some(withheld) = log.line() {
        tracing::error!(
            group = &*log.group,
            node = &*node.name,
            address = &*node.address,
            withheld,
            "an origin answered a WebSocket handshake with the wrong Sec-WebSocket-Accept"
        );
    }
    Response::new(StatusCode::BAD_GATEWAY)
}

/// Logs that no node answered a request. Tells what its client is to be answered.
pub(super) fn tell_failed(log: &Log, failed: &Failed) -> StatusCode {
    let status = status(&failed.kind);
    let last = match &failed.kind {
        FailedKind::Node { node, .. } => Some(&**node),
        _ => None,
    };
    note(log, &failed.attempts, last);
    let group = &*log.group;
    match &failed.kind {
        FailedKind::Node { node, failure } if is_of_client(&failure.cause) => {
            tracing::debug!(group, node = &*node.name, %failure, "a client did not send its request whole");
        }
        kind => {
            if let Some(withheld) = log.line() {
                tell(group, kind, status, withheld);
            }
        }
    }
    status
}

/// The answer to a request that no node answered.
pub(super) fn failed(log: &Log, failed: &Failed) -> Response {
    let status = tell_failed(log, failed);
    let mut response = Response::new(status);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = failed.retry_after.map_or(1, |after| {
            let whole = u64::from(after.subsec_nanos() > 0);
            after.as_secs().saturating_add(whole).max(1)
        });
        response
            .headers_mut()
            .insert(&header::RETRY_AFTER, &HeaderValue::from(seconds));
    }
    response
}

fn tell(group: &str, kind: &FailedKind, status: StatusCode, withheld: u64) {
    match kind {
        FailedKind::Node { node, failure } => tracing::error!(
            group,
            node = &*node.name,
            address = &*node.address,
            phase = failure.phase.as_str(),
            cause = %failure.cause,
            status = status.as_u16(),
            withheld,
            "no answer from an origin"
        ),
        kind => tracing::error!(
            group,
            cause = cause(kind),
            status = status.as_u16(),
            withheld,
            "no origin could be asked"
        ),
    }
}

fn status(kind: &FailedKind) -> StatusCode {
    match kind {
        FailedKind::Node { failure, .. } => of_failure(failure),
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn of_failure(failure: &RequestFailure) -> StatusCode {
    match &failure.cause {
        FailureCause::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        FailureCause::Source(error) => of_content(error),
        FailureCause::NoDescriptors => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

fn of_content(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// Logs the attempts before the last one, which was at the node `last`, if there was one.
pub(super) fn note(log: &Log, attempts: &[Attempt], last: Option<&NodeLabel>) {
    for (number, attempt) in (1..).zip(attempts) {
        let Some(withheld) = log.line() else {
            return;
        };
        let (phase, cause) = match &attempt.outcome {
            AttemptOutcome::Failed(failure) => (failure.phase.as_str(), failure.cause.to_string()),
            AttemptOutcome::Status(status) => ("response", format!("status {}", status.as_u16())),
        };
        let then = attempts.get(number).map(|next| &*next.node).or(last);
        let what = match then {
            None => "found no origin to ask after one failed",
            Some(node) if node == &*attempt.node => "asked an origin once more after it failed",
            Some(_) => "asked another origin after one failed",
        };
        tracing::warn!(
            group = &*log.group,
            node = &*attempt.node.name,
            address = &*attempt.node.address,
            phase,
            cause,
            seconds = attempt.took.as_secs_f32(),
            withheld,
            "{what}"
        );
    }
}

fn cause(kind: &FailedKind) -> &'static str {
    match kind {
        FailedKind::NoNode => "no node of the group is up",
        FailedKind::QueueFull => "all nodes are busy and too many requests wait",
        FailedKind::QueueTimedOut => "all nodes were busy for too long",
        _ => "no node answered",
    }
}

/// Whether it was the client that did not send its content.
fn is_of_client(cause: &FailureCause) -> bool {
    matches!(cause, FailureCause::Source(_))
}
