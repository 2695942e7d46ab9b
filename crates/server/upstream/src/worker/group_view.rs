//! One worker's view of the nodes of a group, with its connections, counters and latencies.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_client::Timeouts;

use crate::balance::{Latency, NodeCandidate};
use crate::counters::NodeCounters;
use crate::group::{NodeSet, UpstreamGroup};
use crate::health::FULL_SHARE;
use crate::node::Node;
use crate::pool::ConnectionPool;
use crate::queue::NodeId;

/// The nodes of a group, until they change.
pub(crate) struct GroupView {
    pub(super) generation: u64,
    pub(super) set: Arc<NodeSet>,
    pub(super) nodes: Vec<Rc<WorkerNode>>,
    pub(super) timeouts: Rc<Timeouts>,
}

/// A node as one worker uses it.
pub(crate) struct WorkerNode {
    pub(super) node: Arc<Node>,
    pub(super) label: Rc<NodeLabel>,
    pub(super) counters: Arc<NodeCounters>,
    pub(super) pool: Rc<ConnectionPool>,
    latency: Rc<Cell<Latency>>,
}

/// The name and the address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeLabel {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its address; for a Unix socket, `unix:` and the path.
    pub address: Arc<str>,
}

impl fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self.name == *self.address {
            f.write_str(&self.name)
        } else {
            write!(f, "{} ({})", self.name, self.address)
        }
    }
}

impl GroupView {
    /// Creates a view of the current nodes. Nodes that stay keep what the view `before` has of them.
    pub(super) fn new(group: &UpstreamGroup, before: Option<&Self>) -> Self {
        // Read before the nodes: if they change in between, the next comparison notices it.
        let generation = group.generation();
        let set = group.set();
        let known = |node: &Node| {
            let nodes = before.map_or(&[][..], |before| &before.nodes);
            nodes
                .iter()
                .find(|local| local.node.state.id() == node.state.id())
        };
        let nodes = set
            .nodes
            .iter()
            .map(|node| Rc::new(WorkerNode::new(node, known(node))))
            .collect();
        let timeouts = match before {
            Some(before) if *before.timeouts == set.plan.timeouts => Rc::clone(&before.timeouts),
            _ => Rc::new(set.plan.timeouts.clone()),
        };
        Self {
            generation,
            set,
            nodes,
            timeouts,
        }
    }

    /// Returns the nodes that are no backups, with their weights only, to initialise the balancer.
    pub(super) fn weights(&self) -> Vec<NodeCandidate> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, local)| !local.node.backup)
            .map(|(index, local)| NodeCandidate {
                index,
                weight: local.node.weight.saturating_mul(FULL_SHARE),
                load: 0,
                latency: None,
            })
            .collect()
    }

    /// Returns the index of a node, unless it is gone.
    pub(super) fn position(&self, node: NodeId) -> Option<usize> {
        self.nodes
            .iter()
            .position(|local| local.node.state.id() == node)
    }
}

impl WorkerNode {
    fn new(node: &Arc<Node>, known: Option<&Rc<Self>>) -> Self {
        let pool = known.map(|known| &known.pool);
        // A reload that changes something else keeps the connections: thousands of handshakes at once are an outage
        // for some origins.
        let pool = match pool.filter(|pool| *pool.origin() == node.origin) {
            Some(pool) => Rc::clone(pool),
            None => ConnectionPool::new(node.origin.clone(), node.application.clone()),
        };
        pool.set_plan(node.plan.pool);
        let address = node.origin.address.to_string();
        let label = known.map(|known| Rc::clone(&known.label));
        let latency = known.map(|known| Rc::clone(&known.latency));
        let counters = known.map(|known| Arc::clone(&known.counters));
        Self {
            label: label.unwrap_or_else(|| {
                Rc::new(NodeLabel {
                    name: (*node.name).into(),
                    address: address.into(),
                })
            }),
            latency: latency.unwrap_or_default(),
            counters: counters.unwrap_or_else(|| node.state.counters.add_worker()),
            node: Arc::clone(node),
            pool,
        }
    }

    /// Returns the mean latency in seconds.
    pub(super) fn latency(&self, now: Instant) -> Option<f64> {
        self.latency.get().seconds(now)
    }

    /// Adds the latency of a response.
    pub(super) fn add_latency(&self, took: Duration, now: Instant) {
        let mut latency = self.latency.get();
        let mean = latency.add(took, now);
        self.latency.set(latency);
        self.counters.set_latency(mean);
    }
}
