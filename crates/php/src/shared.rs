//! The state of a pool that all threads share: its workers, its queue and its counters.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use apus_transport::coarse_now;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::connection::WorkerConnection;
use crate::error::WorkerError;
use crate::hub::EventHub;
use crate::launcher::Launcher;
use crate::plan::WorkerPoolPlan;
use crate::queue::{QueueTicket, WorkerQueue};
use crate::record::{WorkerId, WorkerRecord};
use crate::sockets::Sockets;
use crate::supervisor_message::SupervisorMessage;

/// The shared state of a pool.
#[derive(Debug)]
pub(crate) struct SharedPool {
    pub(crate) plan: WorkerPoolPlan,
    /// Starts PHP that runs as another user.
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
    state: Mutex<PoolState>,
    /// Makes the supervisor check the pool: see [`PoolState::is_watched`] and [`PoolState::may_grow`].
    pub(crate) supervisor_wakeup: Notify,
    pub(crate) supervisor: mpsc::UnboundedSender<SupervisorMessage>,
    pub(crate) hub: EventHub,
    pub(crate) sockets: Sockets,
    pub(crate) counters: PoolCounters,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) queue_timed_out: AtomicU64,
    pub(crate) crashes: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) boots: AtomicU64,
    pub(crate) boot_failures: AtomicU64,
    pub(crate) recycled: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) tasks_dropped: AtomicU64,
}

pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// The result of waiting for a worker.
pub(crate) type LeaseResult = Result<WorkerLease, WorkerError>;

#[derive(Debug, Default)]
pub(crate) struct PoolState {
    /// The most recently used worker is the last and the next to be used, so that surplus workers stay idle.
    pub(crate) idle: Vec<IdleWorker>,
    pub(crate) queue: WorkerQueue<LeaseResult>,
    pub(crate) workers: HashMap<WorkerId, Arc<WorkerRecord>>,
    pub(crate) admission: PoolAdmission,
    pub(crate) last_error: Option<Arc<str>>,
    pub(crate) takes_uploads: bool,
    pub(crate) takes_sockets: bool,
    /// Whether the supervisor checks the time limits of requests. It stops when there are no requests, and the next
    /// request wakes it.
    pub(crate) is_watched: bool,
    /// Whether the supervisor would start one more worker for a queued request. Only the first of many queued
    /// requests wakes it.
    pub(crate) may_grow: bool,
}

#[derive(Debug)]
pub(crate) struct IdleWorker {
    pub(crate) connection: WorkerConnection,
    pub(crate) since: Instant,
}

/// Whether the pool accepts requests.
#[derive(Clone, Debug, Default)]
pub(crate) enum PoolAdmission {
    #[default]
    Open,
    /// There is no worker, and none boots before `until`.
    BootFailed {
        message: Arc<str>,
        until: Instant,
    },
    Stopping,
}

impl PoolAdmission {
    fn error(&self) -> Option<WorkerError> {
        match self {
            Self::Open => None,
            Self::BootFailed { message, until } => Some(WorkerError::Boot {
                message: Arc::clone(message),
                retry_after: until.saturating_duration_since(Instant::now()),
            }),
            Self::Stopping => Some(WorkerError::Stopping),
        }
    }
}

impl SharedPool {
    pub(crate) fn new(
        plan: WorkerPoolPlan,
        supervisor: mpsc::UnboundedSender<SupervisorMessage>,
        launcher: Option<Arc<dyn Launcher>>,
    ) -> Self {
        Self {
            plan,
            launcher,
            state: Mutex::default(),
            supervisor_wakeup: Notify::new(),
            supervisor,
            hub: EventHub::default(),
            sockets: Sockets::default(),
            counters: PoolCounters::default(),
        }
    }

    /// Locks the state. The holder must not wait.
    pub(crate) fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases a worker for one request: an idle one, or the next that becomes idle.
    pub(crate) async fn lease(self: &Arc<Self>) -> LeaseResult {
        loop {
            let (ticket, receiver) = match self.acquire()? {
                WorkerAcquisition::Connection(connection) => {
                    let mut lease = WorkerLease {
                        shared: Arc::clone(self),
                        connection: Some(connection),
                    };
                    match lease.check() {
                        true => return Ok(lease),
                        false => continue,
                    }
                }
                WorkerAcquisition::Queued(ticket, receiver) => (ticket, receiver),
            };
            increment(&self.counters.queued);
            let guard = WorkerQueueGuard {
                shared: self,
                ticket,
            };
            let result = receiver.await;
            // The sender of the result removed the request from the queue.
            std::mem::forget(guard);
            match result {
                Ok(Ok(mut lease)) => {
                    if lease.check() {
                        return Ok(lease);
                    }
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(WorkerError::Stopping),
            }
        }
    }

    /// Takes an idle worker, or a place in the queue.
    fn acquire(&self) -> Result<WorkerAcquisition, WorkerError> {
        let thread = thread::current().id();
        let mut state = self.state();
        if let Some(error) = state.admission.error() {
            return Err(error);
        }
        if !std::mem::replace(&mut state.is_watched, true) {
            self.supervisor_wakeup.notify_one();
        }
        // A connection in this thread's reactor is the cheapest.
        let same_thread = state
            .idle
            .iter()
            .rposition(|idle| idle.connection.belongs_to(thread));
        let idle = match same_thread {
            Some(index) => Some(state.idle.remove(index)),
            None => state.idle.pop(),
        };
        if let Some(IdleWorker { connection, .. }) = idle {
            return Ok(WorkerAcquisition::Connection(connection));
        }
        if state.queue.len() >= self.plan.queue {
            increment(&self.counters.queue_full);
            return Err(WorkerError::QueueFull);
        }
        if std::mem::take(&mut state.may_grow) {
            self.supervisor_wakeup.notify_one();
        }
        let (ticket, receiver) = state.queue.push(Instant::now());
        Ok(WorkerAcquisition::Queued(ticket, receiver))
    }

    /// Returns the connection of an idle worker: it serves the first request of the queue, or becomes idle.
    pub(crate) fn release(self: &Arc<Self>, connection: WorkerConnection) {
        connection.record.mark_idle();
        if connection.record.must_recycle() {
            self.notify_supervisor(SupervisorMessage::RecycleDue(connection));
            return;
        }
        let mut state = self.state();
        if !state.workers.contains_key(&connection.record.id) {
            // Its FastCGI request ended: the worker is gone.
            return;
        }
        let lease = WorkerLease {
            shared: Arc::clone(self),
            connection: Some(connection),
        };
        if let Err(unsent) = state.queue.serve_next(Ok(lease))
            && let Ok(mut lease) = unsent
            && let Some(connection) = lease.connection.take()
        {
            state.idle.push(IdleWorker {
                connection,
                since: coarse_now(),
            });
        }
    }

    /// Adds a booted worker.
    pub(crate) fn admit(self: &Arc<Self>, connection: WorkerConnection) {
        let mut state = self.state();
        state.takes_uploads = connection.record.hello.uploads;
        state
            .workers
            .insert(connection.record.id, Arc::clone(&connection.record));
        if matches!(state.admission, PoolAdmission::BootFailed { .. }) {
            state.admission = PoolAdmission::Open;
        }
        drop(state);
        self.release(connection);
    }

    /// Removes a worker, which gets no more requests. Returns its connection if it was idle.
    pub(crate) fn remove(&self, id: WorkerId) -> Option<WorkerConnection> {
        let mut state = self.state();
        state.workers.remove(&id);
        let index = state
            .idle
            .iter()
            .position(|idle| idle.connection.record.id == id)?;
        Some(state.idle.remove(index).connection)
    }

    /// Closes a connection that failed, and removes its worker.
    pub(crate) fn discard(&self, connection: &WorkerConnection) {
        connection.record.disconnect();
        self.remove(connection.record.id);
    }

    /// Sends a message to the supervisor, if it still runs.
    pub(crate) fn notify_supervisor(&self, message: SupervisorMessage) {
        let _ = self.supervisor.send(message);
    }
}

enum WorkerAcquisition {
    Connection(WorkerConnection),
    Queued(QueueTicket, oneshot::Receiver<LeaseResult>),
}

/// Removes a request from the queue when it is dropped.
struct WorkerQueueGuard<'a> {
    shared: &'a SharedPool,
    ticket: QueueTicket,
}

impl Drop for WorkerQueueGuard<'_> {
    fn drop(&mut self) {
        self.shared.state().queue.remove(self.ticket);
    }
}

/// A connection that is reserved for one request. It returns to the pool if it is dropped unused.
#[derive(Debug)]
pub(crate) struct WorkerLease {
    shared: Arc<SharedPool>,
    connection: Option<WorkerConnection>,
}

impl WorkerLease {
    /// Moves the connection to this thread; returns whether the worker can still handle a request.
    fn check(&mut self) -> bool {
        let Some(connection) = self.connection.take() else {
            return false;
        };
        let id = connection.record.id;
        match connection.adopt() {
            Ok(mut connection) => {
                if connection.is_leaving() {
                    self.shared.discard(&connection);
                    return false;
                }
                self.connection = Some(connection);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the connection to a worker cannot be used");
                self.shared.remove(id);
                false
            }
        }
    }

    /// Begins a request on the connection.
    pub(crate) fn begin(mut self) -> Option<WorkerConnection> {
        let connection = self.connection.take()?;
        connection.record.mark_busy();
        Some(connection)
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared.release(connection);
        }
    }
}
