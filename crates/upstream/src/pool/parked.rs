//! The idle connections to a FastCGI node, which all workers share.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apus_net::client::ParkedFastCgi;
use tokio::time::sleep;

use super::connections::exceeds_limits;
use crate::plan::ConnectionPoolPlan;

/// The idle time after which a connection carries requests that must not be sent twice. An application that
/// closes the connection after a response, as PHP does after a number of requests, has done so by then.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// The longest time in which an application waits for the next request on a connection again, unless it
/// continues to work after its response.
const RETURN_TIME: Duration = Duration::from_millis(2);

/// The idle connections to one node.
///
/// Each process of most applications serves one connection at a time, so an idle connection blocks a process.
/// Therefore any worker takes the connections that any worker returned. A new connection replaces an idle
/// one. If a new connection gets no response for a while, its request may wait for a blocked process: all
/// idle connections are closed, and none is kept, until the response comes. A connection whose process
/// still works after its response is skipped. There are never more connections than there were concurrent
/// requests at the node.
#[derive(Debug, Default)]
pub(crate) struct ParkedConnections(Mutex<ParkedState>);

#[derive(Debug, Default)]
struct ParkedState {
    /// The last used one is at the end and is taken first.
    idle: Vec<ParkedFastCgi>,
    /// New connections that have been without a response for too long.
    starving: usize,
}

impl ParkedConnections {
    /// Takes an idle connection that can be used. `is_repeatable` says that the request may be sent again if
    /// the application closes the connection.
    pub(super) fn take(
        &self,
        plan: &ConnectionPoolPlan,
        is_repeatable: bool,
        now: Instant,
    ) -> Option<ParkedFastCgi> {
        loop {
            let mut state = self.state();
            let waited = |parked: &ParkedFastCgi| now.saturating_duration_since(parked.parked_at());
            let is_settled =
                |parked: &ParkedFastCgi| is_repeatable || waited(parked) >= SETTLE_TIME;
            let is_ready = |parked: &ParkedFastCgi| is_settled(parked) && parked.is_awaited();
            // Else one whose process will likely wait for a request in a moment.
            let returns_soon =
                |parked: &ParkedFastCgi| is_settled(parked) && waited(parked) < RETURN_TIME;
            let index = state.idle.iter().rposition(is_ready);
            let index = index.or_else(|| state.idle.iter().rposition(returns_soon))?;
            let found = state.idle.remove(index);
            drop(state);
            if !is_expired(&found, plan, now) && found.is_usable() {
                return Some(found);
            }
        }
    }

    /// Closes the connection that is idle for longest, to make room for a new one.
    pub(super) fn make_room(&self) {
        let mut state = self.state();
        let closed = (!state.idle.is_empty()).then(|| state.idle.remove(0));
        drop(state);
        drop(closed);
    }

    /// Keeps a connection, unless it has expired or a new connection waits for a process. Returns whether it
    /// is kept.
    pub(super) fn put_back(&self, connection: ParkedFastCgi, plan: &ConnectionPoolPlan) -> bool {
        if is_expired(&connection, plan, Instant::now()) {
            return false;
        }
        let mut state = self.state();
        if state.starving > 0 {
            return false;
        }
        state.idle.push(connection);
        let closed = (state.idle.len() > plan.max_idle).then(|| state.idle.remove(0));
        drop(state);
        drop(closed);
        true
    }

    /// Closes connections that were idle for too long or that the node closed. Returns whether any are left.
    pub(super) fn sweep(&self, plan: &ConnectionPoolPlan, now: Instant) -> bool {
        let mut state = self.state();
        state
            .idle
            .retain(|parked| !is_expired(parked, plan, now) && parked.is_usable());
        !state.idle.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, ParkedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_expired(parked: &ParkedFastCgi, plan: &ConnectionPoolPlan, now: Instant) -> bool {
    exceeds_limits(plan, parked.requests(), parked.opened_at(), now)
        || now.saturating_duration_since(parked.parked_at()) > plan.idle_timeout
}

/// The watch of a new connection for its first response. Dropping it ends the watch.
pub(super) struct ResponseWatch {
    parked: Arc<ParkedConnections>,
    is_starving: Cell<bool>,
}

impl ResponseWatch {
    /// The time without a response after which a connection is taken to wait for a process.
    const STARVING_AFTER: Duration = Duration::from_millis(50);

    pub(super) fn new(parked: &Arc<ParkedConnections>) -> Self {
        Self {
            parked: Arc::clone(parked),
            is_starving: Cell::new(false),
        }
    }

    /// Waits for the response, and closes the idle connections if it takes too long.
    pub(super) async fn watch<T>(&self, mut sending: Pin<&mut impl Future<Output = T>>) -> T {
        let sent = tokio::select! {
            biased;
            sent = &mut sending => sent,
            () = sleep(Self::STARVING_AFTER) => {
                self.set_starving();
                sending.await
            }
        };
        self.end();
        sent
    }

    /// Closes the idle connections, because this one waits for a process.
    fn set_starving(&self) {
        if !self.is_starving.replace(true) {
            let mut state = self.parked.state();
            state.starving += 1;
            let closed = std::mem::take(&mut state.idle);
            drop(state);
            drop(closed);
        }
    }

    /// Ends the watch.
    pub(super) fn end(&self) {
        if self.is_starving.replace(false) {
            self.parked.state().starving -= 1;
        }
    }
}

impl Drop for ResponseWatch {
    fn drop(&mut self) {
        self.end();
    }
}
