//! The status of resident PHP workers for the control socket.

use apus_php::{PoolStatus, WorkerPools};
use serde_json::{Value, json};

/// All pools with their workers as JSON.
pub(crate) fn status(pools: &WorkerPools) -> Value {
    pools.status().iter().map(pool).collect()
}

fn pool(pool: &PoolStatus) -> Value {
    let totals = &pool.totals;
    let workers: Vec<Value> = pool
        .workers
        .iter()
        .map(|worker| {
            json!({
                "pid": worker.pid,
                "php": worker.php,
                "sapi": worker.sapi,
                "busy": worker.busy,
                "requests": worker.requests,
                "memory_bytes": worker.memory,
                "age_seconds": worker.age.as_secs(),
            })
        })
        .collect();
    json!({
        "name": &*pool.name,
        "workers": workers,
        "max_workers": pool.max,
        "waiting": pool.waiting,
        "listeners": pool.listeners,
        "sockets": pool.sockets,
        "last_error": pool.last_error.as_deref(),
        "requests": totals.requests,
        "retries": totals.retries,
        "queued": totals.queued,
        "queue_full": totals.queue_full,
        "queue_timed_out": totals.queue_timed_out,
        "crashes": totals.crashes,
        "timeouts": totals.timeouts,
        "boots": totals.boots,
        "boot_failures": totals.boot_failures,
        "recycled": totals.recycled,
        "reloads": totals.reloads,
        "tasks_dropped": totals.tasks_dropped,
    })
}
