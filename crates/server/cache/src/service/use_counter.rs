//! Approximate counts of how often keys were requested lately.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const COUNTERS: usize = 1 << 16;

/// All counters are halved after this many requests, so that old requests count less.
const HALVING_INTERVAL: u32 = 8 * COUNTERS as u32;

/// Counts how often keys are requested. Keys share counters by their hash: a count may be too high,
/// and is too low only because of the halving.
pub(super) struct UseCounter {
    counters: Box<[AtomicU8]>,
    counted: AtomicU32,
    hasher: RandomState,
}

impl Default for UseCounter {
    fn default() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicU8::new(0)).collect(),
            counted: AtomicU32::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl std::fmt::Debug for UseCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UseCounter")
            .field("counted", &self.counted)
            .finish_non_exhaustive()
    }
}

impl UseCounter {
    /// Counts a request for `key`, and returns the count including this one.
    pub(super) fn count(&self, key: &[u8]) -> u32 {
        if self.counted.fetch_add(1, Ordering::Relaxed) >= HALVING_INTERVAL {
            self.counted.store(0, Ordering::Relaxed);
            for counter in &self.counters {
                counter.store(counter.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
        let hash = self.hasher.hash_one(key);
        // Two counters for each key: both have to be shared with busy keys before a count is too high. The hash has a
        // random seed, so that no client can choose keys that share them.
        let indexes = [hash, hash.rotate_left(32)].map(|hash| hash as usize % COUNTERS);
        let counts = indexes.map(|index| {
            self.counters.get(index).map_or(0, |counter| {
                let before = counter.load(Ordering::Relaxed);
                let now = before.saturating_add(1);
                counter.store(now, Ordering::Relaxed);
                u32::from(now)
            })
        });
        counts.into_iter().min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_key() {
        let counter = UseCounter::default();
        assert_eq!(counter.count(b"a"), 1);
        assert_eq!(counter.count(b"a"), 2);
        assert_eq!(counter.count(b"b"), 1);
    }

    #[test]
    fn old_requests_count_less() {
        let counter = UseCounter::default();
        for _ in 0..100 {
            counter.count(b"a");
        }
        for number in 0..HALVING_INTERVAL {
            counter.count(&(number % 16).to_be_bytes());
        }
        assert!(counter.count(b"a") < 100);
    }
}
