//! The retry budget: a share of the requests, and a few more each second.
//!
//! When an origin fails everything, retries add that share to its load and no more.

use std::time::{Duration, Instant};

use crate::plan::BudgetPlan;

/// How long a request counts.
const MEMORY: Duration = Duration::from_secs(10);

/// The tokens of one group. Requests cost nothing to count: their total is told when a token is asked
/// for.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: f64,
    at: Instant,
    requests: u64,
}

impl Budget {
    /// A budget that begins with what [`BudgetPlan::min_per_second`] gives in the time for which
    /// requests count.
    pub(crate) fn new(plan: &BudgetPlan, now: Instant) -> Self {
        Self {
            tokens: f64::from(plan.min_per_second) * MEMORY.as_secs_f64(),
            at: now,
            requests: 0,
        }
    }

    /// Takes a token for one retry, of a group that was asked `requests` times since it began. Tells
    /// whether there was one.
    pub(crate) fn take(&mut self, plan: &BudgetPlan, requests: u64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.at);
        let new = requests.saturating_sub(self.requests) as f64;
        let passed = (elapsed.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        // Of what came in a longer time, the share that counts still.
        let counted = (MEMORY.as_secs_f64() / elapsed.as_secs_f64()).min(1.0);
        self.tokens *= 1.0 - passed;
        self.tokens += new * counted * f64::from(plan.percent) / 100.0;
        self.tokens += f64::from(plan.min_per_second) * passed * MEMORY.as_secs_f64();
        self.at = now;
        self.requests = requests;
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(percent: u8, min_per_second: u32) -> BudgetPlan {
        BudgetPlan {
            percent,
            min_per_second,
        }
    }

    /// Retries granted when each of `requests` in each of `seconds` asks for one.
    fn granted(plan: &BudgetPlan, requests: u32, seconds: u32) -> u32 {
        let start = Instant::now();
        let mut budget = Budget::new(plan, start);
        let all = requests * seconds;
        (1..=all)
            .filter(|&number| {
                let now = start + Duration::from_secs(u64::from(seconds)) * number / all;
                budget.take(plan, u64::from(number), now)
            })
            .count() as u32
    }

    #[test]
    fn lets_few_requests_retry_by_the_minimum() {
        // Ten seconds' worth at once, and what comes meanwhile.
        let granted = granted(&plan(0, 3), 100, 10);
        assert!((30..=60).contains(&granted), "{granted}");
    }

    #[test]
    fn grants_the_share_of_many_requests() {
        let granted = granted(&plan(20, 0), 1_000, 60);
        assert!((11_000..=12_000).contains(&granted), "{granted} of 60000");
    }

    #[test]
    fn does_not_save_up_over_a_quiet_night() {
        let plan = plan(20, 1);
        let start = Instant::now();
        let mut budget = Budget::new(&plan, start);
        let night = start + Duration::from_secs(8 * 3600);
        // A request each second: a share of the last ten, and the minimum of ten seconds.
        let count = (0..1_000)
            .filter(|_| budget.take(&plan, 8 * 3600, night))
            .count();
        assert_eq!(count, 12);
    }

    proptest! {
        #[test]
        fn never_grants_more_than_the_share_and_the_minimum(
            percent in 0_u8..=100,
            min in 0_u32..20,
            requests in 1_u32..300,
            seconds in 1_u32..30,
        ) {
            let granted = granted(&plan(percent, min), requests, seconds);
            let most = requests * seconds * u32::from(percent) / 100 + min * (10 + seconds) + 1;
            prop_assert!(granted <= most, "{} over {}", granted, most);
        }
    }
}
