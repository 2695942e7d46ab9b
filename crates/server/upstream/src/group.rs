//! The state of a group of origins that all threads share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use apus_client::{Address, Origin, Protocol};

use crate::balance::{HashRing, route};
use crate::counters::{GroupCounters, WorkerCounterSets};
use crate::health::{
    ComparisonAction, IntervalTotals, OutlierSchedule, RequestTotals, may_eject, outliers,
};
use crate::node::{HealthCheckResult, Node, NodeKey, NodeState};
use crate::plan::{
    AdminState, CheckPlan, EjectionPlan, GroupPlan, NodePlan, NodeTarget, RatePlan, Strategy,
};
use crate::pool::FastCgiApplication;
use crate::queue::{NodeId, RequestQueue};
use crate::retry::RetryTokenBucket;
use crate::wait_queue::QueueOutcome;

/// A group of origins. Each worker reads it through a [`GroupView`](crate::worker), which it renews when
/// [`Self::generation`] changes.
#[derive(Debug)]
pub(crate) struct UpstreamGroup {
    name: Arc<str>,
    state: Mutex<GroupState>,
    /// The number of times that `state.set` was replaced.
    generation: AtomicU64,
    queue: Mutex<RequestQueue<NodeSlot>>,
    /// Requests that wait for an application.
    waiting: AtomicUsize,
    retry_tokens: Mutex<RetryTokenBucket>,
    comparison: Mutex<RateComparison>,
    pub(crate) counters: WorkerCounterSets<GroupCounters>,
}

#[derive(Debug)]
struct GroupState {
    set: Arc<NodeSet>,
    states: HashMap<NodeKey, Arc<NodeState>>,
    /// The addresses of names, by the name of the node.
    resolved: HashMap<Arc<str>, ResolvedName>,
    /// Admin states that were set at run time, by the name of the node.
    overrides: HashMap<Arc<str>, AdminState>,
}

/// The nodes of a group between two changes.
#[derive(Debug)]
pub(crate) struct NodeSet {
    pub(crate) plan: Arc<GroupPlan>,
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The ring of consistent hashing, if the strategy is that.
    pub(crate) ring: Option<HashRing>,
    /// Whether any node has a limit of concurrent requests.
    pub(crate) limited: bool,
}

/// One address of a node, from its plan or from DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedAddress {
    pub(crate) address: Address,
    /// A factor of the node's weight.
    pub(crate) weight: u32,
    pub(crate) backup: bool,
}

/// The result of the last lookup of a node's name.
#[derive(Debug)]
struct ResolvedName {
    target: NodeTarget,
    addresses: Vec<ResolvedAddress>,
    until: Instant,
}

/// The request totals of the nodes at the last comparison of their failure rates.
#[derive(Debug, Default)]
struct RateComparison {
    schedule: OutlierSchedule,
    before: HashMap<NodeId, RequestTotals>,
}

impl UpstreamGroup {
    /// Creates the group of a plan. A node whose name is not resolved yet is left out.
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
            retry_tokens: Mutex::new(RetryTokenBucket::new(&plan.retry.budget, now)),
            state: Mutex::new(GroupState {
                set: Arc::new(set),
                states: HashMap::new(),
                resolved: HashMap::new(),
                overrides: HashMap::new(),
            }),
            generation: AtomicU64::new(0),
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            comparison: Mutex::default(),
            counters: WorkerCounterSets::default(),
        };
        group.rebuild(&mut group.state(), plan, now);
        group
    }

    /// Returns the name of the group.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the queue. Slots of nodes are taken and released only under this lock.
    pub(crate) fn queue(&self) -> MutexGuard<'_, RequestQueue<NodeSlot>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of requests that wait for an application.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts a request that waits for an application, until the guard is dropped.
    pub(crate) fn begin_waiting(&self) -> WaitingGuard<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingGuard(self)
    }

    /// Returns a number that changes when the nodes change.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the current nodes.
    pub(crate) fn set(&self) -> Arc<NodeSet> {
        Arc::clone(&self.state().set)
    }

    /// Applies a new plan. Nodes that stay keep their state.
    pub(crate) fn apply(&self, plan: GroupPlan, now: Instant) {
        let mut state = self.state();
        let plan = Arc::new(plan);
        // The addresses of names that stay are kept: without them, the group would be without nodes until the next
        // lookup.
        state.resolved.retain(|name, resolved| {
            let mut nodes = plan.nodes.iter();
            nodes.any(|node| node.name == *name && node.target == resolved.target)
        });
        self.rebuild(&mut state, plan, now);
    }

    /// Stores the addresses of a node's name, which are valid `until` then. Returns whether they changed.
    pub(crate) fn set_addresses(
        &self,
        node: &Arc<str>,
        target: &NodeTarget,
        addresses: Vec<ResolvedAddress>,
        until: Instant,
    ) -> bool {
        let mut state = self.state();
        if let Some(known) = state.resolved.get_mut(node)
            && known.target == *target
            && known.addresses == addresses
        {
            // The usual result of a lookup. To rebuild the nodes for it would send all requests in the queue back to
            // choose again.
            known.until = until;
            return false;
        }
        let resolved = ResolvedName {
            target: target.clone(),
            addresses,
            until,
        };
        state.resolved.insert(Arc::clone(node), resolved);
        let plan = Arc::clone(&state.set.plan);
        self.rebuild(&mut state, plan, Instant::now());
        true
    }

    /// Returns until when the addresses of a node are valid; `None` if its name was not resolved yet.
    pub(crate) fn resolved_until(&self, node: &str) -> Option<Instant> {
        self.state()
            .resolved
            .get(node)
            .map(|resolved| resolved.until)
    }

    /// Overrides the admin state of a node's plan. Returns whether there is such a node.
    pub(crate) fn set_admin(&self, node: &str, admin: AdminState, now: Instant) -> bool {
        let mut state = self.state();
        let plan = Arc::clone(&state.set.plan);
        let Some(node) = plan.nodes.iter().find(|other| &*other.name == node) else {
            return false;
        };
        state.overrides.insert(Arc::clone(&node.name), admin);
        self.rebuild(&mut state, plan, now);
        true
    }

    fn rebuild(&self, group: &mut GroupState, plan: Arc<GroupPlan>, now: Instant) {
        let mut nodes = Vec::new();
        let mut states = HashMap::new();
        for node in &plan.nodes {
            for resolved in addresses(node, &group.resolved) {
                let key = NodeKey {
                    name: Arc::clone(&node.name),
                    address: resolved.address.clone(),
                };
                // By name and address: a reload or another order of the records of DNS must not forget that a node is
                // down.
                let known = group.states.remove(&key);
                let state = known.unwrap_or_else(|| Arc::new(NodeState::new()));
                if states.insert(key, Arc::clone(&state)).is_some() {
                    continue;
                }
                let admin = group.overrides.get(&node.name).copied();
                state.set_admin(&plan, admin.unwrap_or(node.admin), now);
                state.refresh(&plan, now);
                nodes.push(Arc::new(build_node(&plan, node, resolved, state)));
            }
        }
        let ring = matches!(plan.strategy, Strategy::ConsistentHash(_))
            .then(|| HashRing::new(nodes.iter().map(|node| (&*node.route, node.weight))));
        let limited = nodes.iter().any(|node| node.max_requests > 0);
        group.states = states;
        group.set = Arc::new(NodeSet {
            plan,
            nodes,
            ring,
            limited,
        });
        // After the set, and read by workers before it: a worker that sees the number sees the nodes.
        self.generation.fetch_add(1, Ordering::Release);
        // Those that wait choose again among the new nodes, with their tickets: a node that they wait for may be gone.
        self.queue().clear();
    }

    /// Takes a token for a retry. Returns whether there was one.
    pub(crate) fn take_retry_token(&self, plan: &GroupPlan, now: Instant) -> bool {
        let requests = self.counters.sums().requests;
        let mut tokens = self
            .retry_tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A lock, but only for a retry: a request that succeeds takes none.
        tokens.take(&plan.retry.budget, requests, now)
    }

    /// Gives a token back that no retry was sent for.
    pub(crate) fn return_retry_token(&self) {
        let mut tokens = self
            .retry_tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tokens.give_back();
    }

    /// Records a failure of a node, and ejects nodes if the plan says so.
    pub(crate) fn record_failure(&self, node: &Node, now: Instant) {
        let plan = &node.plan;
        let changed = node.state.record_failure(plan, now);
        let mut went_out = changed.went_out;
        if let Some(ejection) = &plan.ejection {
            let set = self.set();
            if changed.result {
                went_out |= eject(&set, ejection, &node.state, now);
            }
            if let Some(rate) = &ejection.rate {
                went_out |= self.compare_rates(&set, ejection, rate, now);
            }
        }
        if went_out {
            self.node_went_out(node);
        }
    }

    /// Records the result of a health check. Returns whether the node went up or down by it.
    pub(crate) fn record_check(
        self: &Arc<Self>,
        node: &Node,
        check: &CheckPlan,
        result: HealthCheckResult,
    ) -> bool {
        let changed = node.state.record_check(&node.plan, check, result);
        if changed.went_out {
            self.node_went_out(node);
        } else if changed.result {
            let set = self.set();
            self.hand_out_slots(&mut self.queue(), &set, Instant::now());
        }
        changed.result
    }

    fn node_went_out(&self, node: &Node) {
        tracing::warn!(group = %self.name, node = %node.name, address = %node.origin.address,
            "a node is out of service");
        // Requests that wait for this node alone would wait for their time-out: all choose again.
        self.queue().clear();
    }

    /// Compares the failure rates of the nodes if that is due. Returns whether a node was ejected.
    fn compare_rates(
        &self,
        set: &NodeSet,
        ejection: &EjectionPlan,
        rate: &RatePlan,
        now: Instant,
    ) -> bool {
        // A lock, but only after a failure.
        let mut comparison = self
            .comparison
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let action = comparison.schedule.next_action(rate.interval, now);
        if action == ComparisonAction::Wait {
            return false;
        }
        let after: HashMap<NodeId, RequestTotals> = set
            .nodes
            .iter()
            .map(|node| (node.state.id(), node.state.counters.sums().totals()))
            .collect();
        let before = std::mem::replace(&mut comparison.before, after);
        if action == ComparisonAction::Restart {
            return false;
        }
        let after = &comparison.before;
        let totals = |all: &HashMap<NodeId, RequestTotals>, node: &Node| {
            all.get(&node.state.id()).copied().unwrap_or_default()
        };
        let intervals: Vec<IntervalTotals> = set
            .nodes
            .iter()
            .map(|node| IntervalTotals::between(totals(&before, node), totals(after, node)))
            .collect();
        let mut any = false;
        for index in outliers(&intervals, rate.margin, rate.min_requests) {
            if let Some(node) = set.nodes.get(index) {
                any |= eject(set, ejection, &node.state, now);
            }
        }
        any
    }

    /// Takes a slot of a node that has a free one. The caller holds the lock of the queue.
    pub(crate) fn take_slot(self: &Arc<Self>, node: &Arc<Node>) -> NodeSlot {
        node.take_slot();
        NodeSlot {
            group: Arc::clone(self),
            node: Some(Arc::clone(node)),
            has_waited: false,
        }
    }

    /// Gives free slots to the requests in the queue, in order, after a node came back or its limit grew.
    pub(crate) fn hand_out_slots(
        self: &Arc<Self>,
        queue: &mut RequestQueue<NodeSlot>,
        set: &NodeSet,
        now: Instant,
    ) {
        for node in set.nodes.iter().filter(|node| node.max_requests > 0) {
            while !queue.is_empty()
                && node.has_free_slot()
                && let Some(offer) = node.offer(now)
            {
                let mut slot = self.take_slot(node);
                slot.has_waited = true;
                // `Drop` of the slot would take the lock of the queue, which is held here.
                if let Err(slot) = queue.hand(|request| request.accept(offer), slot) {
                    slot.release();
                    break;
                }
            }
        }
    }
}

/// A request that is counted while it waits for an application.
pub(crate) struct WaitingGuard<'a>(&'a UpstreamGroup);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of the concurrent requests that a node accepts. When it is dropped, on any worker, it goes to the
/// first request in the queue that accepts the node.
#[derive(Debug)]
pub(crate) struct NodeSlot {
    group: Arc<UpstreamGroup>,
    /// `None` once the slot is released.
    node: Option<Arc<Node>>,
    /// Whether its request waited for it in the queue.
    has_waited: bool,
}

impl NodeSlot {
    /// Returns the node of the slot.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// Tells the queue what became of the request, if it waited there.
    pub(crate) fn record(&self, outcome: QueueOutcome) {
        if self.has_waited {
            self.group.queue().record(outcome);
        }
    }

    /// Releases the slot without handing it on. The caller holds the lock of the queue.
    fn release(mut self) {
        if let Some(node) = self.node.take() {
            node.release_slot();
        }
    }
}

impl Drop for NodeSlot {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else {
            return;
        };
        let mut queue = self.group.queue();
        if !queue.is_empty()
            && let Some(offer) = node.offer(Instant::now())
        {
            // Handed on while it stays taken: released first, a new request could overtake those that wait.
            let slot = Self {
                group: Arc::clone(&self.group),
                node: Some(Arc::clone(&node)),
                has_waited: true,
            };
            if let Err(slot) = queue.hand(|request| request.accept(offer), slot) {
                slot.release();
            }
        } else {
            node.release_slot();
        }
    }
}

/// Ejects a node if enough others stay. Returns whether it did.
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

/// Returns the addresses of a node: the configured one, or the addresses that its name resolves to.
fn addresses(node: &NodePlan, resolved: &HashMap<Arc<str>, ResolvedName>) -> Vec<ResolvedAddress> {
    match &node.target {
        NodeTarget::Address(address) => vec![ResolvedAddress {
            address: address.clone(),
            weight: 1,
            backup: false,
        }],
        NodeTarget::Name { .. } | NodeTarget::Service(_) => {
            let resolved = resolved.get(&node.name);
            resolved.map_or_else(Vec::new, |resolved| resolved.addresses.clone())
        }
    }
}

fn build_node(
    plan: &Arc<GroupPlan>,
    node: &NodePlan,
    resolved: ResolvedAddress,
    state: Arc<NodeState>,
) -> Node {
    let address = resolved.address.to_string();
    Node {
        name: Arc::clone(&node.name),
        weight: node.weight.max(1).saturating_mul(resolved.weight.max(1)),
        backup: node.backup || resolved.backup,
        max_requests: node.max_requests,
        route: route(&plan.name, &address),
        authority: match (&node.target, &resolved.address) {
            (NodeTarget::Name { host, port }, _) => {
                format!("{}:{port}", host.trim_end_matches('.')).into()
            }
            (_, Address::Ip(address)) => address.to_string().into(),
            (_, Address::Unix(_)) => "localhost".into(),
        },
        application: (plan.protocol == Protocol::FastCgi)
            .then(|| FastCgiApplication::at(&resolved.address)),
        origin: Origin {
            address: resolved.address,
            tls: node.tls.clone(),
            protocol: plan.protocol,
            proxy_head: plan.proxy_head,
            responses: plan.responses,
        },
        plan: Arc::clone(plan),
        state,
    }
}
