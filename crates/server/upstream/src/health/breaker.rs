//! The circuit breaker of a node.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::plan::BreakerPlan;

/// The number of samples within the window.
// Samples and not a list of requests: a node with thousands of failures a second costs as much as one with few.
const STEPS: u32 = 16;

/// The requests of a node that ended since the start, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTotals {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
}

/// The circuit breaker of one node. It is closed while requests succeed, open after too many failures, and
/// half-open after a time: then one request is sent as a probe.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    state: BreakerState,
    window: VecDeque<(Instant, RequestTotals)>,
    /// The number of times that it opened since it was closed.
    opened: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum BreakerState {
    #[default]
    Closed,
    Open {
        until: Instant,
    },
    HalfOpen {
        probing: bool,
        succeeded: u32,
    },
}

/// Whether a circuit breaker admits a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerAdmission {
    /// It does.
    Yes,
    /// It does if the request is the probe; see [`CircuitBreaker::begin_probe`].
    Probe,
    /// It does not, until then; or until the probe that is in flight has ended.
    No(Option<Instant>),
}

impl CircuitBreaker {
    /// Returns whether a request is admitted.
    pub(crate) fn admission(&self, now: Instant) -> BreakerAdmission {
        match self.state {
            BreakerState::Closed => BreakerAdmission::Yes,
            BreakerState::Open { until } if now < until => BreakerAdmission::No(Some(until)),
            BreakerState::HalfOpen { probing: true, .. } => BreakerAdmission::No(None),
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => BreakerAdmission::Probe,
        }
    }

    /// Makes a request the probe. Returns whether it may be that.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        if self.admission(now) != BreakerAdmission::Probe {
            return false;
        }
        let succeeded = match self.state {
            BreakerState::HalfOpen { succeeded, .. } => succeeded,
            BreakerState::Open { .. } | BreakerState::Closed => 0,
        };
        self.state = BreakerState::HalfOpen {
            probing: true,
            succeeded,
        };
        true
    }

    /// Ends the probe without a result, for example after its client closed the connection.
    pub(crate) fn abandon_probe(&mut self) {
        if let BreakerState::HalfOpen { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// Ends the probe after a response. Returns whether the breaker closed.
    pub(crate) fn probe_succeeded(&mut self, plan: &BreakerPlan) -> bool {
        let BreakerState::HalfOpen { succeeded, .. } = self.state else {
            return false;
        };
        let succeeded = succeeded + 1;
        if succeeded < plan.probes {
            self.state = BreakerState::HalfOpen {
                probing: false,
                succeeded,
            };
            return false;
        }
        *self = Self::default();
        true
    }

    /// Ends the probe after a failure: the breaker is open again, for longer.
    pub(crate) fn probe_failed(&mut self, plan: &BreakerPlan, now: Instant) {
        if matches!(self.state, BreakerState::HalfOpen { .. }) {
            self.open(plan, now);
        }
    }

    /// Records the failure of a request that is no probe; `totals` of the node include it. Returns whether the
    /// breaker opened.
    pub(crate) fn record_failure(
        &mut self,
        plan: &BreakerPlan,
        totals: RequestTotals,
        now: Instant,
    ) -> bool {
        // Requests that began before it opened still fail: they must not open it again, for longer.
        if !matches!(self.state, BreakerState::Closed) {
            return false;
        }
        let (requests, failures) = self.rate(plan.window, totals, now);
        let too_many = failures * 100 >= requests * u64::from(plan.percent);
        // The first failure of the window is not in the difference of the totals.
        let opens = requests + 1 >= u64::from(plan.min_requests) && too_many;
        if opens {
            self.open(plan, now);
        }
        opens
    }

    /// Returns the requests and failures since the first failure within the window. Successful requests need
    /// no call: they are in the totals of the next failure.
    fn rate(&mut self, window: Duration, totals: RequestTotals, now: Instant) -> (u64, u64) {
        while let Some(&(at, _)) = self.window.front()
            && now.saturating_duration_since(at) > window
        {
            self.window.pop_front();
        }
        let is_new = self
            .window
            .back()
            .is_none_or(|&(at, _)| now.saturating_duration_since(at) >= window / STEPS);
        if is_new {
            self.window.push_back((now, totals));
        }
        let since = self.window.front().map_or(totals, |&(_, totals)| totals);
        (
            totals.requests.saturating_sub(since.requests),
            totals.failures.saturating_sub(since.failures),
        )
    }

    fn open(&mut self, plan: &BreakerPlan, now: Instant) {
        // Doubled, so that a node that is down for an hour is not asked every five seconds; the plan has the longest
        // time.
        let times = 1_u32 << self.opened.min(16);
        let open_for = plan.open_for.saturating_mul(times).min(plan.max_open_for);
        self.opened = self.opened.saturating_add(1);
        self.window.clear();
        self.state = BreakerState::Open {
            until: now + open_for.max(plan.open_for),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PLAN: BreakerPlan = BreakerPlan {
        percent: 50,
        min_requests: 4,
        window: Duration::from_secs(10),
        open_for: Duration::from_secs(5),
        max_open_for: Duration::from_secs(15),
        probes: 2,
    };

    fn totals(requests: u64, failures: u64) -> RequestTotals {
        RequestTotals { requests, failures }
    }

    fn opened(now: Instant) -> CircuitBreaker {
        let mut breaker = CircuitBreaker::default();
        for count in 1..=3 {
            assert!(!breaker.record_failure(&PLAN, totals(count, count), now));
        }
        assert!(breaker.record_failure(&PLAN, totals(4, 4), now));
        breaker
    }

    #[test]
    fn opens_at_the_rate_and_not_for_few_requests() {
        let now = Instant::now();
        let breaker = opened(now);
        assert_eq!(
            breaker.admission(now),
            BreakerAdmission::No(Some(now + 5 * SECOND))
        );
        assert_eq!(breaker.admission(now + 5 * SECOND), BreakerAdmission::Probe);
    }

    #[test]
    fn stays_closed_below_the_rate() {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::default();
        for failures in 1..100 {
            // Every third one fails.
            assert!(!breaker.record_failure(&PLAN, totals(failures * 3, failures), now));
        }
        assert_eq!(breaker.admission(now), BreakerAdmission::Yes);
    }

    #[test]
    fn ignores_responses_before_the_first_failure() {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::default();
        assert!(!breaker.record_failure(&PLAN, totals(1_000_001, 1), now));
        assert!(!breaker.record_failure(&PLAN, totals(1_000_002, 2), now));
        assert!(!breaker.record_failure(&PLAN, totals(1_000_003, 3), now));
        assert!(breaker.record_failure(&PLAN, totals(1_000_004, 4), now));
    }

    #[test]
    fn forgets_failures_past_the_window() {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::default();
        for count in 1..20 {
            let at = now + SECOND * 6 * u32::try_from(count).unwrap();
            assert!(
                !breaker.record_failure(&PLAN, totals(count, count), at),
                "{count}"
            );
        }
    }

    #[test]
    fn lets_one_probe_through_at_a_time() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + 5 * SECOND;
        assert!(!breaker.begin_probe(now));
        assert!(breaker.begin_probe(later));
        assert!(!breaker.begin_probe(later));
        assert_eq!(breaker.admission(later), BreakerAdmission::No(None));
        assert!(!breaker.probe_succeeded(&PLAN));
        // The second of two.
        assert!(breaker.begin_probe(later));
        assert!(!breaker.begin_probe(later));
        assert!(breaker.probe_succeeded(&PLAN));
        assert_eq!(breaker.admission(later), BreakerAdmission::Yes);
    }

    #[test]
    fn allows_another_probe_after_an_abandoned_one() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + 5 * SECOND;
        assert!(breaker.begin_probe(later));
        breaker.abandon_probe();
        assert!(breaker.begin_probe(later));
    }

    #[test]
    fn stays_open_longer_each_time_up_to_the_most() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for seconds in [5, 10, 15, 15] {
            let until = now + SECOND * seconds;
            assert_eq!(breaker.admission(now), BreakerAdmission::No(Some(until)));
            now = until;
            assert!(breaker.begin_probe(now));
            breaker.probe_failed(&PLAN, now);
        }
        assert!(breaker.begin_probe(now + 15 * SECOND));
        breaker.probe_succeeded(&PLAN);
        assert!(breaker.begin_probe(now + 15 * SECOND));
        assert!(breaker.probe_succeeded(&PLAN));
        assert_eq!(opened(now).opened, 1);
    }

    #[test]
    fn ignores_late_failures_while_open() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert!(!breaker.record_failure(&PLAN, totals(50, 50), now + SECOND));
        assert_eq!(
            breaker.admission(now + SECOND),
            BreakerAdmission::No(Some(now + 5 * SECOND))
        );
    }
}
