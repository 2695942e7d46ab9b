//! The clock for the age of stored responses (RFC 9111 section 4.2.3).
//!
//! It follows the system clock but never goes back: if the system clock is set back, it continues
//! with the monotonic clock, since stored responses would otherwise stay fresh for too long.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use crate::policy::Timestamp;

/// The current time, the same for all caches of the process.
pub(super) fn now() -> Timestamp {
    static CLOCK: LazyLock<(MonotonicClock, Instant)> =
        LazyLock::new(|| (MonotonicClock::default(), Instant::now()));
    let (clock, start) = &*CLOCK;
    // The system clock is read first, so that a pause between the two reads does not add time.
    let system = Timestamp::from(SystemTime::now());
    let elapsed = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    clock.at(system, elapsed)
}

/// A clock that does not go back.
#[derive(Debug, Default)]
struct MonotonicClock {
    /// The latest possible start of the monotonic clock, in milliseconds since 1970.
    start: AtomicU64,
}

impl MonotonicClock {
    /// The time at which the system clock shows `system`, `elapsed` milliseconds after the start.
    fn at(&self, system: Timestamp, elapsed: u64) -> Timestamp {
        let now = system.as_unix_millis().saturating_sub(elapsed);
        let mut start = self.start.load(Ordering::Relaxed);
        // A response that was received before the clock was set back stayed fresh for as long as it was set back.
        if start < now {
            start = self.start.fetch_max(now, Ordering::Relaxed).max(now);
        }
        Timestamp::from_unix_millis(start.saturating_add(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continues_if_the_system_clock_is_set_back_and_follows_if_it_is_set_ahead() {
        let clock = MonotonicClock::default();
        for (system, elapsed, expected) in [
            (1_000_000, 0, 1_000_000),
            (1_000_010, 10, 1_000_010),
            // Set back, by a little and by much.
            (1_000_019, 20, 1_000_020),
            (400_000, 30, 1_000_030),
            (401_000, 1030, 1_001_030),
            (0, 1040, 1_001_040),
            // Set to the right time.
            (1_001_050, 1050, 1_001_050),
            // Set ahead and back: a response that was stored before seems older than it is, not
            // younger.
            (5_000_000, 1060, 5_000_000),
            (1_001_070, 1070, 5_000_010),
        ] {
            let now = clock.at(Timestamp::from_unix_millis(system), elapsed);
            assert_eq!(now.as_unix_millis(), expected, "{system} {elapsed}");
        }
    }
}
