//! The circuit breaker of a node.
//!
//! It is closed while requests succeed, open once too many fail, and half-open after a time: then
//! one request tries the node.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::plan::BreakerPlan;

/// How many times within the window are remembered.
const STEPS: u32 = 16;

/// Requests that a node ended since its counting began, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
}

/// The breaker of one node.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: State,
    window: VecDeque<(Instant, Totals)>,
    /// How many times in a row it opened without closing.
    opened: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Closed,
    Open {
        until: Instant,
    },
    HalfOpen {
        probing: bool,
        answered: u32,
    },
}

/// What a breaker says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may go.
    Yes,
    /// It may go as the one that tries the node; see [`Breaker::begin_probe`].
    Probe,
    /// It may not, until then; or until the probe that is under way has ended.
    No(Option<Instant>),
}

impl Breaker {
    /// What a request is told.
    pub(crate) fn admission(&self, now: Instant) -> Admission {
        match self.state {
            State::Closed => Admission::Yes,
            State::Open { until } if now < until => Admission::No(Some(until)),
            State::HalfOpen { probing: true, .. } => Admission::No(None),
            State::Open { .. } | State::HalfOpen { .. } => Admission::Probe,
        }
    }

    /// Takes the place of the one probe; tells whether it was free.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        if self.admission(now) != Admission::Probe {
            return false;
        }
        let answered = match self.state {
            State::HalfOpen { answered, .. } => answered,
            State::Open { .. } | State::Closed => 0,
        };
        self.state = State::HalfOpen {
            probing: true,
            answered,
        };
        true
    }

    /// The probe ended without telling anything of the node, as when its client went away.
    pub(crate) fn abandon_probe(&mut self) {
        if let State::HalfOpen { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// The probe was answered. Tells whether the breaker closed.
    pub(crate) fn probe_succeeded(&mut self, plan: &BreakerPlan) -> bool {
        let State::HalfOpen { answered, .. } = self.state else {
            return false;
        };
        let answered = answered + 1;
        if answered < plan.probes {
            self.state = State::HalfOpen {
                probing: false,
                answered,
            };
            return false;
        }
        *self = Self::default();
        true
    }

    /// The probe failed: the breaker is open again, for longer.
    pub(crate) fn probe_failed(&mut self, plan: &BreakerPlan, now: Instant) {
        if matches!(self.state, State::HalfOpen { .. }) {
            self.open(plan, now);
        }
    }

    /// A request failed that was no probe; `totals` are those of the node with it. Tells whether the
    /// breaker opened.
    pub(crate) fn failed(&mut self, plan: &BreakerPlan, totals: Totals, now: Instant) -> bool {
        if !matches!(self.state, State::Closed) {
            return false;
        }
        let (requests, failures) = self.rate(plan.window, totals, now);
        let too_many = failures * 100 >= requests * u64::from(plan.percent);
        // And the failure from which on they are counted.
        let opens = requests + 1 >= u64::from(plan.min_requests) && too_many;
        if opens {
            self.open(plan, now);
        }
        opens
    }

    /// Requests and failures since the first failure within the window. Answers cost nothing to count:
    /// they are in the totals when a failure asks for them.
    fn rate(&mut self, window: Duration, totals: Totals, now: Instant) -> (u64, u64) {
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
        let times = 1_u32 << self.opened.min(16);
        let open_for = plan.open_for.saturating_mul(times).min(plan.max_open_for);
        self.opened = self.opened.saturating_add(1);
        self.window.clear();
        self.state = State::Open {
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

    fn totals(requests: u64, failures: u64) -> Totals {
        Totals { requests, failures }
    }

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for count in 1..=3 {
            assert!(!breaker.failed(&PLAN, totals(count, count), now));
        }
        assert!(breaker.failed(&PLAN, totals(4, 4), now));
        breaker
    }

    #[test]
    fn opens_at_the_rate_and_not_for_few_requests() {
        let now = Instant::now();
        let breaker = opened(now);
        assert_eq!(
            breaker.admission(now),
            Admission::No(Some(now + 5 * SECOND))
        );
        assert_eq!(breaker.admission(now + 5 * SECOND), Admission::Probe);
    }

    #[test]
    fn stays_closed_below_the_rate() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for failures in 1..100 {
            // Every third one fails.
            assert!(!breaker.failed(&PLAN, totals(failures * 3, failures), now));
        }
        assert_eq!(breaker.admission(now), Admission::Yes);
    }

    #[test]
    fn is_not_lulled_by_answers_of_long_ago() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!breaker.failed(&PLAN, totals(1_000_001, 1), now));
        assert!(!breaker.failed(&PLAN, totals(1_000_002, 2), now));
        assert!(!breaker.failed(&PLAN, totals(1_000_003, 3), now));
        assert!(breaker.failed(&PLAN, totals(1_000_004, 4), now));
    }

    #[test]
    fn forgets_failures_past_the_window() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for count in 1..20 {
            let at = now + SECOND * 6 * u32::try_from(count).unwrap();
            assert!(!breaker.failed(&PLAN, totals(count, count), at), "{count}");
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
        assert_eq!(breaker.admission(later), Admission::No(None));
        assert!(!breaker.probe_succeeded(&PLAN));
        // The second of two.
        assert!(breaker.begin_probe(later));
        assert!(!breaker.begin_probe(later));
        assert!(breaker.probe_succeeded(&PLAN));
        assert_eq!(breaker.admission(later), Admission::Yes);
    }

    #[test]
    fn gives_the_place_of_an_abandoned_probe_to_the_next() {
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
            assert_eq!(breaker.admission(now), Admission::No(Some(until)));
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
        assert!(!breaker.failed(&PLAN, totals(50, 50), now + SECOND));
        assert_eq!(
            breaker.admission(now + SECOND),
            Admission::No(Some(now + 5 * SECOND))
        );
    }
}
