//! Boots that the server which runs PHP cut off: it begins anew, and the application is not to blame.

use std::time::{Duration, Instant};

use super::Supervisor;
use super::boot::BootEnding;
use crate::plan::Launch;

/// Boots that were cut off one after another.
pub(super) struct Interruption {
    since: Instant,
    times: u32,
}

/// Between two boots that are cut off: twice as long each time, up to this.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LAST_DELAY: Duration = Duration::from_secs(1);

/// For how long they are taken for an interruption; no longer than the application may take to boot. From
/// then on the pool counts as one that does not boot.
const LONGEST: Duration = Duration::from_secs(10);

/// Workers that may end one after another before their first request. A server that begins anew ends those
/// that have just booted; an application that has more of them end does not work.
const MAX_UNUSED: u32 = 8;

impl Supervisor {
    /// Whether a boot that ended so is tried again at once, while requests go on waiting. A server that
    /// nobody can reach is one that was interrupted only where it was there before.
    pub(super) fn is_interrupted(&self, ending: BootEnding) -> bool {
        let is_lost = match ending {
            BootEnding::InOrder => false,
            BootEnding::Unreachable => self.has_booted,
            BootEnding::CutOff => true,
            BootEnding::Unused => self.unused <= MAX_UNUSED,
        };
        let longest = LONGEST.min(self.shared.plan.boot_limit);
        is_lost
            && self.failures == 0
            && matches!(self.shared.plan.launch, Launch::Server(_))
            && (self.interruption.as_ref()).is_none_or(|begun| begun.since.elapsed() < longest)
    }

    /// Tries again a little later. Who waits goes on waiting.
    pub(super) fn boot_interrupted(&mut self, message: &str) {
        let now = Instant::now();
        let begun = self.interruption.get_or_insert_with(|| {
            tracing::warn!(
                pool = &*self.shared.plan.name,
                "a worker's boot was cut off and is tried again: {message}"
            );
            Interruption {
                since: now,
                times: 0,
            }
        });
        let delay = FIRST_DELAY
            .saturating_mul(1 << begun.times.min(10))
            .min(LAST_DELAY);
        begun.times = begun.times.saturating_add(1);
        self.next_boot = now + delay;
    }
}
