//! Limits on rates, by the generic cell rate algorithm (ITU-T I.371): a request is allowed if its theoretical arrival time is not
//! further ahead than the burst. One number for each key says all.

use std::convert::Infallible;
use std::time::Duration;

use crate::key_table::{Key, KeyTable};

/// A quantity in a time, with a burst, and how long what exceeds it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds of a unit: a request, or a byte.
    interval: u64,
    /// The units that may come at once.
    burst: u64,
    /// How many nanoseconds a request may wait.
    delay: u64,
}

/// The decision about a request that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateDecision {
    /// The units that are left.
    pub remaining: u64,
    /// When the whole burst is there again.
    pub reset: Duration,
    /// How long the request has to wait first.
    pub wait: Duration,
}

/// By how much the clock of one worker may be behind that of another when it decides, in nanoseconds. A value that is further ahead than
/// a limit and this was written under another rate, before a reload: it means an empty burst.
const MAX_SKEW: u64 = 1_000_000_000;

impl Rate {
    /// So many units in a period, all of which may come at once. At least one unit.
    pub fn new(units: u64, period: Duration) -> Self {
        let units = units.max(1);
        Self {
            interval: (nanoseconds(period) / units).max(1),
            burst: units,
            delay: 0,
        }
    }

    /// Sets how many units may come at once. At least one.
    #[must_use]
    pub fn with_burst(mut self, units: u64) -> Self {
        self.burst = units.max(1);
        self
    }

    /// Lets what exceeds the burst wait for this long instead of being refused.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = nanoseconds(delay);
        self
    }

    /// The units that may come at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The time after which one more unit is there.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// The time after which the whole burst is there again.
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.whole())
    }

    /// How long a request may wait.
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    /// Takes units for a key at this time, which has the same beginning for all calls with a table.
    ///
    /// # Errors
    /// The limit is exceeded, and nothing was taken: how long until so many units are there, or may be waited for.
    pub fn take(
        &self,
        table: &KeyTable,
        key: Key,
        units: u64,
        now: Duration,
    ) -> Result<RateDecision, Duration> {
        let now = nanoseconds(now);
        let whole = self.whole();
        let most = whole.saturating_add(self.delay);
        let cost = self.interval.saturating_mul(units);
        let latest = now.saturating_add(most);
        let mut decision = Err(Duration::ZERO);
        // An error leaves the value as it is, which costs the other workers nothing.
        let _ = table.update(key, |held| {
            let written = held.unwrap_or_default();
            let is_foreign = written > latest.saturating_add(MAX_SKEW);
            let arrival = if is_foreign { latest } else { written.max(now) };
            let next = arrival.saturating_add(cost);
            let ahead = next.saturating_sub(now);
            if ahead > most {
                decision = Err(Duration::from_nanos(ahead.saturating_sub(most)));
                return if is_foreign { Ok(arrival) } else { Err(()) };
            }
            decision = Ok(RateDecision {
                remaining: whole.saturating_sub(ahead) / self.interval,
                reset: Duration::from_nanos(ahead),
                wait: Duration::from_nanos(ahead.saturating_sub(whole)),
            });
            Ok(next)
        });
        decision
    }

    /// Gives units back that were taken for something that does not count.
    pub fn give_back(&self, table: &KeyTable, key: Key, units: u64) {
        let cost = self.interval.saturating_mul(units);
        // A key that has given way has its whole burst anyway.
        let _ = table.update(key, |held| {
            held.map(|held| held.saturating_sub(cost)).ok_or(())
        });
    }

    /// Whether a unit is left for what is charged later, and takes nothing.
    ///
    /// # Errors
    /// None is: how long until one is there.
    pub fn check(
        &self,
        table: &KeyTable,
        key: Key,
        now: Duration,
    ) -> Result<RateDecision, Duration> {
        let (now, whole) = (nanoseconds(now), self.whole());
        let written = table.value(key).unwrap_or_default();
        let ahead = written.saturating_sub(now).min(self.most_charged());
        let exceeds = ahead.saturating_add(self.interval).saturating_sub(whole);
        if exceeds > 0 {
            return Err(Duration::from_nanos(exceeds));
        }
        Ok(RateDecision {
            remaining: whole.saturating_sub(ahead) / self.interval,
            reset: Duration::from_nanos(ahead),
            wait: Duration::ZERO,
        })
    }

    /// Takes units of which it was known only afterwards how many they are, also if they exceed what is left. More than ten times the burst
    /// is not owed.
    pub fn charge(&self, table: &KeyTable, key: Key, units: u64, now: Duration) {
        let now = nanoseconds(now);
        let cost = self.interval.saturating_mul(units);
        let latest = now.saturating_add(self.most_charged());
        let _ = table.update(key, |held| {
            let arrival = held.unwrap_or_default().max(now);
            Ok::<_, Infallible>(arrival.saturating_add(cost).min(latest))
        });
    }

    fn most_charged(&self) -> u64 {
        self.whole().saturating_mul(10)
    }

    fn whole(&self) -> u64 {
        self.interval.saturating_mul(self.burst)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_allowed_and_then_one_in_each_interval() {
        let (table, rate) = (KeyTable::new(10), Rate::new(10, 100 * MS).with_burst(3));
        let key = table.key("a");
        let take = |at: Duration| rate.take(&table, key, 1, at);
        assert_eq!(
            [take(MS), take(MS), take(MS)].map(|taken| taken.map(|left| left.remaining)),
            [Ok(2), Ok(1), Ok(0)]
        );
        assert_eq!(take(MS), Err(10 * MS));
        let moment = Duration::from_nanos(1);
        assert_eq!(take(11 * MS - moment), Err(moment));
        assert!(take(11 * MS).is_ok());
        assert_eq!(take(11 * MS), Err(10 * MS));
        // Another key has its own.
        assert!(rate.take(&table, table.key("b"), 3, MS).is_ok());
        // Never more than the burst, however long it was quiet.
        assert!(rate.take(&table, key, 4, 5000 * MS).is_err());
        assert!(rate.take(&table, key, 3, 5000 * MS).is_ok());
    }

    #[test]
    fn what_exceeds_the_burst_waits_in_order_for_no_longer_than_the_delay() {
        let table = KeyTable::new(10);
        let rate = Rate::new(10, SECOND).with_burst(1).with_delay(300 * MS);
        let key = table.key("a");
        let take = || rate.take(&table, key, 1, SECOND);
        for expected in [0, 100, 200, 300] {
            assert_eq!(take().unwrap().wait, expected * MS);
        }
        assert_eq!(take(), Err(100 * MS));
    }

    #[test]
    fn over_several_workers_a_limit_is_exact() {
        let (table, rate) = (KeyTable::new(100), Rate::new(100, SECOND));
        let key = table.key("a");
        for second in 0..5_u32 {
            let allowed = AtomicU64::new(0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for at in 0..1000 {
                            let now = SECOND * second + at * MS;
                            let taken = rate.take(&table, key, 1, now);
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

    #[test]
    fn a_rate_of_many_is_as_exact_as_one_of_few() {
        for per_second in [7, 100, 3000, 100_000, 900_000_u64] {
            let (table, rate) = (
                KeyTable::new(10),
                Rate::new(per_second, SECOND).with_burst(10),
            );
            let key = table.key("a");
            let mut allowed = 0_u64;
            for step in 0..200_000_u64 {
                let now = Duration::from_micros(step);
                allowed += u64::from(rate.take(&table, key, 1, now).is_ok());
            }
            let expected = per_second / 5 + 10;
            let difference = allowed.abs_diff(expected);
            // A nanosecond is a five-thousandth of the shortest interval.
            assert!(
                difference <= 2 + per_second / 5000,
                "{per_second}: {allowed}"
            );
        }
    }

    #[test]
    fn a_value_of_a_slower_rate_means_an_empty_burst_and_no_longer_wait() {
        let table = KeyTable::new(10);
        let key = table.key("a");
        let slow = Rate::new(10, Duration::from_secs(36_000));
        assert_eq!(
            (0..20)
                .filter(|_| slow.take(&table, key, 1, SECOND).is_ok())
                .count(),
            10
        );
        let fast = Rate::new(10, SECOND);
        let wait = fast.take(&table, key, 1, SECOND).unwrap_err();
        assert_eq!(wait, 100 * MS);
        assert!(fast.take(&table, key, 1, SECOND + 100 * MS).is_ok());
        assert!(fast.take(&table, key, 1, SECOND + 100 * MS).is_err());
        let _ = fast.take(&table, table.key("b"), 10, SECOND);
        assert!(slow.take(&table, table.key("b"), 9, SECOND).is_ok());
    }

    #[test]
    fn what_is_charged_later_is_refused_from_the_unit_that_exceeds_the_burst() {
        let (table, rate) = (KeyTable::new(10), Rate::new(10, SECOND).with_burst(3));
        let key = table.key("a");
        let left = |at| rate.check(&table, key, at).map(|left| left.remaining);
        for expected in [3, 3] {
            assert_eq!(left(SECOND), Ok(expected));
        }
        rate.charge(&table, key, 2, SECOND);
        assert_eq!(left(SECOND), Ok(1));
        rate.charge(&table, key, 1, SECOND);
        assert_eq!(left(SECOND), Err(100 * MS));
        assert_eq!(left(SECOND + 99 * MS), Err(MS));
        assert_eq!(left(SECOND + 100 * MS), Ok(1));
        // A charge is never refused, and no more is owed than ten bursts.
        rate.charge(&table, key, 10, SECOND);
        assert_eq!(left(SECOND), Err(1100 * MS));
        rate.charge(&table, key, 1_000_000, SECOND);
        assert_eq!(left(SECOND), Err(2800 * MS));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let (table, rate) = (KeyTable::new(10), Rate::new(3, SECOND));
        let key = table.key("a");
        let take = |units| rate.take(&table, key, units, SECOND).is_ok();
        assert!(take(3) && !take(1));
        rate.give_back(&table, key, 2);
        assert!(take(2) && !take(1));
        for _ in 0..10 {
            rate.give_back(&table, key, 3);
        }
        assert!(take(3) && !take(1));
        rate.give_back(&table, table.key("b"), 1);
        assert_eq!(table.value(table.key("b")), None);
    }
}
