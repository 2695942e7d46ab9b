//! The health of a node: passive checks, active checks, the circuit breaker, outlier ejection.
//!
//! These are state and rules without clocks; [`NodeState`](crate::node) shares them between
//! threads.

mod breaker;
mod checked;
mod ejection;
mod passive;

use std::time::{Duration, Instant};

pub(crate) use breaker::Totals;
use breaker::{Admission, Breaker};
use checked::Checked;
pub(crate) use checked::jittered;
pub(crate) use ejection::{Due, Outliers, Share, may_eject, outliers};
use passive::Passive;

use crate::plan::{CheckPlan, EjectionPlan, GroupPlan};

/// The full share of a node, of which slow start gives less.
pub(crate) const FULL_SHARE: u32 = 256;

/// What is known of one node.
#[derive(Debug, Default)]
pub(crate) struct Health {
    passive: Passive,
    breaker: Breaker,
    checked: Checked,
    /// Failures in a row.
    consecutive: u32,
    ejected_until: Option<Instant>,
    /// How often it was ejected without having stayed for as long since.
    ejections: u32,
    /// When it will have stayed for as long as it was ejected.
    proved_at: Option<Instant>,
    /// When it came back, or will.
    back_since: Option<Instant>,
}

/// Whether a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is, with this part of its weight, of [`FULL_SHARE`].
    In(u32),
    /// One request is to find out.
    Probe,
    /// It is not.
    Out {
        why: Reason,
        /// Until when, if that is known.
        until: Option<Instant>,
    },
}

/// Why a node is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its checks fail.
    Checks,
    /// Its circuit breaker is open.
    Breaker,
    /// It is worse than the others of its group.
    Ejected,
    /// Too many requests failed.
    Failures,
}

/// How an attempt ended, for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It answered.
    Answered,
    /// It failed.
    Failed,
    /// It says nothing of the node, as when the client went away.
    Nothing,
}

impl Health {
    /// Whether the node is asked now.
    pub(crate) fn verdict(&self, plan: &GroupPlan, now: Instant) -> Verdict {
        let out = |why, until| Verdict::Out { why, until };
        if plan.active.is_some() && !self.checked.is_up() {
            return out(Reason::Checks, None);
        }
        let admission = match plan.breaker {
            Some(_) => self.breaker.admission(now),
            None => Admission::Yes,
        };
        if let Admission::No(until) = admission {
            return out(Reason::Breaker, until);
        }
        if let Some(until) = self.ejected_until.filter(|&until| now < until) {
            return out(Reason::Ejected, Some(until));
        }
        if plan.passive.is_some()
            && let Some(until) = self.passive.out_until(now)
        {
            return out(Reason::Failures, Some(until));
        }
        match admission {
            Admission::Probe => Verdict::Probe,
            _ => Verdict::In(self.share(plan.slow_start, now)),
        }
    }

    /// Whether an answered request changes anything, and so has to be told.
    pub(crate) fn is_watched(&self) -> bool {
        self.consecutive > 0 || self.ejections > 0 || self.passive.is_noted()
    }

    /// Takes the place of the breaker's one probe; tells whether it was free.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        self.breaker.begin_probe(now)
    }

    /// The breaker's probe ended.
    pub(crate) fn probe_ended(&mut self, plan: &GroupPlan, outcome: Outcome, now: Instant) {
        let Some(breaker) = &plan.breaker else {
            self.breaker = Breaker::default();
            return;
        };
        match outcome {
            Outcome::Answered => {
                if self.breaker.probe_succeeded(breaker) {
                    self.comes_back(now);
                }
            }
            Outcome::Failed => self.breaker.probe_failed(breaker, now),
            Outcome::Nothing => self.breaker.abandon_probe(),
        }
    }

    /// A request was answered.
    pub(crate) fn succeeded(&mut self, now: Instant) {
        self.passive.succeeded(now);
        self.consecutive = 0;
        if self.proved_at.is_some_and(|at| at <= now) {
            self.proved_at = None;
            self.ejections = 0;
        }
    }

    /// A request failed, of a node that ended `totals` with it. Tells whether so many failed in a row
    /// that it may be ejected.
    pub(crate) fn failed(&mut self, plan: &GroupPlan, totals: Totals, now: Instant) -> bool {
        self.consecutive = self.consecutive.saturating_add(1);
        if let Some(passive) = &plan.passive
            && self.passive.failed(passive, now)
        {
            self.comes_back(now + passive.fail_timeout);
        }
        if let Some(breaker) = &plan.breaker {
            self.breaker.failed(breaker, totals, now);
        }
        plan.ejection.as_ref().is_some_and(|ejection| {
            ejection.consecutive > 0
                && self.consecutive >= ejection.consecutive
                && !self.is_ejected(now)
        })
    }

    /// Whether it is ejected.
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
        self.proved_at = Some(until + ejected_for);
        self.comes_back(until);
    }

    /// Takes the result of a check. Tells whether the standing changed.
    pub(crate) fn checked(&mut self, plan: &CheckPlan, good: bool, now: Instant) -> bool {
        let changed = self.checked.result(good, plan.rise, plan.fall);
        if changed && good {
            self.comes_back(now);
        }
        changed
    }

    /// The node is asked again from `now` on, and slowly at first.
    pub(crate) fn comes_back(&mut self, now: Instant) {
        let later = self.back_since.is_none_or(|since| since < now);
        if later {
            self.back_since = Some(now);
        }
    }

    /// The part of its weight that it has since it came back.
    fn share(&self, slow_start: Duration, now: Instant) -> u32 {
        let Some(since) = self.back_since.filter(|_| !slow_start.is_zero()) else {
            return FULL_SHARE;
        };
        let passed = now.saturating_duration_since(since).as_secs_f64() / slow_start.as_secs_f64();
        let share = (passed * f64::from(FULL_SHARE)) as u32;
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

    fn out(why: Reason, until: Option<Instant>) -> Verdict {
        Verdict::Out { why, until }
    }

    #[test]
    fn gives_a_node_that_comes_back_its_share_slowly() {
        let mut plan = plan();
        plan.slow_start = 100 * SECOND;
        let start = Instant::now();
        let mut health = Health::default();
        assert_eq!(health.verdict(&plan, start), Verdict::In(FULL_SHARE));
        health.failed(&plan, Totals::default(), start);
        let back = start + 10 * SECOND;
        assert_eq!(
            health.verdict(&plan, start),
            out(Reason::Failures, Some(back))
        );
        for (seconds, share) in [(0, 1), (25, 64), (50, 128), (100, 256), (500, 256)] {
            assert_eq!(
                health.verdict(&plan, back + SECOND * seconds),
                Verdict::In(share)
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
        health.failed(&plan, Totals::default(), now);
        assert!(health.checked(&check, false, now));
        assert_eq!(health.verdict(&plan, now), out(Reason::Checks, None));
        assert!(health.checked(&check, true, now));
        assert!(matches!(
            health.verdict(&plan, now),
            Verdict::Out {
                why: Reason::Failures,
                ..
            }
        ));
        // A plan without checks does not look at what they said.
        health.checked(&check, false, now);
        plan.active = None;
        assert_eq!(
            health.verdict(&plan, now + 10 * SECOND),
            Verdict::In(FULL_SHARE)
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
        let failed = Totals {
            requests: 1,
            failures: 1,
        };
        health.failed(&plan, failed, start);
        assert_eq!(
            health.verdict(&plan, start),
            out(Reason::Breaker, Some(later))
        );
        assert_eq!(health.verdict(&plan, later), Verdict::Probe);
        assert!(health.begin_probe(later) && !health.begin_probe(later));
        assert_eq!(health.verdict(&plan, later), out(Reason::Breaker, None));
        health.probe_ended(&plan, Outcome::Nothing, later);
        assert!(health.begin_probe(later));
        health.probe_ended(&plan, Outcome::Answered, later);
        assert_eq!(health.verdict(&plan, later), Verdict::In(FULL_SHARE));
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
        assert!(!health.failed(&plan, Totals::default(), now));
        health.succeeded(now);
        assert!(!health.failed(&plan, Totals::default(), now));
        assert!(health.failed(&plan, Totals::default(), now));
        health.eject(&ejection, now);
        let until = now + 10 * SECOND;
        assert_eq!(
            health.verdict(&plan, now),
            out(Reason::Ejected, Some(until))
        );
        // Neither answers to requests from before nor the first one after it change that.
        health.succeeded(now);
        health.succeeded(until);
        health.eject(&ejection, until);
        let back = until + 20 * SECOND;
        assert!(health.is_ejected(back - SECOND) && !health.is_ejected(back));
        assert!(health.is_watched());
        // Having stayed for as long does.
        health.succeeded(back + 19 * SECOND);
        assert!(health.is_watched());
        health.succeeded(back + 20 * SECOND);
        assert!(!health.is_watched());
        health.eject(&ejection, back);
        assert!(!health.is_ejected(back + 10 * SECOND));
    }
}
