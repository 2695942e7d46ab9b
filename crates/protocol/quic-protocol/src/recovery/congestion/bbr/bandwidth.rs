//! The bandwidth of a path: the largest delivery rate of the last round trips (section 4.1.1.3).

/// Round trips whose maximum is the bandwidth.
const BANDWIDTH_ROUNDS: usize = 10;

/// The largest rate of the last round trips.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxBandwidth {
    /// Of each round, at the index that is its number modulo their count.
    rates: [u64; BANDWIDTH_ROUNDS],
    last_round: u64,
}

impl MaxBandwidth {
    pub(super) fn get(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Adds a rate of a round that is not before that of the last one.
    pub(super) fn add(&mut self, round: u64, rate: u64) {
        let rounds = BANDWIDTH_ROUNDS as u64;
        let first = (self.last_round + 1).max((round + 1).saturating_sub(rounds));
        for passed in first..=round {
            if let Some(slot) = self.rates.get_mut((passed % rounds) as usize) {
                *slot = 0;
            }
        }
        self.last_round = round;
        if let Some(slot) = self.rates.get_mut((round % rounds) as usize) {
            *slot = rate.max(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rate_of_ten_rounds_counts() {
        let mut bandwidth = MaxBandwidth::default();
        assert_eq!(bandwidth.get(), 0);
        bandwidth.add(1, 100);
        bandwidth.add(1, 90);
        assert_eq!(bandwidth.get(), 100);
        bandwidth.add(10, 50);
        assert_eq!(bandwidth.get(), 100);
        bandwidth.add(11, 40);
        assert_eq!(bandwidth.get(), 50);
        bandwidth.add(19, 30);
        assert_eq!(bandwidth.get(), 50);
        bandwidth.add(20, 20);
        assert_eq!(bandwidth.get(), 40);
        bandwidth.add(1_000_000, 10);
        assert_eq!(bandwidth.get(), 10);
    }
}
