//! The retry budget, a token bucket that bounds the load which retries add to a failing origin.

use std::time::{Duration, Instant};

use crate::plan::BudgetPlan;

/// The time for which a request counts.
// The retry budgets of Finagle and linkerd use ten seconds, too.
const WINDOW: Duration = Duration::from_secs(10);

/// The retry tokens of one group: a percentage of its requests, and a few more each second.
#[derive(Debug)]
pub(crate) struct RetryTokenBucket {
    tokens: f64,
    at: Instant,
    requests: u64,
}

impl RetryTokenBucket {
    /// Creates a bucket with the tokens that [`BudgetPlan::min_per_second`] gives in the window.
    pub(crate) fn new(plan: &BudgetPlan, now: Instant) -> Self {
        Self {
            tokens: f64::from(plan.min_per_second) * WINDOW.as_secs_f64(),
            at: now,
            requests: 0,
        }
    }

    /// Takes a token for one retry; `requests` is the number of requests to the group since the start. Returns
    /// whether there was a token.
    pub(crate) fn take(&mut self, plan: &BudgetPlan, requests: u64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.at);
        let new = requests.saturating_sub(self.requests) as f64;
        let passed = (elapsed.as_secs_f64() / WINDOW.as_secs_f64()).min(1.0);
        // The part of the new requests that is within the window.
        let counted = (WINDOW.as_secs_f64() / elapsed.as_secs_f64()).min(1.0);
        // Tokens leave the bucket with the requests of which they are a share: requests of an hour ago do not pay
        // for retries now.
        self.tokens *= 1.0 - passed;
        self.tokens += new * counted * f64::from(plan.percent) / 100.0;
        self.tokens += f64::from(plan.min_per_second) * passed * WINDOW.as_secs_f64();
        self.at = now;
        self.requests = requests;
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }

    /// Gives a token back that no retry was sent for.
    pub(crate) fn give_back(&mut self) {
        self.tokens += 1.0;
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

    /// Retries granted if each of `requests` in each of `seconds` needs one.
    fn granted(plan: &BudgetPlan, requests: u32, seconds: u32) -> u32 {
        let start = Instant::now();
        let mut tokens = RetryTokenBucket::new(plan, start);
        let all = requests * seconds;
        (1..=all)
            .filter(|&number| {
                let now = start + Duration::from_secs(u64::from(seconds)) * number / all;
                tokens.take(plan, u64::from(number), now)
            })
            .count() as u32
    }

    #[test]
    fn grants_few_requests_the_minimum() {
        // The tokens of ten seconds at once, and the tokens of the following seconds.
        let granted = granted(&plan(0, 3), 100, 10);
        assert!((30..=60).contains(&granted), "{granted}");
    }

    #[test]
    fn grants_the_percentage_of_many_requests() {
        let granted = granted(&plan(20, 0), 1_000, 60);
        assert!((11_000..=12_000).contains(&granted), "{granted} of 60000");
    }

    #[test]
    fn does_not_accumulate_tokens_over_a_quiet_night() {
        let plan = plan(20, 1);
        let start = Instant::now();
        let mut tokens = RetryTokenBucket::new(&plan, start);
        let night = start + Duration::from_secs(8 * 3600);
        // One request per second: a percentage of the last ten, and the minimum of ten seconds.
        let count = (0..1_000)
            .filter(|_| tokens.take(&plan, 8 * 3600, night))
            .count();
        assert_eq!(count, 12);
    }

    proptest! {
        #[test]
        fn never_grants_more_than_the_percentage_and_the_minimum(
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
