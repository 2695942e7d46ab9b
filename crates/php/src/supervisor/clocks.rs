//! What is due at some time, and when to look next: a pool that has nothing to do does nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{PROBATION, Phase, Supervisor};
use crate::error::Failure;
use crate::plan::Launch;
use crate::record::WorkerId;
use crate::shared::{Closed, count};

/// For how long what is due may wait for the next look, so that there are not too many. While something is
/// replaced, it is looked at so often.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// How often requests are looked at, so that they need not tell when they come and go. No limit of theirs is
/// missed: where one is shorter, they are looked at that often.
const WATCH: Duration = Duration::from_secs(1);

impl Supervisor {
    /// When to look next, if nobody tells anything until then.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let plan = &self.shared.plan;
        let soon = self.looked + PATIENCE;
        let is_on_probation = || self.boots.values().any(|boot| boot.phase == Phase::Ready);
        let is_changing = self.stopping.is_some()
            || self.rolling.is_some()
            || self.masters.len() > 1
            || (self.failures > 0 && is_on_probation());
        if is_changing {
            return Some(soon);
        }
        let is_without_php = matches!(plan.launch, Launch::Own(_)) && self.masters.is_empty();
        let to_boot = (is_without_php || self.next_boot > self.looked).then_some(self.next_boot);
        let starting = self.boots.values().filter(|boot| boot.phase.is_starting());
        let boots = starting.filter_map(|boot| boot.since.checked_add(plan.boot_limit));
        let records = self.boots.values().filter_map(|boot| boot.record.as_ref());
        let hanging = records
            .filter(|record| !plan.execution_limit.is_zero() && !record.is_killed())
            .filter_map(|record| record.awaited_since()?.checked_add(plan.execution_limit));
        let state = self.shared.state();
        let has_surplus = state.workers.len() > plan.min;
        let resting = state.idle.iter().flat_map(|idle| {
            let unused = idle.since.checked_add(plan.idle_limit);
            [
                unused.filter(|_| has_surplus),
                idle.connection.record.old_at(),
            ]
        });
        let waiting = (state.line.since()).and_then(|since| since.checked_add(plan.queue_limit));
        let limit = Some(plan.execution_limit).filter(|limit| !limit.is_zero());
        let watch = WATCH.min(plan.queue_limit).min(limit.unwrap_or(WATCH));
        let watch = state.is_watched.then(|| self.looked + watch);
        let next = (boots.chain(hanging).chain(resting.flatten()))
            .chain(
                [to_boot, self.tasks.next(), waiting, watch]
                    .into_iter()
                    .flatten(),
            )
            .min();
        next.map(|next| next.max(soon))
    }

    /// Does what is due.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        self.looked = now;
        self.tasks.tick();
        self.look_at_requests(now);
        self.look_at_boots(now);
        self.watch_masters();
        self.shrink(now);
        self.roll(now);
        self.reconcile();
        if self.stopping.is_some() {
            self.end_all();
        }
        if let Some(stopping) = &self.stopping
            && now >= stopping.until
        {
            self.shared.state().line.dismiss(|| Err(Failure::Stopping));
            for boot in self.boots.values() {
                if let Some(record) = &boot.record {
                    record.kill();
                }
                boot.request.abort();
            }
            self.boots.clear();
        }
    }

    /// Kills who works on a request for too long, and refuses requests that waited for too long.
    fn look_at_requests(&self, now: Instant) {
        let shared = &self.shared;
        let plan = &shared.plan;
        let is_over = |since: Instant| now.duration_since(since) >= plan.execution_limit;
        if !plan.execution_limit.is_zero() {
            for boot in self.boots.values() {
                if let Some(record) = &boot.record
                    && record.awaited_since().is_some_and(is_over)
                    && !record.is_killed()
                {
                    count(&shared.totals.timeouts);
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
        let expired = (state.line).expire(now, plan.queue_limit, || Err(Failure::QueueTimedOut));
        // Requests may try again after a failure.
        if now >= self.next_boot && matches!(state.closed, Closed::Boot { .. }) {
            state.closed = Closed::No;
        }
        state.is_watched = state.line.len() > 0 || state.idle.len() < state.workers.len();
        drop(state);
        shared.totals.queue_timed_out.fetch_add(expired, Relaxed);
    }

    /// Gives up boots that take too long, and takes those for good that work.
    fn look_at_boots(&mut self, now: Instant) {
        let limit = self.shared.plan.boot_limit;
        let late: Vec<WorkerId> = self
            .boots
            .iter()
            .filter(|(_, boot)| boot.phase.is_starting() && now.duration_since(boot.since) >= limit)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let message = match self.boots.get(&id).map(|boot| boot.phase) {
                Some(Phase::Called) => "no process took the boot in time: all are busy, or too few",
                _ => "the application did not boot in time",
            };
            self.not_booted(id, message.to_owned());
        }
        // Of the code that is loaded now: old workers that go on beside a failed reload prove nothing.
        let generation = self.generation;
        let is_proven = self.boots.values().any(|boot| {
            let record = boot.record.as_ref();
            boot.generation == generation
                && boot.phase == Phase::Ready
                && (record.is_some_and(|record| record.requests() > 0)
                    || now.duration_since(boot.since) >= PROBATION)
        });
        if is_proven {
            self.unused = 0;
        }
        if self.failures > 0 && is_proven {
            self.failures = 0;
            self.logged = None;
        }
    }

    /// Has one worker go that had nothing to do for long, or is old.
    fn shrink(&mut self, now: Instant) {
        let plan = &self.shared.plan;
        let mut state = self.shared.state();
        let surplus = state.workers.len() > plan.min;
        let place = state.idle.iter().position(|idle| {
            let is_unused = surplus && now.duration_since(idle.since) >= plan.idle_limit;
            is_unused || idle.connection.record.is_spent()
        });
        let Some(place) = place else {
            return;
        };
        let idle = state.idle.remove(place);
        drop(state);
        self.end(idle.connection, true);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::Path;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use tokio::sync::mpsc;

    use super::*;
    use crate::plan::{Leaks, Mode, PoolPlan, Recycle};
    use crate::shared::Shared;

    /// Of a FastCGI server that nobody asks, as no worker is wanted.
    fn plan(folder: &Path) -> PoolPlan {
        let limit = Duration::from_secs(30);
        PoolPlan {
            name: "test".into(),
            launch: Launch::Server(super::super::unix(&folder.join("none.sock"))),
            mode: Mode::Classic,
            script: folder.to_owned(),
            root: folder.to_owned(),
            min: 0,
            max: 2,
            recycle: Recycle::default(),
            execution_limit: limit,
            boot_limit: limit,
            idle_limit: limit,
            stop_limit: limit,
            queue: 10,
            queue_limit: limit,
            tasks: 10,
            development: false,
            leaks: Leaks::Warn,
            folder: folder.join("run"),
        }
    }

    #[test]
    fn a_pool_is_looked_at_while_requests_are_there_and_the_first_of_them_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(async {
            let (signals, received) = mpsc::unbounded_channel();
            let shared = Arc::new(Shared::new(plan(folder.path()), signals, None));
            let mut supervisor = Supervisor::new(Arc::clone(&shared), received).unwrap();
            let mut cx = Context::from_waker(Waker::noop());
            let mut is_told = || {
                let told = pin!(shared.wanted.notified()).poll(&mut cx);
                told.is_ready()
            };
            supervisor.look();
            assert_eq!(supervisor.next_look(), None);
            assert!(!is_told());
            let mut cx = Context::from_waker(Waker::noop());
            let mut first = Box::pin(shared.lease());
            let mut second = Box::pin(shared.lease());
            assert!(first.as_mut().poll(&mut cx).is_pending());
            assert!(is_told());
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert!(!is_told());
            assert_eq!(supervisor.next_look(), Some(supervisor.looked + WATCH));
            drop((first, second));
            supervisor.look();
            assert_eq!(supervisor.next_look(), None);
        });
    }
}
