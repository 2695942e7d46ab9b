//! Boots that end because the FastCGI server restarts, which are no failures of the application.

use std::time::{Duration, Instant};

use super::Supervisor;
use super::boot::BootEnd;
use crate::plan::Launch;

/// A series of interrupted boots.
pub(super) struct Interruption {
    since: Instant,
    attempts: u32,
}

/// The delay after an interrupted boot, which doubles each time up to a maximum.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The maximum duration of an interruption, if the boot limit is not shorter. From then on boots count as failed.
const MAX_INTERRUPTION: Duration = Duration::from_secs(10);

/// The number of workers that may end in a row before their first request. A FastCGI server that restarts ends
/// workers that have just booted; if more workers end, the application does not work.
const MAX_UNUSED: u32 = 8;

impl Supervisor {
    /// Whether a boot with this end was interrupted: it is tried again soon, while requests keep waiting. A server
    /// that is unreachable was interrupted only if it was reachable before.
    pub(super) fn is_interrupted(&self, end: BootEnd) -> bool {
        let is_lost = match end {
            BootEnd::Complete => false,
            BootEnd::Unreachable => self.has_booted,
            BootEnd::CutOff => true,
            BootEnd::Unused => self.unused_workers <= MAX_UNUSED,
        };
        let limit = MAX_INTERRUPTION.min(self.shared.plan.boot_limit);
        is_lost
            && self.failures == 0
            && matches!(self.shared.plan.launch, Launch::FastCgiServer(_))
            && (self.interruption.as_ref())
                .is_none_or(|interruption| interruption.since.elapsed() < limit)
    }

    /// Schedules the next attempt. Requests keep waiting.
    pub(super) fn retry_interrupted_boot(&mut self, message: &str) {
        let now = Instant::now();
        let interruption = self.interruption.get_or_insert_with(|| {
            tracing::warn!(
                pool = &*self.shared.plan.name,
                "a worker's boot was cut off and is tried again: {message}"
            );
            Interruption {
                since: now,
                attempts: 0,
            }
        });
        let delay = MIN_RETRY_DELAY
            .saturating_mul(1 << interruption.attempts.min(10))
            .min(MAX_RETRY_DELAY);
        interruption.attempts = interruption.attempts.saturating_add(1);
        self.next_boot = now + delay;
    }
}
