//! Sampling: which of the requests are logged, so that a busy log stays small.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use apus_http::{Completion, ResponseOutcome};

/// A log with some of the requests, at random, and with those that went wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSampling {
    /// The share of requests that are logged, from 0 to 1.
    pub rate: f64,
    /// Requests that take this long or longer are logged in any case.
    pub slow: Option<Duration>,
}

impl LogSampling {
    /// The share of requests like this one that are logged; `None` if this one is not.
    pub(crate) fn rate_of(&self, completion: &Completion, numbers: &SampleNumbers) -> Option<f64> {
        let has_failed = completion.status.is_server_error()
            || completion.outcome == ResponseOutcome::SourceFailed;
        let is_slow = self.slow.is_some_and(|slow| completion.duration >= slow);
        if has_failed || is_slow {
            return Some(1.0);
        }
        (numbers.next() < self.rate).then_some(self.rate)
    }
}

/// Random numbers of one worker. Clients cannot see them, and nothing depends on their secrecy.
pub(crate) struct SampleNumbers(Cell<u64>);

impl Default for SampleNumbers {
    fn default() -> Self {
        Self(Cell::new(RandomState::new().hash_one(0)))
    }
}

impl SampleNumbers {
    /// The next number, from 0 to below 1, by SplitMix64.
    fn next(&self) -> f64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        const DIGITS: u32 = 53;

        let state = self.0.get().wrapping_add(STEP);
        self.0.set(state);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> (u64::BITS - DIGITS)) as f64 / (1_u64 << DIGITS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_even() {
        let numbers = SampleNumbers(Cell::new(7));
        let all: Vec<f64> = (0..10_000).map(|_| numbers.next()).collect();
        assert!(all.iter().all(|number| (0.0..1.0).contains(number)));
        let below = all.iter().filter(|number| **number < 0.1).count();
        assert!((900..1100).contains(&below), "{below}");
    }
}
