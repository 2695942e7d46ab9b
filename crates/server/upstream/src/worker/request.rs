//! A request to a group, which its attempts share.

use std::rc::Rc;
use std::time::Instant;

use apus_client::RequestTemplate;
use apus_codec::proxy_protocol;

use super::WorkerGroup;
use super::outcome::FailedAttempt;
use crate::queue::TriedNodes;

/// What a group needs to know of a request besides the request itself.
#[derive(Clone, Debug, Default)]
pub struct RequestContext<'a> {
    /// The key of consistent hashing, by [`hash_key`](crate::hash_key), if the group's strategy has
    /// one; without it the choice is random.
    pub key: Option<u64>,
    /// The value of the cookie that [`StickyPlan`](crate::plan::StickyPlan) names, if the client sent it.
    pub sticky: Option<&'a str>,
    /// The client's connection, for the PROXY protocol header.
    pub client: Option<proxy_protocol::ProxyHeader>,
    /// Whether sending the request twice has the same effect as sending it once; see
    /// [`is_idempotent`](crate::is_idempotent).
    pub idempotent: bool,
    /// The time at which the whole response has to be there, body included, if that is earlier than the
    /// group's plan says.
    pub deadline: Option<Instant>,
}

/// A request with the attempts that failed so far.
pub(super) struct RequestAttempts {
    pub(super) request: UpstreamRequest,
    pub(super) tried: TriedNodes,
    pub(super) failed: Vec<FailedAttempt>,
}

/// A request to a group: what is the same for all its attempts, except for the body.
pub(super) struct UpstreamRequest {
    pub(super) group: Rc<WorkerGroup>,
    /// The key of consistent hashing.
    pub(super) key: Option<u64>,
    /// The value of the sticky cookie.
    pub(super) sticky: Option<Box<str>>,
    /// The client's connection, for the PROXY protocol header.
    pub(super) client: Option<proxy_protocol::ProxyHeader>,
    pub(super) idempotent: bool,
    pub(super) deadline: Option<Instant>,
    pub(super) template: RequestTemplate,
    pub(super) began: Instant,
}
