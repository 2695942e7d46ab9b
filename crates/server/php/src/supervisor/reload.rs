//! A rolling reload of an application: each new worker that is booted replaces an old one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Supervisor, WorkerPhase, resolve};
use crate::shared::{PoolAdmission, increment};

/// A reload in progress.
pub(super) struct RollingReload {
    /// The number of new workers.
    pub(super) target: usize,
    replies: Vec<oneshot::Sender<Result<(), Arc<str>>>>,
    /// When the reload last made progress.
    last_progress: Instant,
}

/// The time without progress after which an old worker is stopped: if all processes of a FastCGI server are
/// workers, it cannot boot another.
const STALL: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Begins to reload the application.
    pub(super) fn begin_reload(&mut self, reply: Option<oneshot::Sender<Result<(), Arc<str>>>>) {
        let mut replies: Vec<_> = reply.into_iter().collect();
        let script = match resolve(&self.shared.plan.script) {
            Ok(script) => script,
            Err(error) => return fail(replies, &error.to_string()),
        };
        // A reload in progress may have loaded files that changed since.
        if let Some(before) = self.reload.take() {
            replies.extend(before.replies);
        }
        increment(&self.shared.counters.reloads);
        self.script = script;
        self.generation += 1;
        self.failures = 0;
        self.unused_workers = 0;
        self.interruption = None;
        self.next_boot = Instant::now();
        if let Err(error) = self.start_master() {
            self.generation -= 1;
            return fail(replies, &format!("PHP cannot be started: {error}"));
        }
        for worker in self.workers.values_mut() {
            if worker.phase.is_starting() {
                // It may have loaded the old files.
                worker.phase = WorkerPhase::Stopping;
                match &worker.record {
                    Some(record) => record.disconnect(),
                    None => worker.request.abort(),
                }
            }
        }
        self.workers
            .retain(|_, worker| worker.phase != WorkerPhase::Stopping || worker.record.is_some());
        let mut state = self.shared.state();
        let ready = state.workers.len();
        if matches!(state.admission, PoolAdmission::BootFailed { .. }) {
            state.admission = PoolAdmission::Open;
        }
        drop(state);
        let plan = &self.shared.plan;
        let target = ready.max(plan.min).min(plan.max);
        tracing::info!(
            pool = &*plan.name,
            script = %self.script.display(),
            workers = target,
            "the application is reloaded"
        );
        if target == 0 {
            for reply in replies {
                let _ = reply.send(Ok(()));
            }
            return;
        }
        self.reload = Some(RollingReload {
            target,
            replies,
            last_progress: Instant::now(),
        });
        self.reconcile();
    }

    /// Stops an old worker for a new one that is booted, and ends the reload after the last.
    pub(super) fn replace_old_worker(&mut self) {
        let Some(reload) = &mut self.reload else {
            return;
        };
        reload.last_progress = Instant::now();
        let generation = self.generation;
        let new = self
            .workers
            .values()
            .filter(|worker| worker.generation == generation && worker.phase == WorkerPhase::Ready)
            .count();
        if new < reload.target {
            self.retire_old(1);
            return;
        }
        self.retire_old(usize::MAX);
        if let Some(reload) = self.reload.take() {
            for reply in reload.replies {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Stops up to `count` old workers, idle ones first; busy ones stop after their request.
    fn retire_old(&mut self, mut count: usize) {
        let generation = self.generation;
        let mut state = self.shared.state();
        let mut idle = Vec::new();
        while count > 0
            && let Some(index) = state
                .idle
                .iter()
                .position(|idle| idle.connection.record.generation < generation)
        {
            idle.push(state.idle.remove(index).connection);
            count -= 1;
        }
        for record in state.workers.values() {
            let is_taken = idle
                .iter()
                .any(|connection| connection.record.id == record.id);
            if count > 0 && record.generation < generation && !record.is_retiring() && !is_taken {
                record.retire();
                count -= 1;
            }
        }
        drop(state);
        for connection in idle {
            self.stop_worker(connection, true);
        }
    }

    /// Stops an old worker if no process is free to boot a new one.
    pub(super) fn make_room_for_reload(&mut self, now: Instant) {
        let Some(reload) = &mut self.reload else {
            return;
        };
        let generation = self.generation;
        let is_stalled = self.workers.values().any(|worker| {
            worker.generation == generation && worker.phase == WorkerPhase::Requested
        });
        if is_stalled && now.duration_since(reload.last_progress) > STALL {
            reload.last_progress = now;
            self.retire_old(1);
        }
    }

    /// Ends a reload that failed; the remaining old workers stay.
    pub(super) fn abort_reload(&mut self, message: &str) {
        if let Some(reload) = self.reload.take() {
            fail(reload.replies, message);
        }
    }

    /// Reloads the application after a change of its files in development.
    pub(super) fn files_changed(&mut self, path: &Path) {
        tracing::info!(
            pool = &*self.shared.plan.name,
            file = %path.display(),
            "a file changed"
        );
        self.logged_failure = None;
        self.begin_reload(None);
    }
}

fn fail(replies: Vec<oneshot::Sender<Result<(), Arc<str>>>>, message: &str) {
    for reply in replies {
        let _ = reply.send(Err(message.into()));
    }
}
