//! Reloading an application without losing a request.
//!
//! New workers boot first, and each that is booted replaces one of the old.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Phase, Supervisor, resolve};
use crate::shared::{Closed, count};

/// A reload that goes on.
pub(super) struct Rolling {
    /// New workers that there are to be.
    pub(super) target: usize,
    replies: Vec<oneshot::Sender<Result<(), Arc<str>>>>,
    /// When something last went on.
    moved: Instant,
}

/// A FastCGI server whose processes are all workers cannot boot another: an old one makes room after this.
const STALL: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Begins to load the application anew.
    pub(super) fn reload(&mut self, reply: Option<oneshot::Sender<Result<(), Arc<str>>>>) {
        let mut replies: Vec<_> = reply.into_iter().collect();
        let script = match resolve(&self.shared.plan.script) {
            Ok(script) => script,
            Err(error) => return refuse(replies, &error.to_string()),
        };
        // What was begun has seen files that may have changed since.
        if let Some(before) = self.rolling.take() {
            replies.extend(before.replies);
        }
        count(&self.shared.totals.reloads);
        self.script = script;
        self.generation += 1;
        self.failures = 0;
        self.unused = 0;
        self.interruption = None;
        self.next_boot = Instant::now();
        if let Err(error) = self.start_master() {
            self.generation -= 1;
            return refuse(replies, &format!("PHP cannot be started: {error}"));
        }
        for boot in self.boots.values_mut() {
            if boot.phase.is_starting() {
                // It may have seen the old files.
                boot.phase = Phase::Ending;
                match &boot.record {
                    Some(record) => record.hang_up(),
                    None => boot.request.abort(),
                }
            }
        }
        self.boots
            .retain(|_, boot| boot.phase != Phase::Ending || boot.record.is_some());
        let mut state = self.shared.state();
        let ready = state.workers.len();
        if matches!(state.closed, Closed::Boot { .. }) {
            state.closed = Closed::No;
        }
        drop(state);
        let plan = &self.shared.plan;
        let target = ready.max(plan.min).min(plan.max);
        tracing::info!(
            pool = &*plan.name,
            script = %self.script.display(),
            workers = target,
            "the application is loaded anew"
        );
        if target == 0 {
            for reply in replies {
                let _ = reply.send(Ok(()));
            }
            return;
        }
        self.rolling = Some(Rolling {
            target,
            replies,
            moved: Instant::now(),
        });
        self.reconcile();
    }

    /// A new worker is booted.
    pub(super) fn replace_one(&mut self) {
        let Some(rolling) = &mut self.rolling else {
            return;
        };
        rolling.moved = Instant::now();
        let generation = self.generation;
        let new = self
            .boots
            .values()
            .filter(|boot| boot.generation == generation && boot.phase == Phase::Ready)
            .count();
        if new < rolling.target {
            self.retire_old(1);
            return;
        }
        self.retire_old(usize::MAX);
        if let Some(rolling) = self.rolling.take() {
            for reply in rolling.replies {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Has old workers make room, those first that have nothing to do.
    fn retire_old(&mut self, mut most: usize) {
        let generation = self.generation;
        let mut state = self.shared.state();
        let mut idle = Vec::new();
        while most > 0
            && let Some(place) = state
                .idle
                .iter()
                .position(|idle| idle.connection.record.generation < generation)
        {
            idle.push(state.idle.remove(place).connection);
            most -= 1;
        }
        for record in state.workers.values() {
            let is_taken = idle
                .iter()
                .any(|connection| connection.record.id == record.id);
            if most > 0 && record.generation < generation && !record.is_retiring() && !is_taken {
                record.retire();
                most -= 1;
            }
        }
        drop(state);
        for connection in idle {
            self.end(connection, true);
        }
    }

    /// Makes room where no process is free to boot in.
    pub(super) fn roll(&mut self, now: Instant) {
        let Some(rolling) = &mut self.rolling else {
            return;
        };
        let generation = self.generation;
        let is_stalled = self
            .boots
            .values()
            .any(|boot| boot.generation == generation && boot.phase == Phase::Called);
        if is_stalled && now.duration_since(rolling.moved) > STALL {
            rolling.moved = now;
            self.retire_old(1);
        }
    }

    /// Leaves the old workers where they are.
    pub(super) fn abandon_rolling(&mut self, message: &str) {
        if let Some(rolling) = self.rolling.take() {
            refuse(rolling.replies, message);
        }
    }

    /// Files of the application changed while people work on it.
    pub(super) fn changed(&mut self, path: &Path) {
        tracing::info!(
            pool = &*self.shared.plan.name,
            file = %path.display(),
            "a file changed"
        );
        self.logged = None;
        self.reload(None);
    }
}

fn refuse(replies: Vec<oneshot::Sender<Result<(), Arc<str>>>>, message: &str) {
    for reply in replies {
        let _ = reply.send(Err(message.into()));
    }
}
