//! How often keys are asked for lately, roughly: counters that keys share by their hash.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const COUNTERS: usize = 1 << 16;

/// After so many requests all counters are halved, so that what was long ago counts less.
const UNTIL_HALVED: u32 = 8 * COUNTERS as u32;

/// Counts how often keys are asked for. A key may count as asked for too often, because it shares its
/// counters with others, and never too seldom but for what was long ago.
pub(super) struct Uses {
    counters: Box<[AtomicU8]>,
    counted: AtomicU32,
    hasher: RandomState,
}

impl Default for Uses {
    fn default() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicU8::new(0)).collect(),
            counted: AtomicU32::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl std::fmt::Debug for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uses")
            .field("counted", &self.counted)
            .finish_non_exhaustive()
    }
}

impl Uses {
    /// Counts a use of `key`; tells how many there were, this one included.
    pub(super) fn count(&self, key: &[u8]) -> u32 {
        if self.counted.fetch_add(1, Ordering::Relaxed) >= UNTIL_HALVED {
            self.counted.store(0, Ordering::Relaxed);
            for counter in &self.counters {
                counter.store(counter.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
        let hash = self.hasher.hash_one(key);
        let places = [hash, hash.rotate_left(32)].map(|hash| hash as usize % COUNTERS);
        let counts = places.map(|place| {
            self.counters.get(place).map_or(0, |counter| {
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
    fn counts_each_key_for_itself() {
        let uses = Uses::default();
        assert_eq!(uses.count(b"a"), 1);
        assert_eq!(uses.count(b"a"), 2);
        assert_eq!(uses.count(b"b"), 1);
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        let uses = Uses::default();
        for _ in 0..100 {
            uses.count(b"a");
        }
        for number in 0..UNTIL_HALVED {
            uses.count(&(number % 16).to_be_bytes());
        }
        assert!(uses.count(b"a") < 100);
    }
}
