//! How sure a ratio is: the estimate of Hodges and Lehmann, with the interval of Wilcoxon's signed ranks.
//!
//! The values are logarithms of ratios, one of each round. The method assumes that they are spread evenly around the true
//! value, and nothing else: no normal distribution, and a round in which the machine was busy with something else does not
//! move the result. The level is exact for few rounds, too.

/// The share of intervals that contain the true value.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The fewest rounds of which anything is certain.
pub(crate) const MIN_ROUNDS: usize = 6;

/// A ratio, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RatioEstimate {
    pub(crate) ratio: f64,
    /// The bounds of the interval. `None` if there are too few rounds for one.
    pub(crate) interval: Option<(f64, f64)>,
    /// How probable values as far from 1 as these are, if there is no difference.
    pub(crate) noise: f64,
}

impl RatioEstimate {
    /// The estimate from the ratios of rounds. `None` without any.
    pub(crate) fn of(ratios: &[f64]) -> Option<Self> {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        if logarithms.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut averages = Vec::new();
        for (index, one) in logarithms.iter().enumerate() {
            averages.extend(
                logarithms
                    .iter()
                    .skip(index)
                    .map(|other| (one + other) / 2.0),
            );
        }
        averages.sort_by(f64::total_cmp);
        let ratio = median(&averages)?.exp();
        let at_most = cumulative(logarithms.len());
        let interval = tail(&at_most).and_then(|tail| {
            let low = averages.get(tail)?;
            let high = averages.get(averages.len().checked_sub(tail + 1)?)?;
            Some((low.exp(), high.exp()))
        });
        Some(Self {
            ratio,
            interval,
            noise: noise(&averages, &at_most),
        })
    }

    /// Whether there is a difference.
    pub(crate) fn is_certain(&self) -> bool {
        self.interval
            .is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }
}

/// The middle of sorted values.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) {
        Some((sorted.get(middle.checked_sub(1)?)? + upper) / 2.0)
    } else {
        Some(*upper)
    }
}

/// The probability that the sum of the ranks of one sign is at most 0, 1, 2 and so on, if both signs are equally probable.
fn cumulative(rounds: usize) -> Vec<f64> {
    let most = rounds * (rounds + 1) / 2;
    let mut exact = vec![0.0; most + 1];
    if let Some(first) = exact.first_mut() {
        *first = 1.0;
    }
    for rank in 1..=rounds {
        for sum in (0..=most).rev() {
            let with = sum
                .checked_sub(rank)
                .and_then(|rest| exact.get(rest))
                .copied();
            if let Some(value) = exact.get_mut(sum) {
                *value = (*value + with.unwrap_or(0.0)) / 2.0;
            }
        }
    }
    let mut sum = 0.0;
    for value in &mut exact {
        sum += *value;
        *value = sum;
    }
    exact
}

/// How many averages are outside of the interval at each end.
fn tail(at_most: &[f64]) -> Option<usize> {
    let level = (1.0 - CONFIDENCE) / 2.0;
    at_most
        .iter()
        .take_while(|value| **value <= level)
        .count()
        .checked_sub(1)
}

fn noise(averages: &[f64], at_most: &[f64]) -> f64 {
    let above = averages.iter().filter(|value| **value > 0.0).count() as f64;
    let equal = averages.iter().filter(|value| **value == 0.0).count() as f64;
    let positive = above + equal / 2.0;
    let fewer = positive.min(averages.len() as f64 - positive);
    let probability = at_most.get(fewer.floor() as usize).copied();
    (2.0 * probability.unwrap_or(1.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal, by the central limit theorem.
    fn noise_of(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    fn rounds(count: usize, ratio: f64, spread: f64, random: &mut fastrand::Rng) -> Vec<f64> {
        (0..count)
            .map(|_| ratio * (1.0 + spread * noise_of(random)) / (1.0 + spread * noise_of(random)))
            .collect()
    }

    #[test]
    fn the_distribution_is_that_of_the_tables() {
        // Table values of the signed-rank test: P(T <= 8) of 10 ranks is 0.0244.
        let of_ten = cumulative(10);
        assert!((of_ten[8] - 0.0244).abs() < 1e-4, "{}", of_ten[8]);
        assert!((of_ten[55] - 1.0).abs() < 1e-12);
        assert_eq!(tail(&of_ten), Some(8));
        assert_eq!(tail(&cumulative(MIN_ROUNDS)), Some(0));
        assert_eq!(tail(&cumulative(MIN_ROUNDS - 1)), None);
    }

    #[test]
    fn a_server_beside_itself_is_no_different_in_95_of_100_comparisons() {
        let mut random = fastrand::Rng::with_seed(1);
        for count in [6, 8, 12, 20] {
            let mut wrong = 0;
            for _ in 0..2000 {
                let estimate = RatioEstimate::of(&rounds(count, 1.0, 0.03, &mut random)).unwrap();
                assert_eq!(
                    estimate.is_certain(),
                    estimate.noise <= 0.05,
                    "{estimate:?}"
                );
                wrong += u32::from(estimate.is_certain());
            }
            assert!(wrong <= 115, "{wrong} of 2000 with {count} rounds");
        }
    }

    /// What `apus bench compare` measured of a server beside itself: a line for each of 100 comparisons, with the ratio of the
    /// rates in each of its six rounds. Rounds took 250 ms, of a debug build, while the machine compiled: the ratios are
    /// spread by a third, and not as a normal distribution.
    const RECORDED: &str = include_str!("recorded.txt");

    #[test]
    fn of_100_recorded_comparisons_of_a_server_with_itself_95_say_that_there_is_no_difference() {
        let estimates: Vec<_> = RECORDED
            .lines()
            .map(|line| {
                let ratios: Vec<f64> = line
                    .split(' ')
                    .map(|ratio| ratio.parse().unwrap())
                    .collect();
                assert_eq!(ratios.len(), MIN_ROUNDS);
                RatioEstimate::of(&ratios).unwrap()
            })
            .collect();
        assert_eq!(estimates.len(), 100);
        let certain = estimates.iter().filter(|one| one.is_certain()).count();
        assert!(certain <= 5, "{certain}");
    }

    #[test]
    fn a_difference_of_five_percent_is_found() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut found = 0;
        for _ in 0..200 {
            let estimate = RatioEstimate::of(&rounds(12, 1.05, 0.02, &mut random)).unwrap();
            let (low, high) = estimate.interval.unwrap();
            assert!(low <= estimate.ratio && estimate.ratio <= high);
            found += u32::from(estimate.is_certain() && estimate.ratio > 1.0);
        }
        assert!(found >= 190, "{found}");
    }

    #[test]
    fn one_bad_round_does_not_move_the_result() {
        let mut ratios = vec![1.10, 1.11, 1.09, 1.10, 1.12, 1.08, 1.10, 1.11, 1.09];
        ratios.push(0.2);
        let estimate = RatioEstimate::of(&ratios).unwrap();
        assert!((estimate.ratio - 1.10).abs() < 0.02, "{estimate:?}");
    }

    #[test]
    fn few_or_equal_rounds_are_not_certain() {
        assert_eq!(RatioEstimate::of(&[]), None);
        let few = RatioEstimate::of(&[2.0, 2.1, 1.9]).unwrap();
        assert!(few.interval.is_none() && !few.is_certain());
        let equal = RatioEstimate::of(&[1.0; 8]).unwrap();
        assert_eq!((equal.interval, equal.noise), (Some((1.0, 1.0)), 1.0));
        assert!(!equal.is_certain());
        assert_eq!(RatioEstimate::of(&[0.0, 1.0]), None);
    }
}
