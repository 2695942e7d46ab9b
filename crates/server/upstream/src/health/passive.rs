//! Passive health checks: a node with too many failed requests is out of service for a time.

use std::collections::VecDeque;
use std::time::Instant;

use crate::plan::PassivePlan;

/// The state of one node by its failed requests.
#[derive(Debug, Default)]
pub(crate) struct PassiveHealth {
    failures: VecDeque<Instant>,
    out_until: Option<Instant>,
}

impl PassiveHealth {
    /// Records a failed request. Returns whether the node goes out of service by it.
    pub(crate) fn record_failure(&mut self, plan: &PassivePlan, now: Instant) -> bool {
        // Requests that were on their way when it went out do not keep it out for longer.
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

    /// Records a successful request. Returns whether it was the first one after the node was out of service.
    pub(crate) fn record_success(&mut self, now: Instant) -> bool {
        let recovered = self.is_on_trial(now);
        if recovered {
            self.out_until = None;
        }
        recovered
    }

    /// Returns until when the node is out of service.
    pub(crate) fn out_until(&self, now: Instant) -> Option<Instant> {
        self.out_until.filter(|&until| now < until)
    }

    /// Whether the node was out of service and has not responded since.
    pub(crate) fn is_recovering(&self) -> bool {
        self.out_until.is_some()
    }

    /// Whether the node is back but has not responded yet: one more failure takes it out again.
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
    fn takes_a_node_out_after_max_fails_within_the_time() {
        let start = Instant::now();
        let mut passive = PassiveHealth::default();
        assert!(!passive.record_failure(&PLAN, start));
        assert!(!passive.record_failure(&PLAN, start + 5 * SECOND));
        // The first failure has expired.
        assert!(!passive.record_failure(&PLAN, start + 11 * SECOND));
        assert_eq!(passive.out_until(start + 11 * SECOND), None);
        assert!(passive.record_failure(&PLAN, start + 12 * SECOND));
        let until = Some(start + 22 * SECOND);
        assert_eq!(passive.out_until(start + 12 * SECOND), until);
        // Requests that were in flight then change nothing.
        assert!(!passive.record_failure(&PLAN, start + 20 * SECOND));
        assert_eq!(passive.out_until(start + 20 * SECOND), until);
        assert_eq!(passive.out_until(start + 22 * SECOND), None);
    }

    #[test]
    fn needs_one_failure_after_that_time_and_all_after_a_response() {
        let start = Instant::now();
        let mut passive = PassiveHealth::default();
        for _ in 0..3 {
            passive.record_failure(&PLAN, start);
        }
        assert!(passive.is_on_trial(start + 10 * SECOND));
        assert!(passive.record_failure(&PLAN, start + 10 * SECOND));
        assert!(!passive.record_success(start + 11 * SECOND));
        assert!(passive.record_success(start + 20 * SECOND));
        assert!(!passive.record_failure(&PLAN, start + 21 * SECOND));
    }
}
