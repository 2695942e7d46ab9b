//! A group of origins as all threads share it.
//!
//! Workers read it through a view of their own, which they renew when the group changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use apus_net::client::{Address, Origin};

use crate::balance::{Ring, route};
use crate::counts::{Counts, GroupCounts};
use crate::health::{Due, Outliers, Share, Totals, may_eject, outliers};
use crate::node::{CheckResult, Node, NodeKey, NodeState};
use crate::plan::{Admin, CheckPlan, EjectionPlan, GroupPlan, NodePlan, Place, RatePlan, Strategy};
use crate::queue::{Line, NodeId};
use crate::retry::Budget;

/// What all threads share of a group.
#[derive(Debug)]
pub(crate) struct Group {
    name: Arc<str>,
    inner: Mutex<Inner>,
    /// How often `inner.set` was replaced.
    generation: AtomicU64,
    line: Mutex<Line<PlaceAt>>,
    budget: Mutex<Budget>,
    comparison: Mutex<Comparison>,
    pub(crate) counts: Counts<GroupCounts>,
}

#[derive(Debug)]
struct Inner {
    set: Arc<NodeSet>,
    states: HashMap<NodeKey, Arc<NodeState>>,
    /// What names stand for, by the name of the node.
    resolved: HashMap<Arc<str>, Resolved>,
    /// What was said of nodes at run time, by name.
    told: HashMap<Arc<str>, Admin>,
}

/// The nodes of a group between two changes.
#[derive(Debug)]
pub(crate) struct NodeSet {
    pub(crate) plan: Arc<GroupPlan>,
    pub(crate) nodes: Vec<Arc<Node>>,
    /// For consistent hashing.
    pub(crate) ring: Option<Ring>,
    /// Whether any node takes a limited number of requests.
    pub(crate) limited: bool,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: Address,
    /// What multiplies the node's weight.
    pub(crate) weight: u32,
    pub(crate) backup: bool,
}

/// What a name stood for when it was looked up last.
#[derive(Debug)]
struct Resolved {
    place: Place,
    targets: Vec<Target>,
    until: Instant,
}

/// What the nodes had ended when they were compared last.
#[derive(Debug, Default)]
struct Comparison {
    outliers: Outliers,
    before: HashMap<NodeId, Totals>,
}

impl Group {
    /// A group by its plan. Nodes whose names are not resolved yet are left out.
    pub(crate) fn new(plan: GroupPlan, now: Instant) -> Self {
        let plan = Arc::new(plan);
        let set = NodeSet {
            plan: Arc::clone(&plan),
            nodes: Vec::new(),
            ring: None,
            limited: false,
        };
        let group = Self {
            name: Arc::clone(&plan.name),
            budget: Mutex::new(Budget::new(&plan.retry.budget, now)),
            inner: Mutex::new(Inner {
                set: Arc::new(set),
                states: HashMap::new(),
                resolved: HashMap::new(),
                told: HashMap::new(),
            }),
            generation: AtomicU64::new(0),
            line: Mutex::default(),
            comparison: Mutex::default(),
            counts: Counts::default(),
        };
        group.rebuild(&mut group.inner(), plan, now);
        group
    }

    /// The name.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line, in which places at nodes are taken and given back.
    pub(crate) fn line(&self) -> MutexGuard<'_, Line<PlaceAt>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that changes with the nodes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The nodes now.
    pub(crate) fn set(&self) -> Arc<NodeSet> {
        Arc::clone(&self.inner().set)
    }

    /// Puts a plan in force. Nodes that stay keep what is known of them.
    pub(crate) fn apply(&self, plan: GroupPlan, now: Instant) {
        let mut inner = self.inner();
        let plan = Arc::new(plan);
        inner.resolved.retain(|name, resolved| {
            let mut nodes = plan.nodes.iter();
            nodes.any(|node| node.name == *name && node.place == resolved.place)
        });
        self.rebuild(&mut inner, plan, now);
    }

    /// Takes what the name of a node stands for, until it is to be looked up again. Tells whether that is
    /// news.
    pub(crate) fn resolve(
        &self,
        node: &Arc<str>,
        place: &Place,
        targets: Vec<Target>,
        until: Instant,
    ) -> bool {
        let mut inner = self.inner();
        if let Some(known) = inner.resolved.get_mut(node)
            && known.place == *place
            && known.targets == targets
        {
            known.until = until;
            return false;
        }
        let resolved = Resolved {
            place: place.clone(),
            targets,
            until,
        };
        inner.resolved.insert(Arc::clone(node), resolved);
        let plan = Arc::clone(&inner.set.plan);
        self.rebuild(&mut inner, plan, Instant::now());
        true
    }

    /// Until when the addresses of a node are known; `None` if its name was not resolved yet.
    pub(crate) fn resolved_until(&self, node: &str) -> Option<Instant> {
        self.inner()
            .resolved
            .get(node)
            .map(|resolved| resolved.until)
    }

    /// Sets whether a node is asked, in place of what its plan says. Tells whether there is such a
    /// node.
    pub(crate) fn set_admin(&self, node: &str, admin: Admin, now: Instant) -> bool {
        let mut inner = self.inner();
        let plan = Arc::clone(&inner.set.plan);
        let Some(node) = plan.nodes.iter().find(|other| &*other.name == node) else {
            return false;
        };
        inner.told.insert(Arc::clone(&node.name), admin);
        self.rebuild(&mut inner, plan, now);
        true
    }

    fn rebuild(&self, inner: &mut Inner, plan: Arc<GroupPlan>, now: Instant) {
        let mut nodes = Vec::new();
        let mut states = HashMap::new();
        for node in &plan.nodes {
            for target in targets(node, &inner.resolved) {
                let key = NodeKey {
                    name: Arc::clone(&node.name),
                    address: target.address.clone(),
                };
                let known = inner.states.remove(&key);
                let state = known.unwrap_or_else(|| Arc::new(NodeState::new()));
                if states.insert(key, Arc::clone(&state)).is_some() {
                    continue;
                }
                let admin = inner.told.get(&node.name).copied().unwrap_or(node.admin);
                state.set_admin(&plan, admin, now);
                state.refresh(&plan, now);
                nodes.push(Arc::new(member(&plan, node, target, state)));
            }
        }
        let ring = matches!(plan.strategy, Strategy::ConsistentHash(_))
            .then(|| Ring::new(nodes.iter().map(|node| (&*node.route, node.weight))));
        let limited = nodes.iter().any(|node| node.max_requests > 0);
        inner.states = states;
        inner.set = Arc::new(NodeSet {
            plan,
            nodes,
            ring,
            limited,
        });
        self.generation.fetch_add(1, Ordering::Release);
        self.line().reconsider();
    }

    /// Takes a token for a retry. Tells whether there was one.
    pub(crate) fn may_retry(&self, plan: &GroupPlan, now: Instant) -> bool {
        let requests = self.counts.sums().requests;
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.take(&plan.retry.budget, requests, now)
    }

    /// A node failed. What follows for it and its group.
    pub(crate) fn node_failed(&self, node: &Node, now: Instant) {
        let plan = &node.plan;
        let changed = node.state.failed(plan, now);
        let mut went_out = changed.went_out;
        if let Some(ejection) = &plan.ejection {
            let set = self.set();
            if changed.result {
                went_out |= eject(&set, ejection, &node.state, now);
            }
            if let Some(rate) = &ejection.rate {
                went_out |= self.compare(&set, ejection, rate, now);
            }
        }
        if went_out {
            self.went_out(node);
        }
    }

    /// A check of a node ended. Tells whether its standing changed.
    pub(crate) fn node_checked(
        self: &Arc<Self>,
        node: &Node,
        check: &CheckPlan,
        result: CheckResult,
    ) -> bool {
        let changed = node.state.checked(&node.plan, check, result);
        if changed.went_out {
            self.went_out(node);
        } else if changed.result {
            let set = self.set();
            self.pass_places_on(&mut self.line(), &set, Instant::now());
        }
        changed.result
    }

    fn went_out(&self, node: &Node) {
        tracing::warn!(group = %self.name, node = %node.name, address = %node.origin.address,
            "a node is out");
        self.line().reconsider();
    }

    /// Compares the nodes with each other if it is time. Tells whether one was ejected.
    fn compare(
        &self,
        set: &NodeSet,
        ejection: &EjectionPlan,
        rate: &RatePlan,
        now: Instant,
    ) -> bool {
        let mut comparison = self
            .comparison
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due = comparison.outliers.due(rate.interval, now);
        if due == Due::No {
            return false;
        }
        let after: HashMap<NodeId, Totals> = set
            .nodes
            .iter()
            .map(|node| (node.state.id(), node.state.counts.sums().totals()))
            .collect();
        let before = std::mem::replace(&mut comparison.before, after);
        if due == Due::Restart {
            return false;
        }
        let after = &comparison.before;
        let totals = |all: &HashMap<NodeId, Totals>, node: &Node| {
            all.get(&node.state.id()).copied().unwrap_or_default()
        };
        let shares: Vec<Share> = set
            .nodes
            .iter()
            .map(|node| Share::between(totals(&before, node), totals(after, node)))
            .collect();
        let mut any = false;
        for index in outliers(&shares, rate.margin, rate.min_requests) {
            if let Some(node) = set.nodes.get(index) {
                any |= eject(set, ejection, &node.state, now);
            }
        }
        any
    }

    /// Takes a place at a node that has room, while the line is locked.
    pub(crate) fn take_place(self: &Arc<Self>, node: &Arc<Node>) -> PlaceAt {
        node.take_place();
        PlaceAt {
            group: Arc::clone(self),
            node: Some(Arc::clone(node)),
        }
    }

    /// Gives free places to those who wait, in their order: a node came back, or its limit grew.
    pub(crate) fn pass_places_on(
        self: &Arc<Self>,
        line: &mut Line<PlaceAt>,
        set: &NodeSet,
        now: Instant,
    ) {
        for node in set.nodes.iter().filter(|node| node.max_requests > 0) {
            while line.len() > 0
                && node.has_room()
                && let Some(offer) = node.offer(now)
            {
                if let Err(place) = line.hand(offer, self.take_place(node)) {
                    place.free();
                    break;
                }
            }
        }
    }
}

/// A place at a node that is taken. When it is dropped, on whichever worker, the first who waits for it
/// gets it.
#[derive(Debug)]
pub(crate) struct PlaceAt {
    group: Arc<Group>,
    /// `None` once it is given back.
    node: Option<Arc<Node>>,
}

impl PlaceAt {
    /// The node.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// Gives it back to nobody, while the line is locked.
    fn free(mut self) {
        if let Some(node) = self.node.take() {
            node.free_place();
        }
    }
}

impl Drop for PlaceAt {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else {
            return;
        };
        let mut line = self.group.line();
        if line.len() > 0
            && let Some(offer) = node.offer(Instant::now())
        {
            let place = Self {
                group: Arc::clone(&self.group),
                node: Some(Arc::clone(&node)),
            };
            if let Err(place) = line.hand(offer, place) {
                place.free();
            }
        } else {
            node.free_place();
        }
    }
}

/// Ejects a node if enough others stay. Tells whether it did.
fn eject(set: &NodeSet, plan: &EjectionPlan, state: &NodeState, now: Instant) -> bool {
    let ejected = set
        .nodes
        .iter()
        .filter(|node| node.state.is_ejected(now))
        .count();
    let may = !state.is_ejected(now) && may_eject(plan, set.nodes.len(), ejected);
    if may {
        state.eject(&set.plan, plan, now);
    }
    may
}

/// Where a node of a plan is.
fn targets(node: &NodePlan, resolved: &HashMap<Arc<str>, Resolved>) -> Vec<Target> {
    match &node.place {
        Place::Address(address) => vec![Target {
            address: address.clone(),
            weight: 1,
            backup: false,
        }],
        Place::Name { .. } | Place::Service(_) => {
            let resolved = resolved.get(&node.name);
            resolved.map_or_else(Vec::new, |resolved| resolved.targets.clone())
        }
    }
}

fn member(plan: &Arc<GroupPlan>, node: &NodePlan, target: Target, state: Arc<NodeState>) -> Node {
    let address = target.address.to_string();
    Node {
        name: Arc::clone(&node.name),
        weight: node.weight.max(1).saturating_mul(target.weight.max(1)),
        backup: node.backup || target.backup,
        max_requests: node.max_requests,
        route: route(&plan.name, &address),
        authority: match (&node.place, &target.address) {
            (Place::Name { host, port }, _) => {
                format!("{}:{port}", host.trim_end_matches('.')).into()
            }
            (_, Address::Ip(address)) => address.to_string().into(),
            (_, Address::Unix(_)) => "localhost".into(),
        },
        origin: Origin {
            address: target.address,
            tls: node.tls.clone(),
            protocol: plan.protocol,
            proxy_head: plan.proxy_head,
        },
        plan: Arc::clone(plan),
        state,
    }
}
