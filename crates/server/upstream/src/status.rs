//! The status of groups and nodes at one moment, for the control socket and metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::{FailureKind, GroupTotals};
use crate::group::UpstreamGroup;
use crate::health::{Availability, FULL_SHARE, OutReason};
use crate::node::{HealthCheckResult, Node};
use crate::plan::AdminState;

/// The status of a group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its nodes, in the order of the configuration; each address of a name is one.
    pub nodes: Vec<NodeStatus>,
    /// The names of nodes that have no address yet.
    pub unresolved: Vec<Arc<str>>,
    /// The requests in the queue.
    pub waiting: usize,
    /// The counters since the start.
    pub totals: GroupTotals,
}

/// The status of a node.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its address.
    pub address: String,
    /// Whether it is used only when no other node is available.
    pub backup: bool,
    /// Its admin state, by the configuration or the control socket.
    pub admin: AdminState,
    /// Whether it is available.
    pub state: NodeAvailability,
    /// Its requests in flight.
    pub in_flight: u32,
    /// The requests that were sent to it.
    pub requests: u64,
    /// The number of failures of each kind.
    pub failures: [(FailureKind, u64); FailureKind::ALL.len()],
    /// The mean time to its response heads; `None` before the first.
    pub latency: Option<Duration>,
    /// The result of its last health check; `None` before the first.
    pub last_check: Option<HealthCheckResult>,
}

/// Whether a node is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAvailability {
    /// It is.
    In,
    /// It came back and has this part of its weight, in percent.
    Starting(u8),
    /// It is for one request, the probe of its circuit breaker.
    Probing,
    /// It is not, for this reason, until then if that is known.
    Out(OutReason, Option<Instant>),
}

impl UpstreamGroup {
    /// Returns the current status.
    pub(crate) fn status(&self, now: Instant) -> GroupStatus {
        let set = self.set();
        let has_address = |name: &Arc<str>| set.nodes.iter().any(|node| node.name == *name);
        let names = set.plan.nodes.iter().map(|node| &node.name);
        GroupStatus {
            unresolved: names.filter(|name| !has_address(name)).cloned().collect(),
            name: Arc::clone(self.name()),
            nodes: set.nodes.iter().map(|node| node.status(now)).collect(),
            waiting: self.queue().len() + self.waiting(),
            totals: self.counters.sums(),
        }
    }
}

impl Node {
    fn status(&self, now: Instant) -> NodeStatus {
        let sums = self.state.counters.sums();
        let mut failures = FailureKind::ALL.map(|kind| (kind, 0));
        for ((_, count), sum) in failures.iter_mut().zip(sums.failures) {
            *count = sum;
        }
        NodeStatus {
            name: Arc::clone(&self.name),
            address: self.origin.address.to_string(),
            backup: self.backup,
            admin: self.state.admin(),
            state: match self.availability(now) {
                Availability::In(FULL_SHARE) => NodeAvailability::In,
                Availability::In(share) => {
                    NodeAvailability::Starting((share * 100 / FULL_SHARE) as u8)
                }
                Availability::Probe => NodeAvailability::Probing,
                Availability::Out { reason, until } => NodeAvailability::Out(reason, until),
            },
            in_flight: sums.in_flight,
            requests: sums.requests,
            failures,
            latency: (sums.latency > 0.0).then(|| Duration::from_secs_f64(sums.latency)),
            last_check: self.state.last_check(),
        }
    }
}
