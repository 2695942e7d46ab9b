//! What becomes of a request to a group: the response of a node or an error, and the attempts that failed before.

use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::{ClientResponse, RequestFailure};
use apus_http::StatusCode;

use super::group_view::NodeLabel;

/// A response of a node, and the attempts before it.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The response. Its body keeps the slot at the node until it has ended or is dropped.
    pub response: ClientResponse,
    /// The node that responded.
    pub node: Rc<NodeLabel>,
    /// The time from the request to the head of its response.
    pub took: Duration,
    /// The times of the attempt that it is of.
    pub times: AttemptTimes,
    /// The value of a `Set-Cookie` field for the client, if a cookie is to bind it to the node.
    pub set_cookie: Option<String>,
    /// The attempts that failed before, in order; mostly none.
    pub attempts: Vec<FailedAttempt>,
}

/// Why there is no response.
#[derive(Debug)]
pub struct UpstreamError {
    /// The last thing that failed.
    pub kind: UpstreamErrorKind,
    /// The attempts that failed before, in order.
    pub attempts: Vec<FailedAttempt>,
    /// The time after which a retry by the client may succeed, if that is known.
    pub retry_after: Option<Duration>,
}

/// The last thing that failed for a request without a response.
#[derive(Debug)]
#[non_exhaustive]
pub enum UpstreamErrorKind {
    /// No node is available: all are down, ejected, or behind an open circuit breaker, or their names are
    /// not resolved.
    NoNode,
    /// All nodes have as many requests as they accept, and the queue is full.
    QueueFull,
    /// The request waited in the queue for too long.
    QueueTimedOut,
    /// The node failed.
    Node {
        /// The node.
        node: Rc<NodeLabel>,
        /// Its failure.
        failure: RequestFailure,
        /// The times of the attempt.
        times: AttemptTimes,
    },
}

/// An attempt that failed and was followed by another.
#[derive(Debug)]
pub struct FailedAttempt {
    /// The node of the attempt.
    pub node: Rc<NodeLabel>,
    /// Why it failed.
    pub failure: AttemptFailure,
    /// Its times.
    pub times: AttemptTimes,
}

/// When an attempt began, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct AttemptTimes {
    /// When the node was chosen.
    pub began: Instant,
    /// The time until there was a connection; `None`: there was one.
    pub connect: Option<Duration>,
    /// The time from the choice of the node to the head of the response, or to the failure.
    pub took: Duration,
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum AttemptFailure {
    /// There was no response.
    NoResponse(RequestFailure),
    /// The response had this status.
    Status(StatusCode),
}
