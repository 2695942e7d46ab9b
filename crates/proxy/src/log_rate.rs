//! A limit of log lines per group of origins.
//!
//! With an origin that is down every request has something to log, and always the same.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Lines in a second.
const LINES: u32 = 10;

const SECOND: Duration = Duration::from_secs(1);

/// Counts the lines of one group on one worker.
#[derive(Debug)]
pub struct LogRate {
    since: Cell<Instant>,
    lines: Cell<u32>,
    withheld: Cell<u64>,
}

impl Default for LogRate {
    fn default() -> Self {
        Self {
            since: Cell::new(Instant::now()),
            lines: Cell::new(0),
            withheld: Cell::new(0),
        }
    }
}

impl LogRate {
    /// Whether a line may be written now; and how many were withheld before it, to be told with it.
    pub fn allows(&self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since.get()) >= SECOND {
            self.since.set(now);
            self.lines.set(0);
        }
        let lines = self.lines.get();
        if lines >= LINES {
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
    fn tells_how_many_lines_were_withheld() {
        let rate = LogRate::default();
        let start = Instant::now();
        for _ in 0..LINES {
            assert_eq!(rate.allows(start), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(rate.allows(start), None);
        }
        assert_eq!(rate.allows(start + SECOND), Some(5));
        assert_eq!(rate.allows(start + SECOND), Some(0));
    }
}
