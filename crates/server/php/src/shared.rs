//! The state of a pool that all threads share: its workers, its queue and its counters.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use apus_transport::coarse_now;
use apus_upstream::{QueueOutcome, WaitQueue, WaitTicket};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::connection::WorkerConnection;
use crate::error::WorkerError;
use crate::hub::EventHub;
use crate::launcher::Launcher;
use crate::plan::WorkerPoolPlan;
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
    /// The requests that wait for a worker, with the time at which each arrived.
    pub(crate) queue: WaitQueue<LeaseResult, Instant>,
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

impl PoolState {
    /// Fails the requests that have waited for `limit` or longer. Returns their number.
    pub(crate) fn expire_queued(&mut self, now: Instant, limit: Duration) -> u64 {
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= limit;
        let mut expired = 0;
        while let Some(sender) = self.queue.take_oldest_if(is_over) {
            expired += u64::from(sender.send(Err(WorkerError::QueueTimedOut)).is_ok());
        }
        expired
    }

    /// Fails all requests that wait.
    pub(crate) fn fail_queued(&mut self, error: impl Fn() -> WorkerError) {
        while let Some(sender) = self.queue.take_oldest_if(|_| true) {
            let _ = sender.send(Err(error()));
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
                        has_waited: false,
                    };
                    if lease.check() {
                        return Ok(lease);
                    } else {
                        continue;
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
        let (ticket, receiver) = state.queue.enter(None, Instant::now());
        Ok(WorkerAcquisition::Queued(ticket, receiver))
    }

    /// Returns the connection of an idle worker: it serves the next request of the queue, or becomes idle.
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
            has_waited: true,
        };
        if let Err(unsent) = state.queue.hand(|_| true, Ok(lease))
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
    Queued(WaitTicket, oneshot::Receiver<LeaseResult>),
}

/// Removes a request from the queue when it is dropped because the client gave up.
struct WorkerQueueGuard<'a> {
    shared: &'a SharedPool,
    ticket: WaitTicket,
}

impl Drop for WorkerQueueGuard<'_> {
    fn drop(&mut self) {
        self.shared.state().queue.give_up(self.ticket);
    }
}

/// A connection that is reserved for one request. It returns to the pool if it is dropped unused.
#[derive(Debug)]
pub(crate) struct WorkerLease {
    shared: Arc<SharedPool>,
    connection: Option<WorkerConnection>,
    /// Whether the request waited for it in the queue.
    has_waited: bool,
}

/// A request that waited in the queue and that a worker handles. If this is dropped, its client gave up.
pub(crate) struct LeasedRequest {
    shared: Arc<SharedPool>,
    has_result: bool,
}

impl LeasedRequest {
    /// The worker responded.
    pub(crate) fn respond(mut self) {
        self.has_result = true;
        self.shared.state().queue.record(QueueOutcome::Responded);
    }

    /// The worker failed.
    pub(crate) fn fail(mut self) {
        self.has_result = true;
    }
}

impl Drop for LeasedRequest {
    fn drop(&mut self) {
        if !self.has_result {
            self.shared.state().queue.record(QueueOutcome::Abandoned);
        }
    }
}

impl WorkerLease {
    /// Returns what the queue has to know of the request, if it waited there.
    pub(crate) fn queued(&self) -> Option<LeasedRequest> {
        self.has_waited.then(|| LeasedRequest {
            shared: Arc::clone(&self.shared),
            has_result: false,
        })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_only_requests_that_wait_for_too_long() {
        let mut state = PoolState::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let (_, mut first) = state.queue.enter(None, now);
        let (_, gone) = state.queue.enter(None, now);
        let (_, mut third) = state.queue.enter(None, later);
        drop(gone);
        let limit = Duration::from_secs(5);
        assert_eq!(state.expire_queued(later, limit), 0);
        assert_eq!(state.expire_queued(now + limit, limit), 1);
        assert!(matches!(
            first.try_recv(),
            Ok(Err(WorkerError::QueueTimedOut))
        ));
        assert!(third.try_recv().is_err());
        assert_eq!((state.queue.len(), state.queue.oldest()), (1, Some(&later)));
        state.fail_queued(|| WorkerError::Stopping);
        assert!(matches!(third.try_recv(), Ok(Err(WorkerError::Stopping))));
        assert!(state.queue.is_empty());
    }
}
