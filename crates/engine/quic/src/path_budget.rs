//! How often the client of a connection may use another address (RFC 9000 sections 9.3.1 and 21.5.3).

use std::time::{Duration, Instant};

/// Uses that are always possible after a while without any.
const MAX: u32 = 8;
/// The time after which one more use is possible.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the client of a connection may use another address.
///
/// Each time, packets go to an address that may be forged: the challenge or the response of the path, and up to three times
/// the bytes that came from there. A client that pretended to be at one address after another would multiply its traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathBudget {
    left: u32,
    /// From when on `left` grows.
    since: Instant,
}

impl PathBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: MAX,
            since: now,
        }
    }

    /// Whether a packet from another address may be handled.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        while self.left < MAX && now.saturating_duration_since(self.since) >= INTERVAL {
            self.left += 1;
            self.since += INTERVAL;
        }
        self.left > 0
    }

    /// Counts a packet of the client that came from another address.
    pub(crate) fn spend(&mut self, now: Instant) {
        if self.left == MAX {
            self.since = now;
        }
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_address_can_be_used_eight_times_and_once_a_second() {
        let start = Instant::now();
        let mut budget = PathBudget::new(start);
        let later = start + Duration::from_secs(100);
        for _ in 0..8 {
            assert!(budget.allows(later));
            budget.spend(later);
        }
        assert!(!budget.allows(later));
        assert!(!budget.allows(later + Duration::from_millis(999)));
        assert!(budget.allows(later + Duration::from_millis(1000)));
        budget.spend(later + Duration::from_millis(1000));
        assert!(!budget.allows(later + Duration::from_millis(1999)));
        assert!(budget.allows(later + Duration::from_secs(100)));
        for _ in 0..8 {
            budget.spend(later + Duration::from_secs(100));
        }
        assert!(!budget.allows(later + Duration::from_secs(100)));
    }
}
