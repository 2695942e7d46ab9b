//! Scanning again the directories that could not be read: descriptors or memory may have been short at the start.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::{StoreState, locked};
use super::Disk;

/// The time between a failed scan and the next.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// When directories are scanned again.
#[derive(Debug, Default)]
pub(crate) struct RescanSchedule {
    is_scheduled: bool,
    /// The time since the last scan of them; zero if nothing is left of earlier failures.
    delay: Duration,
}

impl RescanSchedule {
    /// How long the next scan waits; `None` if it is scheduled.
    fn schedule(&mut self) -> Option<Duration> {
        if self.is_scheduled {
            return None;
        }
        self.is_scheduled = true;
        self.delay = (self.delay.saturating_mul(2)).clamp(FIRST_DELAY, MAX_DELAY);
        Some(self.delay)
    }
}

/// Scans the directories that could not be read again after a while, if there are any.
pub(super) fn schedule_rescan(store: &Arc<StoreState>) {
    store.on_disk(|disk| {
        if !disk.index.has_unread() {
            locked(&disk.rescan).delay = Duration::ZERO;
            return;
        }
        if let Some(delay) = locked(&disk.rescan).schedule() {
            let store = Arc::downgrade(store);
            disk.pool.retry_after(delay, move || rescan(&store));
        }
    });
}

fn rescan(store: &Weak<StoreState>) {
    let Some(store) = store.upgrade() else {
        return;
    };
    store.on_disk(|disk| {
        locked(&disk.rescan).is_scheduled = false;
        disk.scan_unread(&store);
        schedule_rescan(&store);
    });
}

impl Disk {
    fn scan_unread(&self, shared: &StoreState) {
        for bucket in self.index.unread() {
            self.scan_again(shared, bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_scans_grows_and_there_is_one_at_a_time() {
        let mut schedule = RescanSchedule::default();
        let mut delays = Vec::new();
        for _ in 0..12 {
            delays.extend(schedule.schedule().map(|delay| delay.as_secs()));
            assert_eq!(schedule.schedule(), None);
            schedule.is_scheduled = false;
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }
}
