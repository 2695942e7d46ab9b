//! What was seen while the load was measured.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{AcquireError, Notify, Semaphore, SemaphorePermit};

/// The most connections that are opened at the same time before the load.
const OPENED_AT_ONCE: usize = 64;

/// Counts of the measured time.
pub(crate) struct Statistics {
    /// The connections of the load.
    connections: usize,
    /// The turns of the connections that are opened.
    turns: Semaphore,
    /// Told when all connections are settled.
    stand: Notify,
    is_measuring: Cell<bool>,
    /// Connections whose first response was complete.
    settled: Cell<usize>,
    requests: Cell<u64>,
    bytes: Cell<u64>,
    /// Microseconds of each request.
    latencies: RefCell<Vec<u32>>,
    /// By what went wrong. Counted at any time.
    errors: RefCell<BTreeMap<&'static str, u64>>,
}

impl Statistics {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            connections,
            turns: Semaphore::new(OPENED_AT_ONCE),
            stand: Notify::new(),
            is_measuring: Cell::default(),
            settled: Cell::default(),
            requests: Cell::default(),
            bytes: Cell::default(),
            latencies: RefCell::default(),
            errors: RefCell::default(),
        }
    }

    /// Waits until a connection may be opened.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.turns.acquire().await
    }

    /// Waits until all connections had a first response.
    pub(crate) async fn all_settled(&self) {
        let told = self.stand.notified();
        if self.settled.get() < self.connections {
            told.await;
        }
    }

    pub(crate) fn begin(&self) {
        self.is_measuring.set(true);
    }

    pub(crate) fn end(&self) {
        self.is_measuring.set(false);
    }

    pub(crate) fn settled(&self) -> usize {
        self.settled.get()
    }

    pub(crate) fn count_settled(&self) {
        self.settled.set(self.settled.get() + 1);
        if self.settled.get() == self.connections {
            self.stand.notify_waiters();
        }
    }

    /// A response that is as it has to be.
    pub(crate) fn count_response(&self, bytes: u64, took: Duration) {
        if self.is_measuring.get() {
            self.requests.set(self.requests.get() + 1);
            self.bytes.set(self.bytes.get() + bytes);
            let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
            self.latencies.borrow_mut().push(took);
        }
    }

    pub(crate) fn count_error(&self, what: &'static str) {
        *self.errors.borrow_mut().entry(what).or_default() += 1;
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    pub(crate) fn report(&self, seconds: f64, full_handshakes: u64) -> Value {
        let mut latencies = self.latencies.take();
        latencies.sort_unstable();
        let percentile = |percent: usize| {
            let last = latencies.len().saturating_sub(1);
            let at = (latencies.len() * percent / 100).min(last);
            latencies.get(at).copied().unwrap_or(0)
        };
        let errors = self.errors.borrow();
        json!({
            "requests": self.requests.get(),
            "requests_per_second": self.requests.get() as f64 / seconds,
            "bytes": self.bytes.get(),
            "full_handshakes": full_handshakes,
            "p50_us": percentile(50),
            "p99_us": percentile(99),
            "errors": errors.values().sum::<u64>(),
            "errors_by_kind": *errors,
        })
    }
}
