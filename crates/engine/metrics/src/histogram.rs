//! Histograms of times, which one thread writes and any thread reads.
//!
//! The buckets are those of Prometheus' native histograms of schema 3: each bound is 2^(1/8) times the one before, so that a percentile is
//! wrong by 9% at most. The classic buckets of the text formats are sums of them, and as exact.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Eight buckets for each doubling.
pub(crate) const SCHEMA: i32 = 3;

/// The buckets for each doubling.
const PER_DOUBLING: i32 = 1 << SCHEMA;

/// The first bucket ends at 2^-20 s, about one microsecond, and has all that is shorter.
const FIRST_EXPONENT: i32 = -20;

/// The last bucket ends at 2^8 s. What takes longer is only counted.
const LAST_EXPONENT: i32 = 8;

const BUCKETS: usize = ((LAST_EXPONENT - FIRST_EXPONENT) * PER_DOUBLING + 1) as usize;

/// The exponents of the classic bounds: from 2^-12 s, 0.24 ms, to 2^6 s.
const CLASSIC_EXPONENTS: std::ops::RangeInclusive<i32> = -12..=6;

/// The bounds of the buckets of one doubling: 2^(1/8) to 2^(8/8).
const BOUNDS: [f64; PER_DOUBLING as usize] = [
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
    2.0,
];

/// Counts times. One thread writes without locked instructions, and any thread reads.
pub struct DurationHistogram {
    nanoseconds: AtomicU64,
    longer: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self {
            nanoseconds: AtomicU64::new(0),
            longer: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl std::fmt::Debug for DurationHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.read().fmt(f)
    }
}

impl DurationHistogram {
    /// Counts a time. Only one thread may call this at a time, or counts are lost.
    pub fn observe(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        raise(&self.nanoseconds, nanoseconds);
        let bucket = bucket(nanoseconds);
        raise(self.buckets.get(bucket).unwrap_or(&self.longer), 1);
    }

    /// What was counted.
    pub fn read(&self) -> HistogramReading {
        HistogramReading {
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
            longer: self.longer.load(Ordering::Relaxed),
            buckets: self
                .buckets
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
        }
    }
}

/// Adds to a counter that no other thread writes, without a locked instruction.
pub fn raise(counter: &AtomicU64, by: u64) {
    let raised = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(raised, Ordering::Relaxed);
}

/// The position of the bucket for a time; beyond the last one for what takes longer.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn bucket(nanoseconds: u64) -> usize {
    let seconds = nanoseconds as f64 * 1e-9;
    let bits = seconds.to_bits();
    // A positive normal number: the exponent, and a fraction from 1 to below 2.
    let exponent = (bits >> 52) as i32 - 1023;
    if exponent < FIRST_EXPONENT {
        return 0;
    }
    let fraction = f64::from_bits(bits & ((1 << 52) - 1) | (1023 << 52));
    // log2(1 + x) is above x, by less than 0.09: the bucket is the one of x, or the next.
    let linear = (bits >> 49) as usize & 7;
    // Bounds belong to the bucket below them.
    let within = linear
        + match fraction {
            1.0 => return position(exponent, 0),
            fraction => usize::from(BOUNDS.get(linear).is_some_and(|bound| fraction > *bound)),
        };
    position(exponent, within + 1)
}

/// The bucket that ends at 2^exponent * 2^(step/8) s.
#[allow(clippy::cast_sign_loss)]
fn position(exponent: i32, step: usize) -> usize {
    ((exponent - FIRST_EXPONENT) * PER_DOUBLING) as usize + step
}

/// What was counted of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramReading {
    nanoseconds: u64,
    longer: u64,
    buckets: Vec<u64>,
}

impl HistogramReading {
    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
        self.longer += other.longer;
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
    }

    /// Takes away what was counted before.
    pub fn subtract(&mut self, before: &Self) {
        self.nanoseconds = self.nanoseconds.wrapping_sub(before.nanoseconds);
        self.longer = self.longer.saturating_sub(before.longer);
        for (count, earlier) in self.buckets.iter_mut().zip(&before.buckets) {
            *count = count.saturating_sub(*earlier);
        }
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum::<u64>() + self.longer
    }

    /// The sum of the times.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// A time that this share of the times did not exceed, such as 0.99: the upper bound of its bucket. `None` if there was none.
    #[allow(clippy::cast_precision_loss)]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if *bucket > 0 && seen as f64 >= share * count as f64 {
                return Some(Duration::from_secs_f64(bound(index)));
            }
        }
        (count > 0).then(|| Duration::from_secs_f64(f64::from(1 << LAST_EXPONENT)))
    }

    /// What is in each bucket that has something: its upper bound is 2 to the power of that many eighths of a second. `None`: it has no bound.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Option<i32>, u64)> {
        let first = FIRST_EXPONENT * PER_DOUBLING;
        let buckets = (first..).map(Some).zip(self.buckets.iter().copied());
        let buckets = buckets.chain([(None, self.longer)]);
        buckets.filter(|(_, count)| *count > 0)
    }

    /// The classic buckets: upper bounds in seconds, and what was counted between the bound before and this one.
    pub(crate) fn classic(&self) -> Vec<(f64, u64)> {
        let mut classic = Vec::new();
        let mut begin = 0;
        for exponent in CLASSIC_EXPONENTS {
            let end = position(exponent, 0) + 1;
            let counts = self.buckets.get(begin..end).unwrap_or_default();
            classic.push((f64::from(exponent).exp2(), counts.iter().sum()));
            begin = end;
        }
        classic.push((f64::INFINITY, self.rest(begin)));
        classic
    }

    /// The buckets as OpenTelemetry's exponential histograms have them: the scale, the index of the first bucket, and counts from there on.
    pub fn exponential(&self) -> (i32, i32, Vec<u64>) {
        let first = self.buckets.iter().position(|count| *count > 0);
        let last = self.buckets.iter().rposition(|count| *count > 0);
        let (Some(first), Some(last)) = (first, last) else {
            return (SCHEMA, 0, Vec::new());
        };
        // Bucket 0 begins there at 1 s, and ends here at 1 s.
        let begin = i32::try_from(first).unwrap_or(i32::MAX);
        let offset = begin + FIRST_EXPONENT * PER_DOUBLING - 1;
        let counts = self.buckets.get(first..=last).unwrap_or_default();
        (SCHEMA, offset, counts.to_vec())
    }

    /// What follows the last classic bound.
    fn rest(&self, begin: usize) -> u64 {
        let counts = self.buckets.get(begin..).unwrap_or_default();
        counts.iter().sum::<u64>() + self.longer
    }

    /// The native buckets: runs of buckets as the distance to the run before and a length, and the difference of each count to the one
    /// before.
    pub(crate) fn native(&self) -> (Vec<(i32, u32)>, Vec<i64>) {
        let (mut spans, mut deltas) = (Vec::<(i32, u32)>::new(), Vec::new());
        // Prometheus numbers buckets so that bucket 0 ends at 1 s.
        let mut expected = 0;
        let mut before = 0_i64;
        let first = FIRST_EXPONENT * PER_DOUBLING;
        for (index, count) in (first..).zip(&self.buckets) {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            if count == 0 {
                continue;
            }
            match spans.last_mut() {
                Some((_, length)) if index == expected => *length += 1,
                _ => spans.push((index - expected, 1)),
            }
            deltas.push(count - before);
            (before, expected) = (count, index + 1);
        }
        (spans, deltas)
    }
}

/// The upper bound of a bucket in seconds.
fn bound(index: usize) -> f64 {
    let steps = i32::try_from(index).unwrap_or(i32::MAX);
    let eighths = f64::from(FIRST_EXPONENT * PER_DOUBLING) + f64::from(steps);
    (eighths / f64::from(PER_DOUBLING)).exp2()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[Duration]) -> HistogramReading {
        let histogram = DurationHistogram::default();
        times.iter().for_each(|time| histogram.observe(*time));
        histogram.read()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_time_is_in_the_bucket_whose_bounds_enclose_it(shift in 0..64_u32, bits: u64) {
            let nanoseconds = bits >> shift;
            let seconds = nanoseconds as f64 * 1e-9;
            let index = bucket(nanoseconds);
            if index < BUCKETS {
                prop_assert!(seconds <= bound(index) * (1.0 + 1e-12), "{seconds} is above {}", bound(index));
            } else {
                prop_assert!(seconds > bound(BUCKETS - 1));
            }
            if let Some(below) = index.checked_sub(1).filter(|_| index < BUCKETS) {
                prop_assert!(seconds > bound(below) * (1.0 - 1e-12), "{seconds} is not above {}", bound(below));
            }
        }

        #[test]
        fn what_was_counted_is_in_the_classic_and_in_the_native_buckets(times in prop::collection::vec(0..1_u64 << 40, 0..50)) {
            let times: Vec<_> = times.into_iter().map(Duration::from_nanos).collect();
            let reading = of(&times);
            prop_assert_eq!(reading.count(), times.len() as u64);
            prop_assert_eq!(reading.sum(), times.iter().sum::<Duration>());
            let mut before = 0.0;
            for (bound, count) in reading.classic() {
                let within = |time: &&Duration| time.as_secs_f64() > before && time.as_secs_f64() <= bound;
                let zero = times.iter().filter(|time| before == 0.0 && time.is_zero()).count();
                prop_assert_eq!(count, (times.iter().filter(within).count() + zero) as u64);
                before = bound;
            }
            let (spans, deltas) = reading.native();
            prop_assert_eq!(spans.iter().map(|(_, length)| *length as usize).sum::<usize>(), deltas.len());
            let mut count = 0;
            let native: i64 = deltas.iter().map(|delta| { count += delta; count }).sum();
            prop_assert_eq!(native as u64, reading.count() - reading.longer);
        }
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let second = Duration::from_secs(1);
        assert_eq!(bucket(1_000_000_000), position(0, 0));
        assert_eq!(bucket(1_000_000_001), position(0, 1));
        assert_eq!(bucket(999_999_999), position(0, 0));
        assert_eq!(bucket(0), 0);
        let (spans, deltas) = of(&[second, second, second * 2]).native();
        assert_eq!((spans, deltas), (vec![(0, 1), (7, 1)], vec![2, -1]));
    }

    #[test]
    fn percentiles_are_within_a_bucket() {
        let times: Vec<_> = (1..=1000).map(Duration::from_millis).collect();
        let reading = of(&times);
        for (share, exact) in [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99)] {
            let found = reading.quantile(share).unwrap().as_secs_f64();
            assert!(found >= exact && found <= exact * 1.1, "{share}: {found}");
        }
        assert_eq!(HistogramReading::default().quantile(0.5), None);
        let mut rest = reading.clone();
        rest.subtract(&of(&times[..999]));
        assert_eq!((rest.count(), rest.sum()), (1, Duration::from_secs(1)));
        rest.add(&HistogramReading::default());
        assert_eq!(rest.count(), 1);
    }
}
