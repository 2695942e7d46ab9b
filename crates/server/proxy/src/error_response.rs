//! Error responses of the proxy (RFC 9110 sections 15.6.3 to 15.6.5), and its log messages.

use std::sync::Arc;
use std::time::Instant;

use apus_client::{FailureCause, RequestFailure};
use apus_http::{BodyError, HeaderValue, Request, Response, StatusCode, header};
use apus_upstream::{AttemptFailure, FailedAttempt, NodeLabel, UpstreamError, UpstreamErrorKind};

use super::log_rate_limiter::LogRateLimiter;
use super::request_headers::ProxyLoop;
use super::request_label::RequestLabel;
use super::websocket::InvalidAccept;

/// The log of a group on one worker, with a limit of lines per second.
pub(super) struct GroupLog {
    pub(super) group: Arc<str>,
    /// The name of the site, if it is known.
    pub(super) site: Arc<str>,
    limiter: LogRateLimiter,
}

impl GroupLog {
    pub(super) fn new(group: Arc<str>) -> Self {
        Self {
            group,
            site: "".into(),
            limiter: LogRateLimiter::default(),
        }
    }

    /// Sets the name of the site.
    pub(super) fn of_site(self, site: &str) -> Self {
        Self {
            site: site.into(),
            ..self
        }
    }

    /// Returns the number of lines that were withheld before this one; `None` if this one is, too.
    pub(super) fn line(&self) -> Option<u64> {
        self.limiter.allow(Instant::now())
    }
}

/// Returns the response to a request that went through this server too often (RFC 5842 section 7.2).
pub(super) fn loop_detected(log: &GroupLog, request: &Request, ProxyLoop: ProxyLoop) -> Response {
    if let Some(withheld) = log.line() {
        let label = RequestLabel::of(request);
        tracing::error!(
            group = &*log.group,
            site = &*log.site,
            host = &*label.host,
            path = &*label.path,
            client = %label.client,
            request_id = %label.id,
            withheld,
            "a request is proxied in a loop"
        );
    }
    Response::new(StatusCode::LOOP_DETECTED)
}

/// Returns the response to a request whose body broke off before it was sent to an origin.
pub(super) fn incomplete_body(error: &BodyError) -> Response {
    tracing::debug!(%error, "a client did not send its whole request");
    Response::new(status_of_body_error(error))
}

/// Logs that the body of a response broke off.
pub(super) fn log_broken_body(
    log: &GroupLog,
    node: &NodeLabel,
    label: &RequestLabel,
    error: &BodyError,
) {
    if let Some(withheld) = log.line() {
        tracing::warn!(
            group = &*log.group,
            node = &*node.name,
            address = &*node.address,
            site = &*log.site,
            host = &*label.host,
            path = &*label.path,
            client = %label.client,
            request_id = %label.id,
            cause = %error,
            withheld,
            "the response of an origin broke off"
        );
    }
}

/// Returns the response to a WebSocket handshake to which a node gave the wrong key.
pub(super) fn invalid_accept(
    log: &GroupLog,
    node: &NodeLabel,
    label: &RequestLabel,
    InvalidAccept: InvalidAccept,
) -> Response {
    if let Some(withheld) = log.line() {
        tracing::error!(
            group = &*log.group,
            node = &*node.name,
            address = &*node.address,
            site = &*log.site,
            host = &*label.host,
            path = &*label.path,
            client = %label.client,
            request_id = %label.id,
            withheld,
            "an origin sent the wrong Sec-WebSocket-Accept"
        );
    }
    Response::new(StatusCode::BAD_GATEWAY)
}

/// Logs that there is no response to a request. Returns the status of the error response. `label` is called for a line.
pub(super) fn log_error(
    log: &GroupLog,
    error: &UpstreamError,
    label: &dyn Fn() -> RequestLabel,
) -> StatusCode {
    let status = status_of(&error.kind);
    let last = match &error.kind {
        UpstreamErrorKind::Node { node, .. } => Some(&**node),
        _ => None,
    };
    let attempts = LoggedAttempts {
        failed: &error.attempts,
        last,
    };
    log_attempts(log, &attempts, label);
    let group = &*log.group;
    match &error.kind {
        UpstreamErrorKind::Node { node, failure, .. } if is_of_client(&failure.cause) => {
            tracing::debug!(group, node = &*node.name, %failure, "a client did not send its whole request");
        }
        kind => {
            if let Some(withheld) = log.line() {
                log_kind(log, kind, (status, withheld), &label());
            }
        }
    }
    status
}

/// Returns the response to a request to which no node responded.
pub(super) fn no_response(log: &GroupLog, request: &Request, error: &UpstreamError) -> Response {
    let status = log_error(log, error, &|| RequestLabel::of(request));
    let mut response = Response::new(status);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = error.retry_after.map_or(1, |after| {
            let whole = u64::from(after.subsec_nanos() > 0);
            after.as_secs().saturating_add(whole).max(1)
        });
        response
            .headers_mut()
            .insert(&header::RETRY_AFTER, &HeaderValue::from(seconds));
    }
    response
}

fn log_kind(
    log: &GroupLog,
    kind: &UpstreamErrorKind,
    (status, withheld): (StatusCode, u64),
    label: &RequestLabel,
) {
    match kind {
        UpstreamErrorKind::Node { node, failure, .. } => tracing::error!(
            group = &*log.group,
            node = &*node.name,
            address = &*node.address,
            site = &*log.site,
            host = &*label.host,
            path = &*label.path,
            client = %label.client,
            request_id = %label.id,
            phase = failure.phase.as_str(),
            cause = %failure.cause,
            status = status.as_u16(),
            withheld,
            "no response from an origin"
        ),
        kind => tracing::error!(
            group = &*log.group,
            site = &*log.site,
            host = &*label.host,
            path = &*label.path,
            client = %label.client,
            request_id = %label.id,
            cause = cause(kind),
            status = status.as_u16(),
            withheld,
            "no origin is available"
        ),
    }
}

fn status_of(kind: &UpstreamErrorKind) -> StatusCode {
    match kind {
        UpstreamErrorKind::Node { failure, .. } => status_of_failure(failure),
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn status_of_failure(failure: &RequestFailure) -> StatusCode {
    match &failure.cause {
        FailureCause::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        FailureCause::Source(error) => status_of_body_error(error),
        FailureCause::NoDescriptors => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

fn status_of_body_error(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The attempts before the last one, which was at the node `last` if there was one.
pub(super) struct LoggedAttempts<'a> {
    pub(super) failed: &'a [FailedAttempt],
    pub(super) last: Option<&'a NodeLabel>,
}

/// Logs the attempts before the last one. `label` is called for a line.
pub(super) fn log_attempts(
    log: &GroupLog,
    attempts: &LoggedAttempts<'_>,
    label: &dyn Fn() -> RequestLabel,
) {
    let LoggedAttempts { failed, last } = attempts;
    for (number, attempt) in (1..).zip(*failed) {
        let Some(withheld) = log.line() else {
            return;
        };
        let (phase, cause) = match &attempt.failure {
            AttemptFailure::NoResponse(failure) => {
                (failure.phase.as_str(), failure.cause.to_string())
            }
            AttemptFailure::Status(status) => ("response", format!("status {}", status.as_u16())),
        };
        let next = failed.get(number).map(|next| &*next.node).or(*last);
        let label = label();
        let message = match next {
            None => "found no other origin after one failed",
            Some(node) if node == &*attempt.node => "tried an origin once more after it failed",
            Some(_) => "tried another origin after one failed",
        };
        tracing::warn!(
            group = &*log.group,
            node = &*attempt.node.name,
            address = &*attempt.node.address,
            site = &*log.site,
            host = &*label.host,
            path = &*label.path,
            client = %label.client,
            request_id = %label.id,
            phase,
            cause,
            seconds = attempt.times.took.as_secs_f32(),
            withheld,
            "{message}"
        );
    }
}

/// Why no origin could be asked, for people.
pub(super) fn cause(kind: &UpstreamErrorKind) -> &'static str {
    match kind {
        UpstreamErrorKind::NoNode => "no node of the group is up",
        UpstreamErrorKind::QueueFull => "all nodes are busy and the queue is full",
        UpstreamErrorKind::QueueTimedOut => "all nodes were busy for too long",
        _ => "no node responded",
    }
}

/// Whether the client did not send its whole body.
fn is_of_client(cause: &FailureCause) -> bool {
    matches!(cause, FailureCause::Source(_))
}
