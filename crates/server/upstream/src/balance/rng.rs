//! A fast random number generator for choices that need no secrecy.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// The generator of one worker (wyrand).
#[derive(Debug)]
pub(crate) struct FastRng(Cell<u64>);

impl FastRng {
    /// Creates a generator with a random seed.
    pub(crate) fn new() -> Self {
        // Each worker begins elsewhere: with one seed, all would make the same choices. The keys of a `RandomState`
        // come from the random numbers of the system.
        Self::seeded(RandomState::new().hash_one(0_u8))
    }

    /// Creates a generator with this seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0xa076_1d64_78bd_642f);
        self.0.set(state);
        let product = u128::from(state) * u128::from(state ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// Returns a number from 0 to `end`, exclusive; 0 if `end` is 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        // The upper half of the product, and no remainder, which would cost a division (Lemire, "Fast random integer
        // generation in an interval").
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from 0 to 1, exclusive.
    pub(crate) fn fraction(&self) -> f64 {
        // An `f64` has 53 bits: with more of them, the largest numbers would be rounded to 1.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_evenly_over_a_range() {
        let rng = FastRng::seeded(7);
        let mut counts = [0; 5];
        for _ in 0..50_000 {
            counts[rng.below(5) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
        assert_eq!(rng.below(0), 0);
        assert!(
            (0..1000)
                .map(|_| rng.fraction())
                .all(|f| (0.0..1.0).contains(&f))
        );
    }
}
