//! The time that tells how old stored responses are (RFC 9111 section 4.2.3).
//!
//! It is the system's, but never goes back: were it set back, what is stored would be younger than it
//! is, and fresh for longer. It goes on from where it was instead, as fast as the monotonic clock,
//! and follows the system's clock again when that is ahead.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use crate::policy::Timestamp;

/// The time of this process, for all its caches.
pub(super) fn now() -> Timestamp {
    static CLOCK: LazyLock<(Clock, Instant)> = LazyLock::new(|| (Clock::default(), Instant::now()));
    let (clock, start) = &*CLOCK;
    // In this order: a pause between them makes no time that was not there.
    let system = Timestamp::from(SystemTime::now());
    let elapsed = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    clock.at(system, elapsed)
}

/// A clock that does not go back.
#[derive(Debug, Default)]
struct Clock {
    /// The latest time, in milliseconds, that the start of the monotonic clock can have been.
    start: AtomicU64,
}

impl Clock {
    /// The time when the system's clock says `system`, so many milliseconds after the start.
    fn at(&self, system: Timestamp, elapsed: u64) -> Timestamp {
        let now = system.as_unix_millis().saturating_sub(elapsed);
        let mut start = self.start.load(Ordering::Relaxed);
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
    fn a_clock_set_back_goes_on_and_one_set_ahead_is_followed() {
        let clock = Clock::default();
        for (system, elapsed, expected) in [
            (1_000_000, 0, 1_000_000),
            (1_000_010, 10, 1_000_010),
            // Set back, by a little and by much.
            (1_000_019, 20, 1_000_020),
            (400_000, 30, 1_000_030),
            (401_000, 1030, 1_001_030),
            (0, 1040, 1_001_040),
            // Set right.
            (1_001_050, 1050, 1_001_050),
            // Set ahead, and back: what was stored before is older than it is rather than younger.
            (5_000_000, 1060, 5_000_000),
            (1_001_070, 1070, 5_000_010),
        ] {
            let now = clock.at(Timestamp::from_unix_millis(system), elapsed);
            assert_eq!(now.as_unix_millis(), expected, "{system} {elapsed}");
        }
    }
}
