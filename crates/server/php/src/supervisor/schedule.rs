//! The time limits of a pool, and when to check them next: an idle pool wakes up for nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{Supervisor, WorkerPhase};
use crate::error::WorkerError;
use crate::plan::Launch;
use crate::record::WorkerId;
use crate::shared::{PoolAdmission, increment};

/// The minimum time between two checks, and their interval during a reload or a shutdown.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The interval of checks while there are requests, which need not report when they begin and end. A limit that
/// is shorter shortens the interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Supervisor {
    /// The time of the next check, if no message comes before.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let plan = &self.shared.plan;
        let soon = self.last_check + MIN_INTERVAL;
        let is_on_probation = || {
            self.workers
                .values()
                .any(|worker| worker.phase == WorkerPhase::Ready)
        };
        let is_changing = self.shutdown.is_some()
            || self.reload.is_some()
            || self.masters.len() > 1
            || (self.failures > 0 && is_on_probation());
        if is_changing {
            return Some(soon);
        }
        let is_without_php = matches!(plan.launch, Launch::PhpCgi(_)) && self.masters.is_empty();
        let to_boot =
            (is_without_php || self.next_boot > self.last_check).then_some(self.next_boot);
        let starting = self
            .workers
            .values()
            .filter(|worker| worker.phase.is_starting());
        let boots = starting.filter_map(|worker| worker.since.checked_add(plan.boot_limit));
        let records = self
            .workers
            .values()
            .filter_map(|worker| worker.record.as_ref());
        let hanging = records
            .filter(|record| !plan.execution_limit.is_zero() && !record.is_killed())
            .filter_map(|record| record.executing_since()?.checked_add(plan.execution_limit));
        let state = self.shared.state();
        let has_surplus = state.workers.len() > plan.min;
        let resting = state.idle.iter().flat_map(|idle| {
            let unused = idle.since.checked_add(plan.idle_limit);
            [
                unused.filter(|_| has_surplus),
                idle.connection.record.expires_at(),
            ]
        });
        let waiting = state
            .queue
            .oldest()
            .and_then(|since| since.checked_add(plan.queue_limit));
        let limit = Some(plan.execution_limit).filter(|limit| !limit.is_zero());
        let watch = CHECK_INTERVAL
            .min(plan.queue_limit)
            .min(limit.unwrap_or(CHECK_INTERVAL));
        let watch = state.is_watched.then(|| self.last_check + watch);
        let next = (boots.chain(hanging).chain(resting.flatten()))
            .chain(
                [to_boot, self.tasks.next(), waiting, watch]
                    .into_iter()
                    .flatten(),
            )
            .min();
        next.map(|next| next.max(soon))
    }

    /// Enforces the limits and starts due tasks and workers.
    pub(super) fn check(&mut self) {
        let now = Instant::now();
        self.last_check = now;
        self.tasks.tick();
        self.check_requests(now);
        self.check_boots(now);
        self.watch_masters();
        self.retire_surplus(now);
        self.make_room_for_reload(now);
        self.reconcile();
        if self.shutdown.is_some() {
            self.stop_workers();
        }
        if let Some(shutdown) = &self.shutdown
            && now >= shutdown.until
        {
            self.shared.state().fail_queued(|| WorkerError::Stopping);
            for worker in self.workers.values() {
                if let Some(record) = &worker.record {
                    record.kill();
                }
                worker.request.abort();
            }
            self.workers.clear();
        }
    }

    /// Kills workers that handle a request for too long, and fails requests that waited for too long.
    fn check_requests(&self, now: Instant) {
        let shared = &self.shared;
        let plan = &shared.plan;
        let is_over = |since: Instant| now.duration_since(since) >= plan.execution_limit;
        if !plan.execution_limit.is_zero() {
            for worker in self.workers.values() {
                if let Some(record) = &worker.record
                    && record.executing_since().is_some_and(is_over)
                    && !record.is_killed()
                {
                    increment(&shared.counters.timeouts);
                    tracing::error!(
                        pool = &*plan.name,
                        pid = record.pid_number(),
                        seconds = plan.execution_limit.as_secs(),
                        "PHP worked on a request for too long and is killed"
                    );
                    record.kill();
                }
            }
        }
        let mut state = shared.state();
        let expired = state.expire_queued(now, plan.queue_limit);
        // Requests may try again after a failure.
        if now >= self.next_boot && matches!(state.admission, PoolAdmission::BootFailed { .. }) {
            state.admission = PoolAdmission::Open;
        }
        state.is_watched = !state.queue.is_empty() || state.idle.len() < state.workers.len();
        drop(state);
        shared.counters.queue_timed_out.fetch_add(expired, Relaxed);
    }

    /// Fails boots that take too long, and ends the state of failure once a worker has proved to work.
    fn check_boots(&mut self, now: Instant) {
        let limit = self.shared.plan.boot_limit;
        let late: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| {
                worker.phase.is_starting() && now.duration_since(worker.since) >= limit
            })
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.fail_late_boot(id);
        }
        if self.has_proven_worker(now) {
            self.reset_failures();
        }
    }

    /// Whether a worker that has not ended has proved to work.
    pub(super) fn has_proven_worker(&self, now: Instant) -> bool {
        let mut workers = self.workers.values();
        workers.any(|worker| worker.is_proven(self.generation, now))
    }

    /// Ends the state of failure, as a worker has proved to work.
    pub(super) fn reset_failures(&mut self) {
        self.unused_workers = 0;
        if self.failures > 0 {
            self.failures = 0;
            self.logged_failure = None;
        }
    }

    /// Stops one worker that is beyond the minimum and was idle for long, or that is to be recycled.
    fn retire_surplus(&mut self, now: Instant) {
        let plan = &self.shared.plan;
        let mut state = self.shared.state();
        let surplus = state.workers.len() > plan.min;
        let index = state.idle.iter().position(|idle| {
            let is_unused = surplus && now.duration_since(idle.since) >= plan.idle_limit;
            is_unused || idle.connection.record.must_recycle()
        });
        let Some(index) = index else {
            return;
        };
        let idle = state.idle.remove(index);
        drop(state);
        self.stop_worker(idle.connection, true);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use tokio::sync::mpsc;

    use super::*;
    use crate::plan::WorkerPoolPlan;
    use crate::shared::SharedPool;

    #[test]
    fn a_pool_is_checked_while_it_has_requests_and_the_first_wakes_the_supervisor() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(async {
            let (sender, messages) = mpsc::unbounded_channel();
            let shared = Arc::new(SharedPool::new(
                WorkerPoolPlan::without_php(folder.path()),
                sender,
                None,
            ));
            let mut supervisor = Supervisor::new(Arc::clone(&shared), messages).unwrap();
            let mut cx = Context::from_waker(Waker::noop());
            let mut is_woken = || {
                let notified = pin!(shared.supervisor_wakeup.notified()).poll(&mut cx);
                notified.is_ready()
            };
            supervisor.check();
            assert_eq!(supervisor.next_check(), None);
            assert!(!is_woken());
            let mut cx = Context::from_waker(Waker::noop());
            let mut first = Box::pin(shared.lease());
            let mut second = Box::pin(shared.lease());
            assert!(first.as_mut().poll(&mut cx).is_pending());
            assert!(is_woken());
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert!(!is_woken());
            assert_eq!(
                supervisor.next_check(),
                Some(supervisor.last_check + CHECK_INTERVAL)
            );
            drop((first, second));
            supervisor.check();
            assert_eq!(supervisor.next_check(), None);
        });
    }
}
