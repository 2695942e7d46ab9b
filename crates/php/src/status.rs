//! What a pool does, for people and programs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::shared::Shared;

/// What a pool does.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its workers that take requests, those longest there first.
    pub workers: Vec<WorkerStatus>,
    /// The most workers there may be.
    pub max: usize,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// Clients that listen to channels, counted once for each channel.
    pub listeners: usize,
    /// WebSockets that are open.
    pub sockets: usize,
    /// Why a worker last did not boot.
    pub last_error: Option<Arc<str>>,
    /// Counters since the start.
    pub totals: PoolTotals,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct WorkerStatus {
    /// The number of its process; 0 if that is not known.
    pub pid: i32,
    /// Its version of PHP.
    pub php: String,
    /// Its SAPI.
    pub sapi: String,
    /// Whether it works on a request.
    pub busy: bool,
    /// Requests that it got.
    pub requests: u64,
    /// Bytes that PHP held after its last answer.
    pub memory: u32,
    /// How long ago it connected.
    pub age: Duration,
}

/// Counters of a pool since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    /// Requests that came.
    pub requests: u64,
    /// Requests that were given to another worker.
    pub retries: u64,
    /// Requests that had to wait.
    pub queued: u64,
    /// Requests that were refused because too many waited.
    pub queue_full: u64,
    /// Requests that waited for too long.
    pub queue_timed_out: u64,
    /// Workers that ended with a request.
    pub crashes: u64,
    /// Workers that were killed because PHP worked for too long.
    pub timeouts: u64,
    /// Workers that were started.
    pub boots: u64,
    /// Workers that did not boot.
    pub boot_failures: u64,
    /// Workers that made room.
    pub recycled: u64,
    /// Reloads.
    pub reloads: u64,
    /// Tasks that were dropped because too many waited.
    pub tasks_dropped: u64,
}

impl Shared {
    pub(crate) fn status(&self) -> PoolStatus {
        let listeners = self.hub.listeners();
        let state = self.state();
        let mut records: Vec<_> = state.workers.values().map(Arc::clone).collect();
        let (waiting, last_error) = (state.line.len(), state.last_error.clone());
        drop(state);
        records.sort_by_key(|record| record.id);
        let totals = &self.totals;
        PoolStatus {
            name: Arc::clone(&self.plan.name),
            workers: records
                .iter()
                .map(|record| WorkerStatus {
                    pid: record.pid_number(),
                    php: record.hello.php.clone(),
                    sapi: record.hello.sapi.clone(),
                    busy: record.is_busy(),
                    requests: record.requests(),
                    memory: record.memory(),
                    age: record.started.elapsed(),
                })
                .collect(),
            max: self.plan.max,
            waiting,
            listeners,
            sockets: self.sockets.len(),
            last_error,
            totals: PoolTotals {
                requests: totals.requests.load(Relaxed),
                retries: totals.retries.load(Relaxed),
                queued: totals.queued.load(Relaxed),
                queue_full: totals.queue_full.load(Relaxed),
                queue_timed_out: totals.queue_timed_out.load(Relaxed),
                crashes: totals.crashes.load(Relaxed),
                timeouts: totals.timeouts.load(Relaxed),
                boots: totals.boots.load(Relaxed),
                boot_failures: totals.boot_failures.load(Relaxed),
                recycled: totals.recycled.load(Relaxed),
                reloads: totals.reloads.load(Relaxed),
                tasks_dropped: totals.tasks_dropped.load(Relaxed),
            },
        }
    }
}
