//! What all workers share about a FastCGI application: its idle connections, and the requests to it.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use apus_client::{
    Address, ClientRequest, ClientResponse, FastCgiClient, ParkedFastCgi, RequestFailure,
};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::concurrency::{ConcurrencyLimit, LONG_PATIENCE, RequestProgress, ResponseSilence};
use super::connections::exceeds_limits;
use crate::plan::ConnectionPoolPlan;
use crate::wait_queue::{QueueOutcome, WaitQueue, WaitTicket};

/// The idle time after which a connection carries requests that must not be sent twice. An application that
/// closes the connection after a response, as PHP does after a number of requests, has done so by then.
// A POST may be sent once. PHP closes after `pm.max_requests` responses without a notice before, so a connection that
// has just returned may be about to close.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// The longest time in which an application waits for the next request on a connection again, unless it
/// continues to work after its response.
const RETURN_TIME: Duration = Duration::from_millis(2);

/// A FastCGI application, by its address.
///
/// Each process of most applications serves one connection at a time, so an idle connection blocks a process.
/// Therefore any worker takes the connections that any worker returned, for any group. Requests beyond the
/// [limit](ConcurrencyLimit) wait here until others end. A new connection replaces an idle one. A connection
/// whose process still works after its response is skipped.
#[derive(Default)]
pub(crate) struct FastCgiApplication(Mutex<ApplicationState>);

#[derive(Default)]
struct ApplicationState {
    /// The last used one is at the end and is taken first.
    idle: Vec<ParkedFastCgi>,
    limit: ConcurrencyLimit,
    waiting: WaitQueue<RequestPermit, ()>,
}

/// The permission to send one request to an application.
pub(crate) struct RequestPermit {
    /// `None` once the permit was given back.
    application: Option<Arc<FastCgiApplication>>,
    progress: Cell<RequestProgress>,
    /// Whether the request waited for it.
    has_waited: bool,
}

/// How an application admits a request.
pub(crate) enum Admission {
    /// At once.
    Admitted(RequestPermit),
    /// After others.
    Wait(PermitReceiver),
}

/// A request that waits for its permit.
pub(crate) struct PermitReceiver {
    application: Arc<FastCgiApplication>,
    ticket: WaitTicket,
    receiver: oneshot::Receiver<RequestPermit>,
    /// Whether its client gives up if this is dropped.
    is_awaited: bool,
}

impl FastCgiApplication {
    /// Returns the application at an address, which all groups share.
    pub(crate) fn at(address: &Address) -> Arc<Self> {
        // By address and not by group: two groups with the same PHP-FPM compete for the same processes.
        static KNOWN: Mutex<Option<HashMap<Address, Weak<FastCgiApplication>>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(application) = known.get(address).and_then(Weak::upgrade) {
            return application;
        }
        known.retain(|_, application| application.strong_count() > 0);
        let new = Arc::new(Self::default());
        known.insert(address.clone(), Arc::downgrade(&new));
        new
    }

    /// Sends the request of a health check over a separate connection. It does not wait for others.
    pub(crate) async fn send_check(
        self: &Arc<Self>,
        connection: FastCgiClient,
        request: ClientRequest,
    ) -> Result<ClientResponse, RequestFailure> {
        let permit = self.permit(&mut self.state(), Instant::now());
        let patience = permit.open();
        Rc::new(permit)
            .send_first(connection, request, patience)
            .await
    }

    /// Admits a request within the limit, or regardless of it.
    pub(super) fn admit(self: &Arc<Self>, is_limited: bool) -> Admission {
        let now = Instant::now();
        let mut state = self.state();
        // While others wait, a new request goes behind them, also if there is room just now.
        if !is_limited || (state.waiting.is_empty() && state.limit.admits(now)) {
            return Admission::Admitted(self.permit(&mut state, now));
        }
        let (ticket, receiver) = state.waiting.enter(None, ());
        // The room that there may be is for those before this one.
        self.hand_out(&mut state);
        Admission::Wait(PermitReceiver {
            application: Arc::clone(self),
            ticket,
            receiver,
            is_awaited: false,
        })
    }

    fn permit(self: &Arc<Self>, state: &mut ApplicationState, now: Instant) -> RequestPermit {
        RequestPermit {
            progress: Cell::new(state.limit.begin(now)),
            application: Some(Arc::clone(self)),
            has_waited: false,
        }
    }

    /// Gives permits to the requests that wait, in their order, until the limit admits no more.
    fn hand_out(self: &Arc<Self>, state: &mut ApplicationState) {
        while !state.waiting.is_empty() {
            let now = Instant::now();
            if !state.limit.admits(now) {
                return;
            }
            let mut permit = self.permit(state, now);
            permit.has_waited = true;
            if let Err(mut permit) = state.waiting.hand(|()| true, permit) {
                // Dropped, it would take the lock.
                permit.application = None;
                state.limit.end(permit.progress.get_mut());
            }
        }
    }

    /// Keeps a connection, unless it has expired or has to be closed for one that starves. Returns whether it
    /// is kept.
    pub(super) fn put_back(&self, connection: ParkedFastCgi, plan: &ConnectionPoolPlan) -> bool {
        let now = connection.parked_at();
        let mut state = self.state();
        if connection.requests() > 1 {
            state.limit.set_closing(false);
        }
        let idle = state.idle.len();
        if state.limit.return_connection(idle, now) || is_expired(&connection, plan, now) {
            return false;
        }
        state.idle.push(connection);
        let closed = (state.idle.len() > plan.max_idle).then(|| state.idle.remove(0));
        // Closing a connection is a system call, made without the lock that all workers share.
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

    fn state(&self) -> MutexGuard<'_, ApplicationState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApplicationState {
    /// Removes the connection that is idle for longest.
    fn remove_oldest(&mut self) -> Option<ParkedFastCgi> {
        (!self.idle.is_empty()).then(|| self.idle.remove(0))
    }
}

fn is_expired(parked: &ParkedFastCgi, plan: &ConnectionPoolPlan, now: Instant) -> bool {
    exceeds_limits(plan, parked.requests(), parked.opened_at(), now)
        || now.saturating_duration_since(parked.parked_at()) > plan.idle_timeout
}

impl RequestPermit {
    /// Takes an idle connection that can be used. `is_repeatable` says that the request may be sent again if
    /// the application closes the connection.
    pub(super) fn take(
        &self,
        plan: &ConnectionPoolPlan,
        is_repeatable: bool,
        now: Instant,
    ) -> Option<ParkedFastCgi> {
        loop {
            let mut state = self.application.as_ref()?.state();
            let waited = |parked: &ParkedFastCgi| now.saturating_duration_since(parked.parked_at());
            let is_settled =
                |parked: &ParkedFastCgi| is_repeatable || waited(parked) >= SETTLE_TIME;
            let is_ready = |parked: &ParkedFastCgi| is_settled(parked) && parked.is_awaited();
            // Else one whose process will likely wait for a request in a moment.
            let returns_soon =
                |parked: &ParkedFastCgi| is_settled(parked) && waited(parked) < RETURN_TIME;
            let soon = state.idle.iter().rposition(returns_soon);
            let index = match soon.filter(|_| state.idle.len() == 1) {
                // With one connection there is nothing to choose, which saves the system call that looks at it.
                Some(only) => only,
                None => state.idle.iter().rposition(is_ready).or(soon)?,
            };
            let found = state.idle.remove(index);
            self.change(|progress| state.limit.serve(progress, now));
            // What follows looks at the socket, which needs no lock.
            drop(state);
            let is_expired = is_expired(&found, plan, now);
            // Mostly it has just returned. If the application closes it now, the request is sent again.
            let is_fresh = is_repeatable && found.requests() > 1 && waited(&found) < RETURN_TIME;
            if !is_expired && (is_fresh || found.is_usable()) {
                return Some(found);
            }
            if !is_expired && found.requests() == 1 {
                let application = self.application.as_ref()?;
                application.state().limit.set_closing(true);
            }
        }
    }

    /// Begins to open a connection, in place of the one that is idle for longest. Returns after which time it
    /// has to be checked whether it starves.
    pub(super) fn open(&self) -> Duration {
        let Some(application) = &self.application else {
            return Duration::MAX;
        };
        let mut state = application.state();
        let closed = state.remove_oldest();
        let patience = self.change(|progress| state.limit.open(progress));
        // As in `put_back`, closed without the lock.
        drop(state);
        drop(closed);
        patience
    }

    /// Records that the application serves the request.
    pub(super) fn serve(&self) {
        if let Some(application) = &self.application {
            let mut state = application.state();
            self.change(|progress| state.limit.serve(progress, Instant::now()));
            application.hand_out(&mut state);
        }
    }

    /// Records that there was no response for a while. `is_read` is whether the application has read the
    /// request, if that is known.
    fn check(&self, is_read: Option<bool>, waited: Duration) {
        match is_read {
            Some(true) => self.serve(),
            None if waited < LONG_PATIENCE => {}
            _ => self.starve(ResponseSilence {
                is_unread: is_read.is_some(),
                waited,
            }),
        }
    }

    fn starve(&self, silence: ResponseSilence) {
        let Some(application) = &self.application else {
            return;
        };
        let mut state = application.state();
        let idle = state.idle.len();
        self.change(|progress| {
            (state.limit).starve(progress, silence, idle, Instant::now());
        });
        // An idle connection may be for a request that was just admitted. If so, that returns it soon.
        let is_free = idle > 0 && !state.limit.is_opening();
        let closed = if is_free && state.limit.take_owed() {
            state.remove_oldest()
        } else {
            None
        };
        application.hand_out(&mut state);
        drop(state);
        drop(closed);
    }

    /// Tells the queue what became of the request, if it waited there.
    pub(crate) fn record(&self, outcome: QueueOutcome) {
        if let Some(application) = self.application.as_ref().filter(|_| self.has_waited) {
            application.state().waiting.record(outcome);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut RequestProgress) -> T) -> T {
        let mut progress = self.progress.get();
        let result = change(&mut progress);
        self.progress.set(progress);
        result
    }

    /// Sends the first request of a new connection, and watches whether the application reads it. `patience`
    /// has the meaning that it has in [`Self::open`].
    pub(super) async fn send_first(
        self: Rc<Self>,
        connection: FastCgiClient,
        request: ClientRequest,
        patience: Duration,
    ) -> Result<ClientResponse, RequestFailure> {
        let mut timer = pin!(sleep(patience));
        let mut waited = patience;
        let sending = connection.send_observed(request, |cx, sent| {
            while timer.as_mut().poll(cx).is_ready() {
                self.check(sent.is_read(), waited);
                let next = timer.deadline() + waited;
                // Twice as long each time: a slow script is checked a few times, not two hundred times in a second.
                waited *= 2;
                timer.as_mut().reset(next);
            }
        });
        let response = sending.await?;
        self.serve();
        Ok(response)
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Some(application) = self.application.take() {
            let mut state = application.state();
            state.limit.end(self.progress.get_mut());
            application.hand_out(&mut state);
        }
    }
}

impl PermitReceiver {
    /// Waits for the permit; `None` if it did not come until then.
    pub(crate) async fn receive(&mut self, until: Instant) -> Option<RequestPermit> {
        self.is_awaited = true;
        loop {
            let now = Instant::now();
            let check_at = now.checked_add(PROBE_INTERVAL).unwrap_or(now).min(until);
            match tokio::time::timeout_at(check_at.into(), &mut self.receiver).await {
                Ok(permit) => return permit.ok(),
                // Its time is over, which is not its client's doing.
                Err(_) if check_at == until => {
                    self.is_awaited = false;
                    return None;
                }
                // The limit may have to be probed, even if no request ends.
                Err(_) => self.application.hand_out(&mut self.application.state()),
            }
        }
    }
}

impl Drop for PermitReceiver {
    fn drop(&mut self) {
        let mut state = self.application.state();
        if self.is_awaited {
            state.waiting.give_up(self.ticket)
        } else {
            state.waiting.leave(self.ticket)
        }
    }
}

/// The time between two checks whether the limit has to be probed, while a request waits.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

impl fmt::Debug for FastCgiApplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgiApplication").finish_non_exhaustive()
    }
}
