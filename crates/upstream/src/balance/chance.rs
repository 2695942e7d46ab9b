//! Random numbers for choices that need no secrecy: a few nanoseconds each, no system call.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A generator of one worker (wyrand).
#[derive(Debug)]
pub(crate) struct Chance(Cell<u64>);

impl Chance {
    /// A generator that no other is like.
    pub(crate) fn new() -> Self {
        Self::seeded(RandomState::new().hash_one(0_u8))
    }

    /// A generator whose numbers follow from `seed`.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0xa076_1d64_78bd_642f);
        self.0.set(state);
        let product = u128::from(state) * u128::from(state ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// A number from 0 up to but not including `end`; 0 if that is 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 up to but not including 1.
    pub(crate) fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_evenly_over_a_range() {
        let chance = Chance::seeded(7);
        let mut counts = [0; 5];
        for _ in 0..50_000 {
            counts[chance.below(5) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
        assert_eq!(chance.below(0), 0);
        assert!(
            (0..1000)
                .map(|_| chance.fraction())
                .all(|f| (0.0..1.0).contains(&f))
        );
    }
}
