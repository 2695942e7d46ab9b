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
        // The last check, which ends the state of failure, may have been before a worker proved to work.
        let is_proven = self.has_proven_worker(Instant::now());
        let is_lost = match end {
            BootEnd::Complete => false,
            BootEnd::Unreachable => self.has_booted,
            BootEnd::CutOff => true,
            BootEnd::Unused => is_proven || self.unused_workers <= MAX_UNUSED,
        };
        let limit = MAX_INTERRUPTION.min(self.shared.plan.boot_limit);
        is_lost
            && (is_proven || self.failures == 0)
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
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::mpsc;

    use super::super::WorkerPhase;
    use super::*;
    use crate::connection::WorkerConnection;
    use crate::error::WorkerError;
    use crate::plan::WorkerPoolPlan;
    use crate::record::WorkerId;
    use crate::shared::{LeaseResult, SharedPool};
    use crate::supervisor_message::SupervisorMessage;
    use crate::wire::ReadyFrame;

    /// Runs a test with a supervisor that does not run: it makes only the checks of the test.
    fn with_supervisor(test: impl FnOnce(Supervisor)) {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(async {
            let (sender, messages) = mpsc::unbounded_channel();
            let plan = WorkerPoolPlan {
                min: 1,
                ..WorkerPoolPlan::without_php(folder.path())
            };
            let shared = Arc::new(SharedPool::new(plan, sender, None));
            test(Supervisor::new(shared, messages).unwrap());
        });
    }

    /// Runs a test with a worker that booted after `before` and got a request, which no check has seen.
    fn with_busy_worker(
        before: impl FnOnce(&mut Supervisor),
        test: impl FnOnce(Supervisor, WorkerId, WorkerConnection),
    ) {
        with_supervisor(|mut supervisor| {
            before(&mut supervisor);
            supervisor.next_boot = Instant::now();
            supervisor.reconcile();
            let id = supervisor.last_id;
            let (connection, _peer) = WorkerConnection::with_peer(id);
            let worker = supervisor.workers.get_mut(&id).unwrap();
            worker.phase = WorkerPhase::Booting;
            worker.record = Some(Arc::clone(&connection.record));
            supervisor.worker_booted(connection, ReadyFrame::default());
            let mut request = WaitingRequest::new(&supervisor);
            let Poll::Ready(Ok(lease)) = request.poll() else {
                panic!("the worker does not get the request");
            };
            test(supervisor, id, lease.begin().unwrap());
        });
    }

    /// A request that waits for a worker.
    struct WaitingRequest(Pin<Box<dyn Future<Output = LeaseResult>>>);

    impl WaitingRequest {
        fn new(supervisor: &Supervisor) -> Self {
            let shared = Arc::clone(&supervisor.shared);
            Self(Box::pin(async move { shared.lease().await }))
        }

        fn poll(&mut self) -> Poll<LeaseResult> {
            let mut cx = Context::from_waker(Waker::noop());
            self.0.as_mut().poll(&mut cx)
        }
    }

    impl Supervisor {
        fn fail_boot_of_application(&mut self) {
            self.handle_lost_worker(BootEnd::Complete, "it does not boot".into());
        }

        /// Loses workers before their first request.
        fn lose_unused_workers(&mut self, count: u32) {
            for _ in 0..count {
                // Each had booted, which ended the interruption before.
                self.interruption = None;
                self.handle_lost_worker(BootEnd::Unused, "it ended".into());
            }
        }

        /// Cuts off the boot of the worker that was requested last.
        fn cut_off_boot(&mut self) {
            let id = self.last_id;
            let worker = self.workers.get_mut(&id).unwrap();
            assert_eq!(worker.phase, WorkerPhase::Requested);
            worker.output.borrow_mut().end = BootEnd::CutOff;
            // The second time, no HELLO can come any more.
            self.boot_request_ended(id);
            self.boot_request_ended(id);
            assert!(!self.workers.contains_key(&id));
        }

        fn boot_failures(&self) -> u64 {
            self.shared.counters.boot_failures.load(Relaxed)
        }
    }

    /// Whether a request still waits after this number of workers ended in a row before their first request.
    fn request_waits_after(unused_workers: u32) -> bool {
        let mut waits = false;
        with_supervisor(|mut supervisor| {
            let mut request = WaitingRequest::new(&supervisor);
            assert!(request.poll().is_pending());
            supervisor.lose_unused_workers(unused_workers);
            waits = request.poll().is_pending();
            assert_eq!(supervisor.boot_failures(), u64::from(!waits));
        });
        waits
    }

    #[test]
    fn requests_wait_until_too_many_workers_in_a_row_end_before_their_first_request() {
        assert!(request_waits_after(MAX_UNUSED - 1));
        assert!(request_waits_after(MAX_UNUSED));
        assert!(!request_waits_after(MAX_UNUSED + 1));
    }

    #[test]
    fn a_worker_that_had_a_request_resets_the_count_of_unused_workers() {
        with_busy_worker(
            |supervisor| supervisor.lose_unused_workers(MAX_UNUSED),
            |mut supervisor, id, connection| {
                supervisor.shared.discard(&connection);
                supervisor.boot_request_ended(id);
                let mut request = WaitingRequest::new(&supervisor);
                assert!(request.poll().is_pending());
                supervisor.lose_unused_workers(MAX_UNUSED);
                assert!(request.poll().is_pending());
                assert_eq!(supervisor.boot_failures(), 0);
            },
        );
    }

    #[test]
    fn an_unused_worker_that_ends_while_another_has_a_request_is_no_failure() {
        with_busy_worker(
            |supervisor| supervisor.lose_unused_workers(MAX_UNUSED),
            |mut supervisor, _, connection| {
                supervisor.shared.discard(&connection);
                supervisor.lose_unused_workers(1);
                assert_eq!(supervisor.boot_failures(), 0);
            },
        );
    }

    #[test]
    fn a_boot_that_is_cut_off_after_a_failure_is_one_more_failure() {
        with_supervisor(|mut supervisor| {
            supervisor.fail_boot_of_application();
            supervisor.next_boot = Instant::now();
            supervisor.check();
            let mut request = WaitingRequest::new(&supervisor);
            assert!(request.poll().is_pending());
            supervisor.cut_off_boot();
            let result = request.poll();
            assert!(matches!(result, Poll::Ready(Err(WorkerError::Boot { .. }))));
            assert_eq!(supervisor.boot_failures(), 2);
        });
    }

    #[test]
    fn requests_wait_for_a_restart_right_after_the_first_request_since_a_failure() {
        with_busy_worker(
            Supervisor::fail_boot_of_application,
            |mut supervisor, id, connection| {
                supervisor.shared.discard(&connection);
                supervisor.boot_request_ended(id);
                let mut request = WaitingRequest::new(&supervisor);
                assert!(request.poll().is_pending());
                supervisor.cut_off_boot();
                assert!(request.poll().is_pending());
                assert_eq!(supervisor.boot_failures(), 1);
            },
        );
    }

    #[test]
    fn requests_wait_for_a_restart_that_cuts_off_a_boot_before_it_ends_a_busy_worker() {
        with_busy_worker(
            Supervisor::fail_boot_of_application,
            |mut supervisor, id, connection| {
                let mut request = WaitingRequest::new(&supervisor);
                assert!(request.poll().is_pending());
                supervisor.reconcile();
                supervisor.shared.discard(&connection);
                supervisor.cut_off_boot();
                supervisor.boot_request_ended(id);
                assert!(request.poll().is_pending());
                assert_eq!(supervisor.boot_failures(), 1);
            },
        );
    }

    #[test]
    fn requests_wait_for_a_restart_after_a_worker_that_stopped_after_one_request() {
        with_busy_worker(
            Supervisor::fail_boot_of_application,
            |mut supervisor, id, connection| {
                supervisor.handle(SupervisorMessage::Leaving(connection));
                supervisor.boot_request_ended(id);
                let mut request = WaitingRequest::new(&supervisor);
                assert!(request.poll().is_pending());
                supervisor.cut_off_boot();
                assert!(request.poll().is_pending());
                assert_eq!(supervisor.boot_failures(), 1);
            },
        );
    }
}
