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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::{Context, Waker};

    use tokio::sync::mpsc;

    use super::*;
    use crate::plan::WorkerPoolPlan;
    use crate::shared::SharedPool;

    /// Runs a test with a supervisor that does not run: nothing happens but what the test does.
    fn with_supervisor(test: impl FnOnce(Supervisor)) {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(async {
            let (sender, messages) = mpsc::unbounded_channel();
            let plan = WorkerPoolPlan::without_php(folder.path());
            let shared = Arc::new(SharedPool::new(plan, sender, None));
            test(Supervisor::new(shared, messages).unwrap());
        });
    }

    /// Whether a request still waits after this number of workers ended in a row before their first request.
    fn request_waits_after(unused_workers: u32) -> bool {
        let mut waits = false;
        with_supervisor(|mut supervisor| {
            let shared = Arc::clone(&supervisor.shared);
            let mut cx = Context::from_waker(Waker::noop());
            let mut request = Box::pin(shared.lease());
            assert!(request.as_mut().poll(&mut cx).is_pending());
            for _ in 0..unused_workers {
                // The worker had booted, which ended the interruption before.
                supervisor.interruption = None;
                supervisor.handle_lost_worker(BootEnd::Unused, "it ended".into());
            }
            waits = request.as_mut().poll(&mut cx).is_pending();
            let failures = shared.counters.boot_failures.load(Relaxed);
            assert_eq!(failures, u64::from(!waits));
        });
        waits
    }

    #[test]
    fn requests_wait_until_too_many_workers_in_a_row_end_before_their_first_request() {
        assert!(request_waits_after(MAX_UNUSED - 1));
        assert!(request_waits_after(MAX_UNUSED));
        assert!(!request_waits_after(MAX_UNUSED + 1));
    }
}
