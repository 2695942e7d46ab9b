//! What groups and nodes are doing, for the control socket and metrics: plain data, taken at one moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counts::{FailureKind, GroupTotals};
use crate::group::Group;
use crate::health::{FULL_SHARE, Reason, Verdict};
use crate::node::{CheckResult, Node};
use crate::plan::Admin;

/// A group at one moment.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its nodes, in the order of the configuration, each address of a name for itself.
    pub nodes: Vec<NodeStatus>,
    /// The names of nodes that have no address yet.
    pub unresolved: Vec<Arc<str>>,
    /// Requests that wait for a node.
    pub waiting: usize,
    /// What was counted since the start.
    pub totals: GroupTotals,
}

/// A node at one moment.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its address.
    pub address: String,
    /// Whether it is asked only when none of the others can be.
    pub backup: bool,
    /// What the configuration or the control socket says of it.
    pub admin: Admin,
    /// What is known of its health.
    pub state: State,
    /// Requests that it works on.
    pub in_flight: u32,
    /// Requests that were sent to it.
    pub requests: u64,
    /// How many failed, and why.
    pub failures: [(FailureKind, u64); FailureKind::ALL.len()],
    /// The mean time to the head of its responses; `None` before the first.
    pub latency: Option<Duration>,
    /// What its last check found; `None` before the first.
    pub last_check: Option<CheckResult>,
}

/// What is known of a node's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is asked.
    In,
    /// It came back and is asked for a part of its share, in percent.
    Starting(u8),
    /// Its breaker is half-open: one request is to find out.
    Probing,
    /// It is not asked, for this reason, until then if that is known.
    Out(Reason, Option<Instant>),
}

impl Group {
    /// The group now.
    pub(crate) fn status(&self, now: Instant) -> GroupStatus {
        let set = self.set();
        let has_address = |name: &Arc<str>| set.nodes.iter().any(|node| node.name == *name);
        let names = set.plan.nodes.iter().map(|node| &node.name);
        GroupStatus {
            unresolved: names.filter(|name| !has_address(name)).cloned().collect(),
            name: Arc::clone(self.name()),
            nodes: set.nodes.iter().map(|node| node.status(now)).collect(),
            waiting: self.line().len(),
            totals: self.counts.sums(),
        }
    }
}

impl Node {
    fn status(&self, now: Instant) -> NodeStatus {
        let sums = self.state.counts.sums();
        let mut failures = FailureKind::ALL.map(|kind| (kind, 0));
        for ((_, count), sum) in failures.iter_mut().zip(sums.failures) {
            *count = sum;
        }
        NodeStatus {
            name: Arc::clone(&self.name),
            address: self.origin.address.to_string(),
            backup: self.backup,
            admin: self.state.admin(),
            state: match self.verdict(now) {
                Verdict::In(FULL_SHARE) => State::In,
                Verdict::In(share) => State::Starting((share * 100 / FULL_SHARE) as u8),
                Verdict::Probe => State::Probing,
                Verdict::Out { why, until } => State::Out(why, until),
            },
            in_flight: sums.in_flight,
            requests: sums.requests,
            failures,
            latency: (sums.latency > 0.0).then(|| Duration::from_secs_f64(sums.latency)),
            last_check: self.state.last_check(),
        }
    }
}
