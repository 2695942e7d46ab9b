//! The choice of a node for a request, and a slot at that node or a position in the queue.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::WorkerGroup;
use super::group_view::{GroupView, WorkerNode};
use crate::balance::NodeCandidate;
use crate::group::NodeSlot;
use crate::health::{Availability, FULL_SHARE, OutReason};
use crate::plan::{AdminState, Strategy};
use crate::queue::{NodeRequirements, TriedNodes};
use crate::wait_queue::WaitTicket;

/// What a choice depends on besides the state of the nodes.
pub(super) struct ChoiceCriteria<'a> {
    /// The key of consistent hashing.
    pub(super) key: Option<u64>,
    /// The value of the sticky cookie.
    pub(super) sticky: Option<&'a str>,
    /// The nodes that the request was sent to already.
    pub(super) tried: &'a TriedNodes,
    /// Whether the request may enter the queue: `None` if not, else its ticket if it waited before.
    pub(super) queueing: Option<Option<WaitTicket>>,
}

/// The result of a choice.
pub(super) enum NodeChoice {
    /// This node.
    Node(ChosenNode),
    /// The request has to wait in the queue.
    Wait(WaitTicket, oneshot::Receiver<NodeSlot>),
    /// All nodes are busy, and the request cannot enter the queue.
    QueueFull,
    /// No node is available; one may be after this time.
    NoNode(Option<Duration>),
}

/// A chosen node.
pub(super) struct ChosenNode {
    pub(super) index: usize,
    pub(super) slot: Option<NodeSlot>,
    /// Whether the request is the probe of the node's circuit breaker.
    pub(super) probe: bool,
}

/// The result of a search among the nodes.
enum NodeSearch {
    Found(usize),
    /// All suitable nodes have as many requests as they accept.
    Busy(NodeRequirements),
    NotFound,
}

/// Nodes by preference.
#[derive(Clone, Copy)]
enum NodeTier {
    Primary,
    Backup,
    /// Nodes with too many failures: better than no node.
    LastResort,
}

impl WorkerGroup {
    /// Chooses a node and takes a slot at it, or a position in the queue.
    pub(super) fn choose(
        &self,
        view: &GroupView,
        criteria: &ChoiceCriteria<'_>,
        now: Instant,
    ) -> NodeChoice {
        // The lock is taken only where nodes have limits of requests; other groups choose without one.
        let mut queue = view.set.limited.then(|| self.group.queue());
        if let Some(queue) = &mut queue {
            self.group.hand_out_slots(queue, &view.set, now);
        }
        loop {
            let requirements = match self.find(view, criteria, now) {
                NodeSearch::Found(index) => match admit(view, index, now) {
                    Some(probe) => {
                        let node = view.nodes.get(index).map(|local| &local.node);
                        let node = node.filter(|node| node.max_requests > 0);
                        return NodeChoice::Node(ChosenNode {
                            index,
                            slot: node.map(|node| self.group.take_slot(node)),
                            probe,
                        });
                    }
                    // A request of another worker became the probe first.
                    None => continue,
                },
                NodeSearch::Busy(requirements) => requirements,
                NodeSearch::NotFound => return NodeChoice::NoNode(earliest_return(view, now)),
            };
            let max_waiting = view.set.plan.queue.max_waiting;
            return match (&mut queue, criteria.queueing) {
                (Some(queue), Some(ticket)) if ticket.is_some() || queue.len() < max_waiting => {
                    let (ticket, receiver) = queue.enter(ticket, requirements);
                    NodeChoice::Wait(ticket, receiver)
                }
                _ => NodeChoice::QueueFull,
            };
        }
    }

    fn find(&self, view: &GroupView, criteria: &ChoiceCriteria<'_>, now: Instant) -> NodeSearch {
        if let Some(route) = criteria.sticky
            && view.set.plan.sticky.is_some()
            && let Some((index, local)) = node_of_route(view, route)
            && !criteria.tried.contains(&local.node.state.id())
            // A node that drains still gets the clients that its cookies name.
            && local.node.state.admin() != AdminState::Down
            && local.node.admission(now).is_some()
        {
            if local.node.has_free_slot() {
                return NodeSearch::Found(index);
            }
            if view.set.plan.queue.max_waiting > 0 {
                return NodeSearch::Busy(NodeRequirements {
                    only: Some(local.node.state.id()),
                    ..NodeRequirements::default()
                });
            }
        }
        if let [only] = &*view.nodes
            && share_in(NodeTier::Primary, only, now).is_some()
            && only.node.has_free_slot()
            && !criteria.tried.contains(&only.node.state.id())
        {
            // There is nothing to balance.
            return NodeSearch::Found(0);
        }
        // Nodes that failed are asked last, and not never: passive checks may have taken the whole group out for one
        // bad request that each of them got. nginx does the same.
        for tier in [NodeTier::Primary, NodeTier::Backup, NodeTier::LastResort] {
            match self.find_in(tier, view, criteria, now) {
                NodeSearch::NotFound => {}
                found => return found,
            }
        }
        NodeSearch::NotFound
    }

    fn find_in(
        &self,
        tier: NodeTier,
        view: &GroupView,
        criteria: &ChoiceCriteria<'_>,
        now: Instant,
    ) -> NodeSearch {
        let strategy = &view.set.plan.strategy;
        let mut candidates = self.candidates.borrow_mut();
        candidates.clear();
        let mut any_busy = false;
        for (index, local) in view.nodes.iter().enumerate() {
            let node = &local.node;
            let Some(share) = share_in(tier, local, now) else {
                continue;
            };
            if criteria.tried.contains(&node.state.id()) {
                continue;
            }
            if !node.has_free_slot() {
                // A busy node is worth waiting for, and a tier that has one is not given up for the next.
                any_busy = true;
                continue;
            }
            candidates.push(NodeCandidate {
                index,
                weight: node.weight.saturating_mul(share),
                // The count is shared by all workers, and read only where it is compared.
                load: if strategy.uses_load() {
                    node.state.load()
                } else {
                    0
                },
                latency: match strategy {
                    Strategy::LeastTime => local.latency(now),
                    _ => None,
                },
            });
        }
        let key = view.set.ring.as_ref().zip(criteria.key);
        let mut balancer = self.balancer.borrow_mut();
        match balancer.pick(strategy, &candidates, key) {
            Some(index) => NodeSearch::Found(index),
            None if any_busy => NodeSearch::Busy(NodeRequirements {
                only: None,
                tried: criteria.tried.clone(),
                backup: !matches!(tier, NodeTier::Primary),
            }),
            None => NodeSearch::NotFound,
        }
    }
}

/// Returns the node whose sticky cookie has this value.
fn node_of_route<'a>(view: &'a GroupView, route: &str) -> Option<(usize, &'a WorkerNode)> {
    view.nodes
        .iter()
        .enumerate()
        .find(|(_, local)| *local.node.route == *route)
        .map(|(index, local)| (index, &**local))
}

/// Returns the part of its weight with which a node belongs to a tier; `None` if it does not.
fn share_in(tier: NodeTier, local: &WorkerNode, now: Instant) -> Option<u32> {
    let node = &local.node;
    if node.state.admin() != AdminState::Up {
        return None;
    }
    match tier {
        NodeTier::Primary | NodeTier::Backup => {
            let is_in_tier = node.backup == matches!(tier, NodeTier::Backup);
            let admitted = is_in_tier.then(|| node.admission(now)).flatten()?;
            Some(admitted.share)
        }
        NodeTier::LastResort => match node.availability(now) {
            Availability::Out {
                // These are guesses from requests. A health check and a breaker were asked for, and their word
                // stands.
                reason: OutReason::Failures | OutReason::Ejected,
                ..
            } => Some(FULL_SHARE),
            _ => None,
        },
    }
}

/// Admits a request to a node, and returns whether it is the probe of the node's circuit breaker. `None` if
/// another probe is in flight.
fn admit(view: &GroupView, index: usize, now: Instant) -> Option<bool> {
    let node = &view.nodes.get(index)?.node;
    match node.admission(now) {
        Some(admitted) if admitted.probe => node.state.begin_probe(&node.plan, now).then_some(true),
        _ => Some(false),
    }
}

/// Returns the time until the first node may be available again, if any node has one.
fn earliest_return(view: &GroupView, now: Instant) -> Option<Duration> {
    view.nodes
        .iter()
        .filter(|local| local.node.state.admin() == AdminState::Up)
        .filter_map(|local| match local.node.availability(now) {
            Availability::Out {
                until: Some(until), ..
            } => Some(until.saturating_duration_since(now)),
            _ => None,
        })
        .min()
}
