//! A node as all threads see it: what its plan says, and what is known of it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use apus_net::client::{Address, Origin};

use crate::counts::{Counts, NodeCounts};
use crate::health::{FULL_SHARE, Health, Outcome, Verdict};
use crate::plan::{Admin, CheckPlan, EjectionPlan, GroupPlan};
use crate::pool::Parked;
use crate::queue::{NodeId, Offer};

/// A node of a group, as its plan and the last lookup of its name have it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) origin: Origin,
    /// What the `Host` of requests is that are for nobody else, such as checks.
    pub(crate) authority: Box<str>,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    /// 0: any number.
    pub(crate) max_requests: u32,
    /// What a sticky cookie says for it.
    pub(crate) route: Box<str>,
    pub(crate) plan: Arc<GroupPlan>,
    pub(crate) state: Arc<NodeState>,
}

/// What stays of a node when configurations come and go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeKey {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
}

impl Node {
    /// Whether it takes a request; `None`: no. The answer to nearly all is read from one number.
    pub(crate) fn admission(&self, now: Instant) -> Option<Admitted> {
        self.state.admission(&self.plan, now)
    }

    /// What is known of its health.
    pub(crate) fn verdict(&self, now: Instant) -> Verdict {
        self.state.health().verdict(&self.plan, now)
    }

    /// Whether it has room for one more request. Asked and changed while the group's line is locked.
    pub(crate) fn has_room(&self) -> bool {
        self.max_requests == 0 || self.state.taken.load(Ordering::Relaxed) < self.max_requests
    }

    /// Takes one place.
    pub(crate) fn take_place(&self) {
        self.state.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// What a free place at it offers to those who wait: `None` while it is not to be asked, or has
    /// fewer places now than are taken.
    pub(crate) fn offer(&self, now: Instant) -> Option<Offer> {
        let admin = self.state.admin();
        let is_asked = admin != Admin::Down
            && self.state.taken.load(Ordering::Relaxed) <= self.max_requests
            && matches!(self.admission(now), Some(Admitted { probe: false, .. }));
        is_asked.then_some(Offer {
            node: self.state.id(),
            backup: self.backup,
            draining: admin == Admin::Drain,
        })
    }

    /// Gives one place back.
    pub(crate) fn free_place(&self) {
        self.state.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The part of the weight that counts, of [`FULL_SHARE`].
    pub(crate) share: u32,
    /// Whether it is to be the one that tries the node; see [`NodeState::begin_probe`].
    pub(crate) probe: bool,
}

/// What all threads know of a node.
#[derive(Debug)]
pub(crate) struct NodeState {
    id: NodeId,
    /// Whether requests may pass: one of the [gates](OPEN), or the time at which to ask again.
    gate: AtomicU64,
    /// Whether answers have to be told to `health`, too.
    watched: AtomicBool,
    admin: AtomicU8,
    /// Open requests of all workers; counted if the strategy compares them.
    load: AtomicU32,
    /// Places taken, if their number is limited.
    taken: AtomicU32,
    health: Mutex<Health>,
    last_check: Mutex<Option<CheckResult>>,
    /// Connections of FastCGI that wait.
    pub(crate) parked: Arc<Parked>,
    pub(crate) counts: Counts<NodeCounts>,
}

/// What the last active check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// When it ended.
    pub at: Instant,
    /// What was wrong; `None`: nothing.
    pub fault: Option<Box<str>>,
}

/// The gate lets all pass.
const OPEN: u64 = 0;
/// The health has to be asked.
const ASK: u64 = 1;
/// The gate lets nobody pass.
const SHUT: u64 = u64::MAX;

impl NodeState {
    /// A node of which nothing is known.
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            gate: AtomicU64::new(OPEN),
            watched: AtomicBool::new(false),
            admin: AtomicU8::new(Admin::Up as u8),
            load: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            health: Mutex::default(),
            last_check: Mutex::default(),
            parked: Arc::default(),
            counts: Counts::default(),
        }
    }

    /// The number of this node.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and the gate with it. Tells whether the node went out.
    fn change<T>(
        &self,
        plan: &GroupPlan,
        now: Instant,
        change: impl FnOnce(&mut Health) -> T,
    ) -> Changed<T> {
        let mut health = self.health();
        let result = change(&mut health);
        let verdict = health.verdict(plan, now);
        let before = self.gate.swap(gate(verdict), Ordering::Relaxed);
        self.watched.store(health.is_watched(), Ordering::Relaxed);
        let is_out = matches!(verdict, Verdict::Out { .. });
        Changed {
            result,
            went_out: is_out && before <= ASK,
        }
    }

    /// Sets the gate by the plan.
    pub(crate) fn refresh(&self, plan: &GroupPlan, now: Instant) {
        self.change(plan, now, |_| ());
    }

    fn admission(&self, plan: &GroupPlan, now: Instant) -> Option<Admitted> {
        let mut share = FULL_SHARE;
        let mut probe = false;
        match self.gate.load(Ordering::Relaxed) {
            OPEN => {}
            until if until > ASK && nanoseconds(now) < until => return None,
            _ => match self
                .change(plan, now, |health| health.verdict(plan, now))
                .result
            {
                Verdict::In(part) => share = part,
                Verdict::Probe => probe = true,
                Verdict::Out { .. } => return None,
            },
        }
        Some(Admitted { share, probe })
    }

    /// Takes the place of the one request that tries the node; tells whether it was free.
    pub(crate) fn begin_probe(&self, plan: &GroupPlan, now: Instant) -> bool {
        self.change(plan, now, |health| health.begin_probe(now))
            .result
    }

    /// That request ended.
    pub(crate) fn probe_ended(&self, plan: &GroupPlan, outcome: Outcome, now: Instant) {
        self.change(plan, now, |health| health.probe_ended(plan, outcome, now));
    }

    /// Whether answers have to be told.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// The node answered.
    pub(crate) fn succeeded(&self, plan: &GroupPlan, now: Instant) {
        self.change(plan, now, |health| health.succeeded(now));
    }

    /// The node failed. Tells whether that was once too often in a row, and whether it went out.
    pub(crate) fn failed(&self, plan: &GroupPlan, now: Instant) -> Changed<bool> {
        let totals = self.counts.sums().totals();
        self.change(plan, now, |health| health.failed(plan, totals, now))
    }

    /// Whether the node is ejected.
    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        self.health().is_ejected(now)
    }

    /// Ejects it.
    pub(crate) fn eject(&self, plan: &GroupPlan, ejection: &EjectionPlan, now: Instant) {
        self.change(plan, now, |health| health.eject(ejection, now));
    }

    /// Takes the result of an active check. Tells whether its standing changed, and whether the node
    /// went out.
    pub(crate) fn checked(
        &self,
        plan: &GroupPlan,
        check: &CheckPlan,
        result: CheckResult,
    ) -> Changed<bool> {
        let (good, now) = (result.fault.is_none(), result.at);
        let last = self.last_check.lock();
        *last.unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.change(plan, now, |health| health.checked(check, good, now))
    }

    /// What the last check found.
    pub(crate) fn last_check(&self) -> Option<CheckResult> {
        let last = self.last_check.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the node is to be asked.
    pub(crate) fn admin(&self) -> Admin {
        match self.admin.load(Ordering::Relaxed) {
            drain if drain == Admin::Drain as u8 => Admin::Drain,
            down if down == Admin::Down as u8 => Admin::Down,
            _ => Admin::Up,
        }
    }

    /// Sets whether the node is to be asked. One that is put up again starts slowly.
    pub(crate) fn set_admin(&self, plan: &GroupPlan, admin: Admin, now: Instant) {
        let before = self.admin();
        self.admin.store(admin as u8, Ordering::Relaxed);
        if before == Admin::Down && admin != Admin::Down {
            self.change(plan, now, |health| health.comes_back(now));
        }
    }

    /// Open requests.
    pub(crate) fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// Counts a request as open.
    pub(crate) fn add_load(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request as over.
    pub(crate) fn remove_load(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a change led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed<T> {
    pub(crate) result: T,
    /// Whether the node was asked before and is not now.
    pub(crate) went_out: bool,
}

fn gate(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::In(FULL_SHARE) => OPEN,
        Verdict::In(_) | Verdict::Probe => ASK,
        Verdict::Out { until: None, .. } => SHUT,
        Verdict::Out {
            until: Some(until), ..
        } => nanoseconds(until),
    }
}

/// Time as a number that fits an atomic; more than [`ASK`].
fn nanoseconds(instant: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = instant.saturating_duration_since(*START).as_nanos();
    u64::try_from(since)
        .unwrap_or(SHUT - 1)
        .saturating_add(ASK + 1)
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
        let full = Some(Admitted {
            share: FULL_SHARE,
            probe: false,
        });
        assert_eq!(state.admission(&plan, now), full);
        assert!(!state.failed(&plan, now).went_out);
        assert!(state.is_watched());
        assert!(state.failed(&plan, now).went_out);
        assert_eq!(state.admission(&plan, now), None);
        let later = now + Duration::from_secs(10);
        assert_eq!(state.admission(&plan, later), full);
        // On trial: one failure is enough.
        assert!(state.failed(&plan, later).went_out);
        let later = later + Duration::from_secs(10);
        assert_eq!(state.admission(&plan, later), full);
        state.succeeded(&plan, later);
        assert!(!state.is_watched());
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
        state.failed(&plan, now);
        assert_eq!(state.admission(&plan, now), None);
        plan.passive = None;
        state.refresh(&plan, now);
        assert!(state.admission(&plan, now).is_some());
    }
}
