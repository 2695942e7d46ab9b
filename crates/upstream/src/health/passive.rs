//! Passive health checks: a node that fails too often is not asked for a time.

use std::collections::VecDeque;
use std::time::Instant;

use crate::plan::PassivePlan;

/// What is remembered of one node's failures.
#[derive(Debug, Default)]
pub(crate) struct Passive {
    failures: VecDeque<Instant>,
    out_until: Option<Instant>,
}

impl Passive {
    /// A request failed. Tells whether the node is left alone from now on.
    pub(crate) fn failed(&mut self, plan: &PassivePlan, now: Instant) -> bool {
        if self.out_until.is_some_and(|until| now < until) {
            return false;
        }
        while let Some(&oldest) = self.failures.front()
            && now.saturating_duration_since(oldest) > plan.fail_timeout
        {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        if self.failures.len() < plan.max_fails as usize && !self.is_on_trial(now) {
            return false;
        }
        self.failures.clear();
        self.out_until = Some(now + plan.fail_timeout);
        true
    }

    /// A request was answered: a node that was left alone has proved itself. Tells whether that was
    /// so.
    pub(crate) fn succeeded(&mut self, now: Instant) -> bool {
        let proved = self.is_on_trial(now);
        if proved {
            self.out_until = None;
        }
        proved
    }

    /// Until when the node is left alone.
    pub(crate) fn out_until(&self, now: Instant) -> Option<Instant> {
        self.out_until.filter(|&until| now < until)
    }

    /// Whether the node was left alone and has not answered since.
    pub(crate) fn is_noted(&self) -> bool {
        self.out_until.is_some()
    }

    /// Whether that time is over: one more failure is enough.
    fn is_on_trial(&self, now: Instant) -> bool {
        self.out_until.is_some_and(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PLAN: PassivePlan = PassivePlan {
        max_fails: 3,
        fail_timeout: Duration::from_secs(10),
    };
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn leaves_a_node_alone_after_max_fails_within_the_time() {
        let start = Instant::now();
        let mut passive = Passive::default();
        assert!(!passive.failed(&PLAN, start));
        assert!(!passive.failed(&PLAN, start + 5 * SECOND));
        // The first one is past.
        assert!(!passive.failed(&PLAN, start + 11 * SECOND));
        assert_eq!(passive.out_until(start + 11 * SECOND), None);
        assert!(passive.failed(&PLAN, start + 12 * SECOND));
        let until = Some(start + 22 * SECOND);
        assert_eq!(passive.out_until(start + 12 * SECOND), until);
        // Requests that were open then change nothing.
        assert!(!passive.failed(&PLAN, start + 20 * SECOND));
        assert_eq!(passive.out_until(start + 20 * SECOND), until);
        assert_eq!(passive.out_until(start + 22 * SECOND), None);
    }

    #[test]
    fn needs_one_failure_on_trial_and_all_after_an_answer() {
        let start = Instant::now();
        let mut passive = Passive::default();
        for _ in 0..3 {
            passive.failed(&PLAN, start);
        }
        assert!(passive.is_on_trial(start + 10 * SECOND));
        assert!(passive.failed(&PLAN, start + 10 * SECOND));
        assert!(!passive.succeeded(start + 11 * SECOND));
        assert!(passive.succeeded(start + 20 * SECOND));
        assert!(!passive.failed(&PLAN, start + 21 * SECOND));
    }
}
