//! What all threads share of a pool: who is idle, who waits, who there is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use apus_net::coarse_now;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::connection::Connection;
use crate::error::Failure;
use crate::hub::Hub;
use crate::launcher::Launcher;
use crate::line::{Line, Ticket};
use crate::plan::PoolPlan;
use crate::record::{Record, WorkerId};
use crate::signal::Signal;
use crate::sockets::Sockets;

/// What all threads share of a pool.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: PoolPlan,
    /// Starts PHP that runs as another user.
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
    state: Mutex<State>,
    /// The supervisor is to look: see [`State::is_watched`] and [`State::may_grow`].
    pub(crate) wanted: Notify,
    pub(crate) signals: mpsc::UnboundedSender<Signal>,
    pub(crate) hub: Hub,
    pub(crate) sockets: Sockets,
    pub(crate) totals: Totals,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Totals {
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

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// What a request gets when its turn comes.
pub(crate) type Turn = Result<Lease, Failure>;

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The one that worked last is the last, so that those that are too many stay without work.
    pub(crate) idle: Vec<Idle>,
    pub(crate) line: Line<Turn>,
    pub(crate) workers: HashMap<WorkerId, Arc<Record>>,
    pub(crate) closed: Closed,
    pub(crate) last_error: Option<Arc<str>>,
    pub(crate) takes_uploads: bool,
    pub(crate) takes_sockets: bool,
    /// Whether the supervisor looks at the clocks of requests from time to time. It does until it finds that
    /// none is there; who then comes first tells it.
    pub(crate) is_watched: bool,
    /// Whether one more worker would be started if a request had to wait. Who has to says so once, and not
    /// each of hundreds.
    pub(crate) may_grow: bool,
}

#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) connection: Connection,
    pub(crate) since: Instant,
}

/// Whether requests are taken.
#[derive(Clone, Debug, Default)]
pub(crate) enum Closed {
    #[default]
    No,
    /// No worker is there, and none boots before this.
    Boot {
        message: Arc<str>,
        until: Instant,
    },
    Stopping,
}

impl Closed {
    fn failure(&self) -> Option<Failure> {
        match self {
            Self::No => None,
            Self::Boot { message, until } => Some(Failure::Boot {
                message: Arc::clone(message),
                retry_after: until.saturating_duration_since(Instant::now()),
            }),
            Self::Stopping => Some(Failure::Stopping),
        }
    }
}

impl Shared {
    pub(crate) fn new(
        plan: PoolPlan,
        signals: mpsc::UnboundedSender<Signal>,
        launcher: Option<Arc<dyn Launcher>>,
    ) -> Self {
        Self {
            plan,
            launcher,
            state: Mutex::default(),
            wanted: Notify::new(),
            signals,
            hub: Hub::default(),
            sockets: Sockets::default(),
            totals: Totals::default(),
        }
    }

    /// The state. Nothing that is done with it waits or panics.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker for one request: an idle one, or the next that becomes free.
    pub(crate) async fn lease(self: &Arc<Self>) -> Turn {
        loop {
            let (ticket, turn) = match self.take()? {
                Taken::Connection(connection) => {
                    let mut lease = Lease {
                        shared: Arc::clone(self),
                        connection: Some(connection),
                    };
                    match lease.check() {
                        true => return Ok(lease),
                        false => continue,
                    }
                }
                Taken::Place(ticket, turn) => (ticket, turn),
            };
            count(&self.totals.queued);
            let place = Place {
                shared: self,
                ticket,
            };
            let turn = turn.await;
            // It left the line when it got its turn, or the supervisor found that it waited for too long.
            std::mem::forget(place);
            match turn {
                Ok(Ok(mut lease)) => {
                    if lease.check() {
                        return Ok(lease);
                    }
                }
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(Failure::Stopping),
            }
        }
    }

    fn take(&self) -> Result<Taken, Failure> {
        let thread = thread::current().id();
        let mut state = self.state();
        if let Some(failure) = state.closed.failure() {
            return Err(failure);
        }
        if !std::mem::replace(&mut state.is_watched, true) {
            self.wanted.notify_one();
        }
        // One that this thread's reactor knows already is the cheapest.
        let own = state
            .idle
            .iter()
            .rposition(|idle| idle.connection.is_of(thread));
        let taken = match own {
            Some(place) => Some(state.idle.remove(place)),
            None => state.idle.pop(),
        };
        if let Some(Idle { connection, .. }) = taken {
            return Ok(Taken::Connection(connection));
        }
        if state.line.len() >= self.plan.queue {
            count(&self.totals.queue_full);
            return Err(Failure::QueueFull);
        }
        if std::mem::take(&mut state.may_grow) {
            self.wanted.notify_one();
        }
        let (ticket, turn) = state.line.enter(Instant::now());
        Ok(Taken::Place(ticket, turn))
    }

    /// Takes back a connection whose worker is free: it goes to who waits longest, or rests.
    pub(crate) fn release(self: &Arc<Self>, connection: Connection) {
        connection.record.end();
        if connection.record.is_spent() {
            self.signal(Signal::Spent(connection));
            return;
        }
        let mut state = self.state();
        if !state.workers.contains_key(&connection.record.id) {
            // Its FastCGI request ended: nobody is at the other end.
            return;
        }
        let lease = Lease {
            shared: Arc::clone(self),
            connection: Some(connection),
        };
        if let Err(back) = state.line.hand(Ok(lease))
            && let Ok(mut lease) = back
            && let Some(connection) = lease.connection.take()
        {
            state.idle.push(Idle {
                connection,
                since: coarse_now(),
            });
        }
    }

    /// Takes a worker in that is booted.
    pub(crate) fn admit(self: &Arc<Self>, connection: Connection) {
        let mut state = self.state();
        state.takes_uploads = connection.record.hello.uploads;
        state
            .workers
            .insert(connection.record.id, Arc::clone(&connection.record));
        if matches!(state.closed, Closed::Boot { .. }) {
            state.closed = Closed::No;
        }
        drop(state);
        self.release(connection);
    }

    /// Forgets a worker that is no more, or is to get no more requests. Gives its connection if it was
    /// idle.
    pub(crate) fn forget(&self, id: WorkerId) -> Option<Connection> {
        let mut state = self.state();
        state.workers.remove(&id);
        let place = state
            .idle
            .iter()
            .position(|idle| idle.connection.record.id == id)?;
        Some(state.idle.remove(place).connection)
    }

    /// Ends the connection to a worker that broke, or whose process is gone.
    pub(crate) fn discard(&self, connection: &Connection) {
        connection.record.hang_up();
        self.forget(connection.record.id);
    }

    /// Tells the supervisor, if it is still there.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = self.signals.send(signal);
    }
}

enum Taken {
    Connection(Connection),
    Place(Ticket, oneshot::Receiver<Turn>),
}

/// A place in the line, which is given up with the request.
struct Place<'a> {
    shared: &'a Shared,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.state().line.leave(self.ticket);
    }
}

/// A connection that is to carry one request. Dropped without one, it goes back.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

impl Lease {
    /// Whether the worker is still there, and can be asked by this thread.
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
                self.shared.forget(id);
                false
            }
        }
    }

    /// The connection, to carry a request.
    pub(crate) fn begin(mut self) -> Option<Connection> {
        let connection = self.connection.take()?;
        connection.record.begin();
        Some(connection)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared.release(connection);
        }
    }
}
