//! A node of a group, with the state that all threads share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use apus_client::{Address, Origin};

use crate::counters::{NodeCounters, WorkerCounterSets};
use crate::health::{Availability, FULL_SHARE, Health, ProbeOutcome};
use crate::plan::{AdminState, CheckPlan, EjectionPlan, GroupPlan};
use crate::pool::FastCgiApplication;
use crate::queue::{NodeId, SlotOffer};

/// A node of a group, by its plan and the last lookup of its name.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) origin: Origin,
    /// The authority of requests that are not sent for a client, such as health checks.
    pub(crate) authority: Box<str>,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    /// The limit of concurrent requests; 0: none.
    pub(crate) max_requests: u32,
    /// The value of the sticky cookie for this node.
    pub(crate) route: Box<str>,
    pub(crate) plan: Arc<GroupPlan>,
    pub(crate) state: Arc<NodeState>,
    /// The application, over FastCGI.
    pub(crate) application: Option<Arc<FastCgiApplication>>,
}

/// What identifies a node across reloads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeKey {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
}

impl Node {
    /// Returns how the node admits a request; `None` if it does not. Mostly this reads one atomic.
    pub(crate) fn admission(&self, now: Instant) -> Option<NodeAdmission> {
        self.state.admission(&self.plan, now)
    }

    /// Returns whether the node is available.
    pub(crate) fn availability(&self, now: Instant) -> Availability {
        self.state.health().availability(&self.plan, now)
    }

    /// Whether the node has a free slot. The caller holds the lock of the queue.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.max_requests == 0 || self.state.slots_taken.load(Ordering::Relaxed) < self.max_requests
    }

    /// Takes a slot. The caller holds the lock of the queue.
    pub(crate) fn take_slot(&self) {
        self.state.slots_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Offers a free slot to the requests in the queue; `None` while the node accepts none, or has fewer slots
    /// than are taken.
    pub(crate) fn offer(&self, now: Instant) -> Option<SlotOffer> {
        let admin = self.state.admin();
        let is_available = admin != AdminState::Down
            && self.state.slots_taken.load(Ordering::Relaxed) <= self.max_requests
            // Not the probe of a breaker: a request becomes that when it chooses the node, which a request in the
            // queue does not do again.
            && matches!(
                self.admission(now),
                Some(NodeAdmission { probe: false, .. })
            );
        is_available.then_some(SlotOffer {
            node: self.state.id(),
            backup: self.backup,
            draining: admin == AdminState::Drain,
        })
    }

    /// Releases a slot. The caller holds the lock of the queue.
    pub(crate) fn release_slot(&self) {
        self.state.slots_taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a node admits a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeAdmission {
    /// The part of its weight that counts, of [`FULL_SHARE`].
    pub(crate) share: u32,
    /// Whether the request has to be the probe of the circuit breaker; see [`NodeState::begin_probe`].
    pub(crate) probe: bool,
}

/// The state of a node that all threads share, and that stays across reloads.
#[derive(Debug)]
pub(crate) struct NodeState {
    id: NodeId,
    /// Whether requests may pass: [`OPEN`], [`CHECK_HEALTH`], [`CLOSED`], or the time at which to check again.
    gate: AtomicU64,
    /// Whether `health` has to know of successful requests, too.
    needs_successes: AtomicBool,
    admin: AtomicU8,
    /// Requests in flight of all workers; counted only if the strategy compares them.
    load: AtomicU32,
    /// Slots taken, if their number is limited.
    slots_taken: AtomicU32,
    health: Mutex<Health>,
    last_check: Mutex<Option<HealthCheckResult>>,
    pub(crate) counters: WorkerCounterSets<NodeCounters>,
}

/// The result of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckResult {
    /// The time at which it ended.
    pub at: Instant,
    /// Why it failed; `None` if it succeeded.
    pub fault: Option<Box<str>>,
}

/// All requests pass.
const OPEN: u64 = 0;
/// The health decides whether a request passes.
const CHECK_HEALTH: u64 = 1;
/// No request passes.
const CLOSED: u64 = u64::MAX;

impl NodeState {
    /// Creates the state of a node that was not used yet.
    pub(crate) fn new() -> Self {
        // Never used again, unlike an address in memory: a request that waits may name a node that is gone.
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            gate: AtomicU64::new(OPEN),
            needs_successes: AtomicBool::new(false),
            admin: AtomicU8::new(AdminState::Up as u8),
            load: AtomicU32::new(0),
            slots_taken: AtomicU32::new(0),
            health: Mutex::default(),
            last_check: Mutex::default(),
            counters: WorkerCounterSets::default(),
        }
    }

    /// Returns the number of this node, which is unique in the process.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the health, and the gate with it. The result says whether the node went out.
    fn change<T>(
        &self,
        plan: &GroupPlan,
        now: Instant,
        change: impl FnOnce(&mut Health) -> T,
    ) -> HealthChange<T> {
        let mut health = self.health();
        let result = change(&mut health);
        let availability = health.availability(plan, now);
        // Relaxed: the gate is a hint. A worker that reads the old value sends one request more to a node that fails.
        let before = self.gate.swap(gate(availability), Ordering::Relaxed);
        self.needs_successes
            .store(health.needs_successes(), Ordering::Relaxed);
        let is_out = matches!(availability, Availability::Out { .. });
        HealthChange {
            result,
            // Of several failures at once, one alone finds the gate open.
            went_out: is_out && before <= CHECK_HEALTH,
        }
    }

    /// Sets the gate by a new plan.
    pub(crate) fn refresh(&self, plan: &GroupPlan, now: Instant) {
        self.change(plan, now, |_| ());
    }

    fn admission(&self, plan: &GroupPlan, now: Instant) -> Option<NodeAdmission> {
        let mut share = FULL_SHARE;
        let mut probe = false;
        match self.gate.load(Ordering::Relaxed) {
            OPEN => {}
            // The usual request reads one number, and takes the lock of the health only when the time of a node is
            // over.
            until if until > CHECK_HEALTH && nanoseconds(now) < until => return None,
            _ => match self
                .change(plan, now, |health| health.availability(plan, now))
                .result
            {
                Availability::In(part) => share = part,
                Availability::Probe => probe = true,
                Availability::Out { .. } => return None,
            },
        }
        Some(NodeAdmission { share, probe })
    }

    /// Makes a request the probe of the circuit breaker. Returns whether no other one is in flight.
    pub(crate) fn begin_probe(&self, plan: &GroupPlan, now: Instant) -> bool {
        self.change(plan, now, |health| health.begin_probe(now))
            .result
    }

    /// Ends the probe.
    pub(crate) fn end_probe(&self, plan: &GroupPlan, outcome: ProbeOutcome, now: Instant) {
        self.change(plan, now, |health| health.end_probe(plan, outcome, now));
    }

    /// Whether successful requests have to be recorded.
    pub(crate) fn needs_successes(&self) -> bool {
        self.needs_successes.load(Ordering::Relaxed)
    }

    /// Records a successful request.
    pub(crate) fn record_success(&self, plan: &GroupPlan, now: Instant) {
        self.change(plan, now, |health| health.record_success(now));
    }

    /// Records a failed request. The result says whether too many failed in a row, and whether the node went
    /// out.
    pub(crate) fn record_failure(&self, plan: &GroupPlan, now: Instant) -> HealthChange<bool> {
        // Before the lock: the sums walk the counters of all workers.
        let totals = self.counters.sums().totals();
        self.change(plan, now, |health| health.record_failure(plan, totals, now))
    }

    /// Whether the node is ejected.
    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        self.health().is_ejected(now)
    }

    /// Ejects the node.
    pub(crate) fn eject(&self, plan: &GroupPlan, ejection: &EjectionPlan, now: Instant) {
        self.change(plan, now, |health| health.eject(ejection, now));
    }

    /// Records the result of a health check. The result says whether the node went up or down by it, and
    /// whether it went out.
    pub(crate) fn record_check(
        &self,
        plan: &GroupPlan,
        check: &CheckPlan,
        result: HealthCheckResult,
    ) -> HealthChange<bool> {
        let (good, now) = (result.fault.is_none(), result.at);
        let last = self.last_check.lock();
        *last.unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.change(plan, now, |health| health.record_check(check, good, now))
    }

    /// Returns the result of the last health check.
    pub(crate) fn last_check(&self) -> Option<HealthCheckResult> {
        let last = self.last_check.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the admin state.
    pub(crate) fn admin(&self) -> AdminState {
        match self.admin.load(Ordering::Relaxed) {
            drain if drain == AdminState::Drain as u8 => AdminState::Drain,
            down if down == AdminState::Down as u8 => AdminState::Down,
            _ => AdminState::Up,
        }
    }

    /// Sets the admin state. A node that was down starts slowly.
    pub(crate) fn set_admin(&self, plan: &GroupPlan, admin: AdminState, now: Instant) {
        let before = self.admin();
        self.admin.store(admin as u8, Ordering::Relaxed);
        if before == AdminState::Down && admin != AdminState::Down {
            self.change(plan, now, |health| health.set_recovered(now));
        }
    }

    /// Returns the number of requests in flight.
    pub(crate) fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// Counts a request that begins.
    pub(crate) fn add_load(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that ended.
    pub(crate) fn remove_load(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of a change of the health.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HealthChange<T> {
    pub(crate) result: T,
    /// Whether the node was available before and is not now.
    pub(crate) went_out: bool,
}

fn gate(availability: Availability) -> u64 {
    match availability {
        Availability::In(FULL_SHARE) => OPEN,
        Availability::In(_) | Availability::Probe => CHECK_HEALTH,
        Availability::Out { until: None, .. } => CLOSED,
        Availability::Out {
            until: Some(until), ..
        } => nanoseconds(until),
    }
}

/// Returns a time as a number that fits an atomic and is larger than [`CHECK_HEALTH`].
fn nanoseconds(instant: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = instant.saturating_duration_since(*START).as_nanos();
    u64::try_from(since)
        .unwrap_or(CLOSED - 1)
        .saturating_add(CHECK_HEALTH + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::PassivePlan;

    #[test]
    fn opens_the_gate_again_in_time() {
        let plan = GroupPlan {
            passive: Some(PassivePlan {
                max_fails: 2,
                fail_timeout: Duration::from_secs(10),
            }),
            ..GroupPlan::new("app", Vec::new())
        };
        let state = NodeState::new();
        let now = Instant::now();
        let full = Some(NodeAdmission {
            share: FULL_SHARE,
            probe: false,
        });
        assert_eq!(state.admission(&plan, now), full);
        assert!(!state.record_failure(&plan, now).went_out);
        assert!(state.needs_successes());
        assert!(state.record_failure(&plan, now).went_out);
        assert_eq!(state.admission(&plan, now), None);
        let later = now + Duration::from_secs(10);
        assert_eq!(state.admission(&plan, later), full);
        // After that time one failure is enough.
        assert!(state.record_failure(&plan, later).went_out);
        let later = later + Duration::from_secs(10);
        assert_eq!(state.admission(&plan, later), full);
        state.record_success(&plan, later);
        assert!(!state.needs_successes());
    }

    #[test]
    fn forgets_what_a_new_plan_does_not_look_at() {
        let mut plan = GroupPlan::new("app", Vec::new());
        plan.passive = Some(PassivePlan {
            max_fails: 1,
            fail_timeout: Duration::from_secs(3600),
        });
        let state = NodeState::new();
        let now = Instant::now();
        state.record_failure(&plan, now);
        assert_eq!(state.admission(&plan, now), None);
        plan.passive = None;
        state.refresh(&plan, now);
        assert!(state.admission(&plan, now).is_some());
    }
}
