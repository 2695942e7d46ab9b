//! A histogram of times in few bytes, for storage: four buckets for each doubling, with 32 bits each.

use std::time::Duration;

use crate::histogram::HistogramReading;

/// Buckets for each doubling.
const PER_DOUBLING: usize = 4;

/// The first bucket ends at 2^-17 s, about eight microseconds, and has all that is shorter.
const FIRST_EXPONENT: i32 = -17;

/// The buckets: up to 2^8 s, and one for what takes longer.
const BUCKETS: usize = 25 * PER_DOUBLING + 2;

/// Times that were counted, in buckets whose bounds are 2^(1/4) times the one before: a percentile is too high by 19% at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactHistogram {
    nanoseconds: u64,
    buckets: [u32; BUCKETS],
}

impl Default for CompactHistogram {
    fn default() -> Self {
        Self {
            nanoseconds: 0,
            buckets: [0; BUCKETS],
        }
    }
}

impl From<&HistogramReading> for CompactHistogram {
    fn from(reading: &HistogramReading) -> Self {
        let mut compact = Self {
            nanoseconds: u64::try_from(reading.sum().as_nanos()).unwrap_or(u64::MAX),
            ..Self::default()
        };
        for (eighths, count) in reading.counts() {
            let own = match eighths {
                Some(eighths) => {
                    let above_first = eighths - FIRST_EXPONENT * 8;
                    usize::try_from(above_first).map_or(0, |eighths| eighths.div_ceil(2))
                }
                None => BUCKETS - 1,
            };
            if let Some(bucket) = compact.buckets.get_mut(own) {
                *bucket = bucket.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            }
        }
        compact
    }
}

impl CompactHistogram {
    /// The bytes of its encoding.
    pub(crate) const BYTES: usize = 8 + 4 * BUCKETS;

    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(count);
        }
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().copied().map(u64::from).sum()
    }

    /// The mean of the times; `None` if there was none.
    #[expect(clippy::cast_precision_loss, reason = "a mean is not exact")]
    pub fn mean(&self) -> Option<Duration> {
        let count = self.count();
        let seconds = self.nanoseconds as f64 * 1e-9;
        (count > 0).then(|| Duration::from_secs_f64(seconds / count as f64))
    }

    /// A time that this share of the times did not exceed, such as 0.99: the upper bound of its bucket. `None` if there was none.
    #[expect(clippy::cast_precision_loss, reason = "buckets are not as exact")]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = share * self.count() as f64;
        let mut seen = 0_u64;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += u64::from(*bucket);
            if *bucket > 0 && seen as f64 >= wanted {
                return Some(bound(index));
            }
        }
        None
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.nanoseconds.to_le_bytes());
        bytes.extend(self.buckets.iter().flat_map(|count| count.to_le_bytes()));
    }

    /// Reads what [`encode`](Self::encode) has written; `None`: these are too few bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (nanoseconds, rest) = bytes.split_first_chunk()?;
        let (counts, _) = rest.as_chunks::<4>();
        let mut compact = Self {
            nanoseconds: u64::from_le_bytes(*nanoseconds),
            ..Self::default()
        };
        for (bucket, count) in compact.buckets.iter_mut().zip(counts.get(..BUCKETS)?) {
            *bucket = u32::from_le_bytes(*count);
        }
        Some(compact)
    }
}

/// The upper bound of a bucket; the last one has none, and says its lower one.
fn bound(index: usize) -> Duration {
    let steps = u32::try_from(index.min(BUCKETS - 2)).unwrap_or(0);
    let exponent = f64::from(FIRST_EXPONENT) + f64::from(steps) / 4.0;
    Duration::from_secs_f64(exponent.exp2())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::histogram::DurationHistogram;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn percentiles_are_as_exact_as_the_buckets(times in prop::collection::vec(8_000..200_000_000_000_u64, 1..60), share in 0.01..1.0_f64) {
            let histogram = DurationHistogram::default();
            times.iter().for_each(|time| histogram.observe(Duration::from_nanos(*time)));
            let compact = CompactHistogram::from(&histogram.read());
            prop_assert_eq!(compact.count(), times.len() as u64);
            let mut times = times;
            times.sort_unstable();
            let wanted = ((share * times.len() as f64).ceil() as usize).clamp(1, times.len());
            let exact = times[wanted - 1] as f64 * 1e-9;
            let found = compact.quantile(share).unwrap().as_secs_f64();
            prop_assert!(found >= exact * 0.999_999 && found <= exact * 1.1893, "{found} for {exact}");
            let mut bytes = Vec::new();
            compact.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), CompactHistogram::BYTES);
            prop_assert_eq!(CompactHistogram::decode(&bytes), Some(compact));
            prop_assert_eq!(CompactHistogram::decode(&bytes[1..]), None);
        }
    }

    #[test]
    fn what_is_too_short_or_too_long_is_counted() {
        let histogram = DurationHistogram::default();
        for time in [Duration::ZERO, Duration::from_secs(1000)] {
            histogram.observe(time);
        }
        let mut compact = CompactHistogram::from(&histogram.read());
        assert_eq!(compact.quantile(0.5), Some(bound(0)));
        assert_eq!(compact.quantile(1.0), Some(Duration::from_secs(256)));
        assert_eq!(compact.mean(), Some(Duration::from_secs(500)));
        compact.add(&compact.clone());
        assert_eq!(compact.count(), 4);
        assert_eq!(CompactHistogram::default().quantile(0.5), None);
        assert_eq!(CompactHistogram::default().mean(), None);
    }
}
