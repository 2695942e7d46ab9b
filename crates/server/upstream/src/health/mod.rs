//! The health of a node, by passive checks, active checks, the circuit breaker and outlier ejection.

mod active;
mod breaker;
mod ejection;
mod passive;

use std::time::{Duration, Instant};

use active::ActiveHealth;
pub(crate) use active::jittered;
pub(crate) use breaker::RequestTotals;
use breaker::{BreakerAdmission, CircuitBreaker};
pub(crate) use ejection::{ComparisonAction, IntervalTotals, OutlierSchedule, may_eject, outliers};
use passive::PassiveHealth;

use crate::plan::{CheckPlan, EjectionPlan, GroupPlan};

/// The full share of a node, of which slow start gives less.
pub(crate) const FULL_SHARE: u32 = 256;

/// The health of one node. Time is an argument; [`NodeState`](crate::node::NodeState) shares it between threads.
#[derive(Debug, Default)]
pub(crate) struct Health {
    passive: PassiveHealth,
    breaker: CircuitBreaker,
    active: ActiveHealth,
    /// Failures in a row.
    consecutive: u32,
    ejected_until: Option<Instant>,
    /// The number of ejections that are not forgiven yet.
    ejections: u32,
    /// The time at which it was in service for as long as it was ejected, which forgives the ejections.
    forgiven_at: Option<Instant>,
    /// The time at which it came back, or will.
    recovered_at: Option<Instant>,
}

/// Whether a node is available for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It is, with this part of its weight, of [`FULL_SHARE`].
    In(u32),
    /// It is for one request, the probe of its circuit breaker.
    Probe,
    /// It is not.
    Out {
        reason: OutReason,
        /// Until when, if that is known.
        until: Option<Instant>,
    },
}

/// Why a node is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutReason {
    /// Its health checks fail.
    Checks,
    /// Its circuit breaker is open.
    Breaker,
    /// It has more failures than the others of its group.
    Ejected,
    /// Too many of its requests failed.
    Failures,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// The node responded.
    Responded,
    /// The node failed.
    Failed,
    /// There is none, for example because the client closed the connection.
    Abandoned,
}

impl Health {
    /// Returns whether the node is available now.
    pub(crate) fn availability(&self, plan: &GroupPlan, now: Instant) -> Availability {
        let out = |reason, until| Availability::Out { reason, until };
        if plan.active.is_some() && !self.active.is_up() {
            return out(OutReason::Checks, None);
        }
        let admission = match plan.breaker {
            Some(_) => self.breaker.admission(now),
            None => BreakerAdmission::Yes,
        };
        if let BreakerAdmission::No(until) = admission {
            return out(OutReason::Breaker, until);
        }
        if let Some(until) = self.ejected_until.filter(|&until| now < until) {
            return out(OutReason::Ejected, Some(until));
        }
        if plan.passive.is_some()
            && let Some(until) = self.passive.out_until(now)
        {
            return out(OutReason::Failures, Some(until));
        }
        match admission {
            BreakerAdmission::Probe => Availability::Probe,
            _ => Availability::In(self.share(plan.slow_start, now)),
        }
    }

    /// Whether a successful request changes anything and has to be recorded.
    pub(crate) fn needs_successes(&self) -> bool {
        self.consecutive > 0 || self.ejections > 0 || self.passive.is_recovering()
    }

    /// Makes a request the probe of the breaker. Returns whether it may be that.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        self.breaker.begin_probe(now)
    }

    /// Ends the probe of the breaker.
    pub(crate) fn end_probe(&mut self, plan: &GroupPlan, outcome: ProbeOutcome, now: Instant) {
        let Some(breaker) = &plan.breaker else {
            self.breaker = CircuitBreaker::default();
            return;
        };
        match outcome {
            ProbeOutcome::Responded => {
                if self.breaker.probe_succeeded(breaker) {
                    self.set_recovered(now);
                }
            }
            ProbeOutcome::Failed => self.breaker.probe_failed(breaker, now),
            ProbeOutcome::Abandoned => self.breaker.abandon_probe(),
        }
    }

    /// Records a successful request.
    pub(crate) fn record_success(&mut self, now: Instant) {
        self.passive.record_success(now);
        self.consecutive = 0;
        if self.forgiven_at.is_some_and(|at| at <= now) {
            self.forgiven_at = None;
            self.ejections = 0;
        }
    }

    /// Records a failed request; `totals` of the node include it. Returns whether the node may be ejected for
    /// the number that failed in a row.
    pub(crate) fn record_failure(
        &mut self,
        plan: &GroupPlan,
        totals: RequestTotals,
        now: Instant,
    ) -> bool {
        self.consecutive = self.consecutive.saturating_add(1);
        if let Some(passive) = &plan.passive
            && self.passive.record_failure(passive, now)
        {
            self.set_recovered(now + passive.fail_timeout);
        }
        if let Some(breaker) = &plan.breaker {
            self.breaker.record_failure(breaker, totals, now);
        }
        plan.ejection.as_ref().is_some_and(|ejection| {
            ejection.consecutive > 0
                && self.consecutive >= ejection.consecutive
                && !self.is_ejected(now)
        })
    }

    /// Whether the node is ejected.
    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        self.ejected_until.is_some_and(|until| now < until)
    }

    /// Ejects the node.
    pub(crate) fn eject(&mut self, plan: &EjectionPlan, now: Instant) {
        self.ejections = self.ejections.saturating_add(1);
        self.consecutive = 0;
        let ejected_for = ejection::ejected_for(plan, self.ejections);
        let until = now + ejected_for;
        self.ejected_until = Some(until);
        // As long in service as out of it: a node that fails again at once is ejected for longer, one that has
        // recovered begins anew.
        self.forgiven_at = Some(until + ejected_for);
        self.set_recovered(until);
    }

    /// Records the result of a health check. Returns whether the node went up or down by it.
    pub(crate) fn record_check(&mut self, plan: &CheckPlan, good: bool, now: Instant) -> bool {
        let changed = self.active.record(good, plan.rise, plan.fall);
        if changed && good {
            self.set_recovered(now);
        }
        changed
    }

    /// Sets the time from which on the node is back in service and its slow start begins.
    pub(crate) fn set_recovered(&mut self, now: Instant) {
        let later = self.recovered_at.is_none_or(|since| since < now);
        if later {
            self.recovered_at = Some(now);
        }
    }

    /// Returns the part of its weight that it has in its slow start.
    fn share(&self, slow_start: Duration, now: Instant) -> u32 {
        let Some(since) = self.recovered_at.filter(|_| !slow_start.is_zero()) else {
            return FULL_SHARE;
        };
        let passed = now.saturating_duration_since(since).as_secs_f64() / slow_start.as_secs_f64();
        let share = (passed * f64::from(FULL_SHARE)) as u32;
        // At least one: with none, a node would never be tried, and its caches never become warm.
        share.clamp(1, FULL_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{BreakerPlan, CheckKind, PassivePlan};

    const SECOND: Duration = Duration::from_secs(1);

    fn plan() -> GroupPlan {
        GroupPlan {
            passive: Some(PassivePlan {
                max_fails: 1,
                fail_timeout: 10 * SECOND,
            }),
            ..GroupPlan::new("app", Vec::new())
        }
    }

    fn out(reason: OutReason, until: Option<Instant>) -> Availability {
        Availability::Out { reason, until }
    }

    #[test]
    fn gives_a_node_that_comes_back_its_share_slowly() {
        let mut plan = plan();
        plan.slow_start = 100 * SECOND;
        let start = Instant::now();
        let mut health = Health::default();
        assert_eq!(
            health.availability(&plan, start),
            Availability::In(FULL_SHARE)
        );
        health.record_failure(&plan, RequestTotals::default(), start);
        let back = start + 10 * SECOND;
        assert_eq!(
            health.availability(&plan, start),
            out(OutReason::Failures, Some(back))
        );
        for (seconds, share) in [(0, 1), (25, 64), (50, 128), (100, 256), (500, 256)] {
            assert_eq!(
                health.availability(&plan, back + SECOND * seconds),
                Availability::In(share)
            );
        }
    }

    #[test]
    fn lets_checks_decide_before_all_else() {
        let mut plan = plan();
        let check = CheckPlan {
            fall: 1,
            rise: 1,
            ..CheckPlan::new(CheckKind::Connect)
        };
        plan.active = Some(check.clone());
        let now = Instant::now();
        let mut health = Health::default();
        health.record_failure(&plan, RequestTotals::default(), now);
        assert!(health.record_check(&check, false, now));
        assert_eq!(
            health.availability(&plan, now),
            out(OutReason::Checks, None)
        );
        assert!(health.record_check(&check, true, now));
        assert!(matches!(
            health.availability(&plan, now),
            Availability::Out {
                reason: OutReason::Failures,
                ..
            }
        ));
        // A plan without checks ignores their results.
        health.record_check(&check, false, now);
        plan.active = None;
        assert_eq!(
            health.availability(&plan, now + 10 * SECOND),
            Availability::In(FULL_SHARE)
        );
    }

    #[test]
    fn lets_one_request_find_out_whether_an_open_breaker_may_close() {
        let mut plan = plan();
        plan.passive = None;
        plan.breaker = Some(BreakerPlan {
            min_requests: 1,
            open_for: 5 * SECOND,
            ..BreakerPlan::default()
        });
        let start = Instant::now();
        let later = start + 5 * SECOND;
        let mut health = Health::default();
        let failed = RequestTotals {
            requests: 1,
            failures: 1,
        };
        health.record_failure(&plan, failed, start);
        assert_eq!(
            health.availability(&plan, start),
            out(OutReason::Breaker, Some(later))
        );
        assert_eq!(health.availability(&plan, later), Availability::Probe);
        assert!(health.begin_probe(later) && !health.begin_probe(later));
        assert_eq!(
            health.availability(&plan, later),
            out(OutReason::Breaker, None)
        );
        health.end_probe(&plan, ProbeOutcome::Abandoned, later);
        assert!(health.begin_probe(later));
        health.end_probe(&plan, ProbeOutcome::Responded, later);
        assert_eq!(
            health.availability(&plan, later),
            Availability::In(FULL_SHARE)
        );
    }

    #[test]
    fn ejects_after_failures_in_a_row_and_longer_each_time() {
        let mut plan = plan();
        plan.passive = None;
        let ejection = EjectionPlan {
            consecutive: 2,
            time: 10 * SECOND,
            ..EjectionPlan::default()
        };
        plan.ejection = Some(ejection);
        let now = Instant::now();
        let mut health = Health::default();
        assert!(!health.record_failure(&plan, RequestTotals::default(), now));
        health.record_success(now);
        assert!(!health.record_failure(&plan, RequestTotals::default(), now));
        assert!(health.record_failure(&plan, RequestTotals::default(), now));
        health.eject(&ejection, now);
        let until = now + 10 * SECOND;
        assert_eq!(
            health.availability(&plan, now),
            out(OutReason::Ejected, Some(until))
        );
        // Neither responses to earlier requests nor the first response after the ejection forgive it.
        health.record_success(now);
        health.record_success(until);
        health.eject(&ejection, until);
        let back = until + 20 * SECOND;
        assert!(health.is_ejected(back - SECOND) && !health.is_ejected(back));
        assert!(health.needs_successes());
        // Being in service for as long as it was ejected does.
        health.record_success(back + 19 * SECOND);
        assert!(health.needs_successes());
        health.record_success(back + 20 * SECOND);
        assert!(!health.needs_successes());
        health.eject(&ejection, back);
        assert!(!health.is_ejected(back + 10 * SECOND));
    }
}
