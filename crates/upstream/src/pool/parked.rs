//! Connections to a FastCGI node that wait for a request, of all workers together.
//!
//! Most applications serve one connection at a time with each of their processes, so a connection that
//! waits keeps a process from everybody else. So any worker takes what any worker left, whoever opens a
//! connection while others wait closes one of them, and when an opened one gets no answer for a while,
//! all that wait are closed, and none is kept, until it has one: their processes may be what it waits
//! for. One to which its process has not come back, since it works on behind its answer, is passed over.
//! There are never more connections than requests at the node had at once.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apus_net::client::ParkedFastCgi;
use tokio::time::sleep;

use super::idle::is_worn;
use crate::plan::PoolPlan;

/// For how long a connection has to have waited to carry what must not be sent twice. Applications that
/// close a connection behind an answer, as PHP does after so many requests, have done so by then.
const SETTLED: Duration = Duration::from_millis(20);

/// How long an application takes at most to come back to a connection, unless it works on behind its
/// answer.
const NEAR: Duration = Duration::from_millis(2);

/// The connections to one node that wait.
#[derive(Debug, Default)]
pub(crate) struct Parked(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The one used last is at the end, and goes first.
    waiting: Vec<ParkedFastCgi>,
    /// Opened connections that have been without an answer for too long.
    starving: usize,
}

impl Parked {
    /// A connection that waits and can be used. `is_repeatable` says that the request may be sent again
    /// if the application closes the connection.
    pub(super) fn take(
        &self,
        plan: &PoolPlan,
        is_repeatable: bool,
        now: Instant,
    ) -> Option<ParkedFastCgi> {
        loop {
            let mut state = self.state();
            let waited = |parked: &ParkedFastCgi| now.saturating_duration_since(parked.parked_at());
            let is_settled = |parked: &ParkedFastCgi| is_repeatable || waited(parked) >= SETTLED;
            let is_ready = |parked: &ParkedFastCgi| is_settled(parked) && parked.is_awaited();
            // Otherwise one whose process likely comes back in a moment.
            let is_near = |parked: &ParkedFastCgi| is_settled(parked) && waited(parked) < NEAR;
            let mut waiting = state.waiting.iter();
            let place = waiting.rposition(is_ready);
            let place = place.or_else(|| state.waiting.iter().rposition(is_near))?;
            let found = state.waiting.remove(place);
            drop(state);
            if !is_spent(&found, plan, now) && found.is_usable() {
                return Some(found);
            }
        }
    }

    /// Closes the one that waits longest, for another that is opened.
    pub(super) fn make_room(&self) {
        let mut state = self.state();
        let closed = (!state.waiting.is_empty()).then(|| state.waiting.remove(0));
        drop(state);
        drop(closed);
    }

    /// Takes a connection back, unless it is not to be used again or another one is in need. Tells
    /// whether it waits.
    pub(super) fn put_back(&self, connection: ParkedFastCgi, plan: &PoolPlan) -> bool {
        if is_spent(&connection, plan, Instant::now()) {
            return false;
        }
        let mut state = self.state();
        if state.starving > 0 {
            return false;
        }
        state.waiting.push(connection);
        let closed = (state.waiting.len() > plan.max_idle).then(|| state.waiting.remove(0));
        drop(state);
        drop(closed);
        true
    }

    /// Closes those that have waited too long, or that the node closed. Tells whether any are left.
    pub(super) fn sweep(&self, plan: &PoolPlan, now: Instant) -> bool {
        let mut state = self.state();
        state
            .waiting
            .retain(|parked| !is_spent(parked, plan, now) && parked.is_usable());
        !state.waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_spent(parked: &ParkedFastCgi, plan: &PoolPlan, now: Instant) -> bool {
    is_worn(plan, parked.requests(), parked.opened_at(), now)
        || now.saturating_duration_since(parked.parked_at()) > plan.idle_timeout
}

/// A connection that was opened and has no answer yet. When it is dropped, it has one, or needs none.
pub(super) struct Unanswered {
    parked: Arc<Parked>,
    is_starving: Cell<bool>,
}

impl Unanswered {
    /// After how long without an answer a connection may be waiting for a process.
    const PATIENCE: Duration = Duration::from_millis(50);

    pub(super) fn new(parked: &Arc<Parked>) -> Self {
        Self {
            parked: Arc::clone(parked),
            is_starving: Cell::new(false),
        }
    }

    /// Waits for the answer, and notes when that takes too long.
    pub(super) async fn watch<T>(&self, mut sending: Pin<&mut impl Future<Output = T>>) -> T {
        let sent = tokio::select! {
            biased;
            sent = &mut sending => sent,
            () = sleep(Self::PATIENCE) => {
                self.starve();
                sending.await
            }
        };
        self.answered();
        sent
    }

    /// It has waited too long.
    fn starve(&self) {
        if !self.is_starving.replace(true) {
            let mut state = self.parked.state();
            state.starving += 1;
            let closed = std::mem::take(&mut state.waiting);
            drop(state);
            drop(closed);
        }
    }

    /// It was answered.
    pub(super) fn answered(&self) {
        if self.is_starving.replace(false) {
            self.parked.state().starving -= 1;
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.answered();
    }
}
