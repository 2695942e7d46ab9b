//! Limits on rates, by the generic cell rate algorithm (ITU-T I.371): a request is allowed if its theoretical arrival time is not
//! further ahead than the burst. One number for each key says all.

use std::time::Duration;

use crate::key_table::{Key, KeyTable};

/// A limit: a quantity in a time, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Nanoseconds of a unit: a request, or a byte.
    interval: u64,
    /// The units that may come at once.
    burst: u64,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateDecision {
    /// The units that are left.
    pub remaining: u64,
    /// When the whole burst is there again.
    pub reset: Duration,
}

impl RateLimit {
    /// So many units in a period, all of which may come at once. At least one unit.
    pub fn new(units: u64, period: Duration) -> Self {
        let units = units.max(1);
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Self {
            interval: (period / units).max(1),
            burst: units,
        }
    }

    /// Sets how many units may come at once. At least one.
    #[must_use]
    pub fn burst(mut self, units: u64) -> Self {
        self.burst = units.max(1);
        self
    }

    /// Takes units for a key at a time since the start of the table.
    ///
    /// # Errors
    /// The limit is exceeded: how long until so many units are there.
    pub fn take(
        &self,
        table: &KeyTable,
        key: Key,
        units: u64,
        now: Duration,
    ) -> Result<RateDecision, Duration> {
        let now = nanoseconds(now);
        let whole = self.interval.saturating_mul(self.burst);
        let cost = self.interval.saturating_mul(units);
        let mut decision = Err(Duration::ZERO);
        let taken = table.update(key, |held| {
            let arrival = held.map_or(now, |held| held.saturating_mul(UNIT).max(now));
            let next = arrival.saturating_add(cost);
            let ahead = next.saturating_sub(now);
            if ahead > whole {
                return Err(Duration::from_nanos(ahead.saturating_sub(whole)));
            }
            decision = Ok(RateDecision {
                remaining: whole.saturating_sub(ahead) / self.interval,
                reset: Duration::from_nanos(ahead),
            });
            Ok(next.div_ceil(UNIT))
        });
        taken.and(decision)
    }
}

/// Nanoseconds of a unit of the values in tables, which end after 2.3 years then.
const UNIT: u64 = 256;

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_allowed_and_then_one_in_each_interval() {
        let (table, limit) = (KeyTable::new(10), RateLimit::new(10, 100 * MS).burst(3));
        let key = table.key("a");
        let take = |at: Duration| limit.take(&table, key, 1, at);
        assert_eq!(
            [take(MS), take(MS), take(MS)].map(|taken| taken.map(|left| left.remaining)),
            [Ok(2), Ok(1), Ok(0)]
        );
        assert_eq!(take(MS), Err(10 * MS));
        assert_eq!(
            take(11 * MS - Duration::from_micros(1)),
            Err(Duration::from_micros(1))
        );
        assert!(take(11 * MS).is_ok());
        assert_eq!(take(11 * MS), Err(10 * MS));
        // Another key has its own.
        assert!(limit.take(&table, table.key("b"), 3, MS).is_ok());
        // Never more than the burst, however long it was quiet.
        assert!(limit.take(&table, key, 4, 5000 * MS).is_err());
        assert!(limit.take(&table, key, 3, 5000 * MS).is_ok());
    }

    #[test]
    fn over_several_workers_a_limit_is_exact() {
        let (table, limit) = (KeyTable::new(100), RateLimit::new(100, 1000 * MS));
        let key = table.key("a");
        for second in 0..5_u32 {
            let allowed = AtomicU64::new(0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for at in 0..1000 {
                            let now = 1000 * MS * second + at * MS;
                            let taken = limit.take(&table, key, 1, now);
                            allowed.fetch_add(taken.is_ok().into(), Ordering::Relaxed);
                        }
                    });
                }
            });
            let allowed = allowed.load(Ordering::Relaxed);
            // The burst of the first second; afterwards as many as have come due, but for threads that are behind in time.
            let expected = if second == 0 { 199 } else { 100 };
            assert!(allowed.abs_diff(expected) <= 2, "{second}: {allowed}");
        }
    }
}
