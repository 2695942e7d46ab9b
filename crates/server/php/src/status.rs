//! The status of a pool, for `apus status` and metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::shared::SharedPool;

/// The status of a pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The name of the pool.
    pub name: Arc<str>,
    /// The ready workers, the oldest first.
    pub workers: Vec<PhpWorkerStatus>,
    /// The maximum number of workers.
    pub max: usize,
    /// The number of requests that wait for a worker.
    pub waiting: usize,
    /// The number of clients with subscriptions to channels, counted once for each channel.
    pub listeners: usize,
    /// The number of open WebSockets.
    pub sockets: usize,
    /// Why the last failed boot failed.
    pub last_error: Option<Arc<str>>,
    /// Counters since the start.
    pub totals: PoolTotals,
}

/// The status of one worker.
#[derive(Clone, Debug)]
pub struct PhpWorkerStatus {
    /// The process ID; 0 if it is unknown.
    pub pid: i32,
    /// The version of PHP.
    pub php: String,
    /// The SAPI.
    pub sapi: String,
    /// Whether it handles a request.
    pub busy: bool,
    /// The number of requests.
    pub requests: u64,
    /// The memory of PHP after its last response, in bytes.
    pub memory: u32,
    /// The time since it connected.
    pub age: Duration,
}

/// Counters of a pool since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    /// Requests.
    pub requests: u64,
    /// Requests that were sent to another worker.
    pub retries: u64,
    /// Requests that waited for a worker.
    pub queued: u64,
    /// Requests that failed because the queue was full.
    pub queue_full: u64,
    /// Requests that waited for too long.
    pub queue_timed_out: u64,
    /// Workers that ended during a request.
    pub crashes: u64,
    /// Workers that were killed because a request exceeded the execution limit.
    pub timeouts: u64,
    /// Boots of workers.
    pub boots: u64,
    /// Boots that failed.
    pub boot_failures: u64,
    /// Workers that were recycled.
    pub recycled: u64,
    /// Reloads.
    pub reloads: u64,
    /// Tasks that were dropped because too many waited.
    pub tasks_dropped: u64,
}

impl SharedPool {
    pub(crate) fn status(&self) -> PoolStatus {
        let listeners = self.hub.subscriptions();
        let state = self.state();
        let mut records: Vec<_> = state.workers.values().map(Arc::clone).collect();
        let (waiting, last_error) = (state.queue.len(), state.last_error.clone());
        drop(state);
        records.sort_by_key(|record| record.id);
        let counters = &self.counters;
        PoolStatus {
            name: Arc::clone(&self.plan.name),
            workers: records
                .iter()
                .map(|record| PhpWorkerStatus {
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
                requests: counters.requests.load(Relaxed),
                retries: counters.retries.load(Relaxed),
                queued: counters.queued.load(Relaxed),
                queue_full: counters.queue_full.load(Relaxed),
                queue_timed_out: counters.queue_timed_out.load(Relaxed),
                crashes: counters.crashes.load(Relaxed),
                timeouts: counters.timeouts.load(Relaxed),
                boots: counters.boots.load(Relaxed),
                boot_failures: counters.boot_failures.load(Relaxed),
                recycled: counters.recycled.load(Relaxed),
                reloads: counters.reloads.load(Relaxed),
                tasks_dropped: counters.tasks_dropped.load(Relaxed),
            },
        }
    }
}
