//! The nodes of a group as one worker sees them: with its connections, counts and times.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_net::client::Timeouts;

use crate::balance::{Candidate, Latency};
use crate::counts::NodeCounts;
use crate::group::{Group, NodeSet};
use crate::health::FULL_SHARE;
use crate::node::Node;
use crate::pool::Pool;
use crate::queue::NodeId;

/// The nodes between two changes.
pub(crate) struct View {
    pub(super) generation: u64,
    pub(super) set: Arc<NodeSet>,
    pub(super) nodes: Vec<Rc<LocalNode>>,
    pub(super) timeouts: Rc<Timeouts>,
}

/// A node for one worker.
pub(crate) struct LocalNode {
    pub(super) node: Arc<Node>,
    pub(super) label: Rc<NodeLabel>,
    pub(super) counts: Arc<NodeCounts>,
    pub(super) pool: Rc<Pool>,
    latency: Rc<Cell<Latency>>,
}

/// What a node is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeLabel {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// Its address; after `unix:`, the path of a Unix socket.
    pub address: Arc<str>,
}

impl fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.name == *self.address {
            true => f.write_str(&self.name),
            false => write!(f, "{} ({})", self.name, self.address),
        }
    }
}

impl View {
    /// A view of the group now, with what the view before it has of nodes that stay.
    pub(super) fn new(group: &Group, before: Option<&Self>) -> Self {
        // Asked first: a change in between is seen the next time.
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
            .map(|node| Rc::new(LocalNode::new(node, known(node))))
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

    /// The nodes that are no backups, with nothing but their weights, for turns to begin with.
    pub(super) fn weights(&self) -> Vec<Candidate> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, local)| !local.node.backup)
            .map(|(index, local)| Candidate {
                index,
                weight: local.node.weight.saturating_mul(FULL_SHARE),
                load: 0,
                latency: None,
            })
            .collect()
    }

    /// The place of a node, unless it is gone.
    pub(super) fn position(&self, node: NodeId) -> Option<usize> {
        self.nodes
            .iter()
            .position(|local| local.node.state.id() == node)
    }
}

impl LocalNode {
    fn new(node: &Arc<Node>, known: Option<&Rc<Self>>) -> Self {
        let pool = known.map(|known| &known.pool);
        let pool = match pool.filter(|pool| *pool.origin() == node.origin) {
            Some(pool) => Rc::clone(pool),
            None => Pool::new(node.origin.clone(), Arc::clone(&node.state.parked)),
        };
        pool.set_plan(node.plan.pool);
        let address = node.origin.address.to_string();
        let label = known.map(|known| Rc::clone(&known.label));
        let latency = known.map(|known| Rc::clone(&known.latency));
        let counts = known.map(|known| Arc::clone(&known.counts));
        Self {
            label: label.unwrap_or_else(|| {
                Rc::new(NodeLabel {
                    name: (*node.name).into(),
                    address: address.into(),
                })
            }),
            latency: latency.unwrap_or_default(),
            counts: counts.unwrap_or_else(|| node.state.counts.enter()),
            node: Arc::clone(node),
            pool,
        }
    }

    /// The mean latency in seconds.
    pub(super) fn latency(&self, now: Instant) -> Option<f64> {
        self.latency.get().seconds(now)
    }

    /// Adds how long an answer took.
    pub(super) fn answered_in(&self, took: Duration, now: Instant) {
        let mut latency = self.latency.get();
        latency.add(took, now);
        self.latency.set(latency);
        self.counts
            .show_latency(latency.seconds(now).unwrap_or_default());
    }
}
