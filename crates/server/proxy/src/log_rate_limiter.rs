//! A limit of log lines per second.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The most lines per second.
const MAX_LINES: u32 = 10;

const SECOND: Duration = Duration::from_secs(1);

/// The limiter of the log lines about one group on one worker. While an origin is down, every request would
/// log the same line.
#[derive(Debug)]
pub struct LogRateLimiter {
    since: Cell<Instant>,
    lines: Cell<u32>,
    withheld: Cell<u64>,
}

impl Default for LogRateLimiter {
    fn default() -> Self {
        Self {
            since: Cell::new(Instant::now()),
            lines: Cell::new(0),
            withheld: Cell::new(0),
        }
    }
}

impl LogRateLimiter {
    /// Returns the number of lines that were withheld before this one; `None` if this one is, too.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since.get()) >= SECOND {
            self.since.set(now);
            self.lines.set(0);
        }
        let lines = self.lines.get();
        if lines >= MAX_LINES {
            self.withheld.set(self.withheld.get().saturating_add(1));
            return None;
        }
        self.lines.set(lines.saturating_add(1));
        Some(self.withheld.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_lines_that_were_withheld() {
        let limiter = LogRateLimiter::default();
        let start = Instant::now();
        for _ in 0..MAX_LINES {
            assert_eq!(limiter.allow(start), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(limiter.allow(start), None);
        }
        assert_eq!(limiter.allow(start + SECOND), Some(5));
        assert_eq!(limiter.allow(start + SECOND), Some(0));
    }
}
