//! The lines that a place may log now.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number of lines that grows with time, up to a burst. Threads share it without a lock.
pub(crate) struct LineBudget(
    /// The second of the last line above the lines that were left then; 0 before the first line.
    AtomicU64,
);

impl LineBudget {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes one line in the second `now`, which counts from 1; `false` if none is left.
    pub(crate) fn take(&self, now: u32, burst: u32, per_second: u32) -> bool {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                let [last, left] = parts(state);
                let left = match last {
                    0 => burst,
                    last => {
                        let seconds = now.saturating_sub(last);
                        left.saturating_add(seconds.saturating_mul(per_second))
                            .min(burst)
                    }
                };
                let left = left.checked_sub(1)?;
                Some(u64::from(now.max(last)) << 32 | u64::from(left))
            });
        taken.is_ok()
    }
}

/// The second, and the lines that are left.
fn parts(state: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = state.to_be_bytes();
    [
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_up_to_the_burst_and_come_back_with_time() {
        let budget = LineBudget::new();
        let take = |now| (0..1000).filter(|_| budget.take(now, 100, 10)).count();
        assert_eq!(take(7), 100);
        assert_eq!(take(7), 0);
        assert_eq!(take(8), 10);
        assert_eq!(take(9), 10);
        assert_eq!(take(12), 30);
        assert_eq!(take(1_000_000), 100);
        // A thread that has read an older time takes nothing more.
        assert_eq!(take(999_999), 0);
        assert_eq!(take(u32::MAX), 100);
    }
}
