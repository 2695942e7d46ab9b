//! The connections of one worker to one node: idle ones, and multiplexed ones.
//!
//! Requests share connections only if they have the same origin, and, where a PROXY protocol header
//! names the client, the same client. Idle connections of FastCGI belong to all workers.

mod dial;
mod idle;
mod parked;

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_codec::proxy_protocol;
use apus_net::client::{
    ClientRequest, ClientResponse, ConnectionReturn, FailureCause, FastCgiClient, Http1Client,
    Http2Client, Origin, OriginConnection, Protocol, ProxyHead, RequestFailure, RequestPhase,
    Timeouts, connect,
};
use apus_net::coarse_now;

use crate::plan::PoolPlan;
use dial::{Dial, Dialing};
use idle::{Idle, Shared};
pub(crate) use parked::Parked;
use parked::Unanswered;

/// The connections to a node.
pub(crate) struct Pool {
    origin: Origin,
    plan: Cell<PoolPlan>,
    /// Those of HTTP/1.1 that wait; the one used last is at the end, and goes first.
    idle: RefCell<Vec<Idle>>,
    /// Where those go back to that are not for one client.
    home: Rc<HomeOf>,
    /// Those of FastCGI that wait, and where others go that have had an answer.
    parked: Arc<Parked>,
    fastcgi_home: Rc<FastCgiHome>,
    /// Those of HTTP/2.
    shared: RefCell<Vec<Shared>>,
    /// A connection being opened that others may share.
    dial: RefCell<Option<Rc<Dial>>>,
    /// Whether connections turned out to be of HTTP/1.1, where that is the node's choice.
    speaks_http1: Cell<bool>,
    sweeps: Cell<bool>,
}

thread_local! {
    /// The pools of this thread.
    static POOLS: RefCell<Vec<Weak<Pool>>> = const { RefCell::new(Vec::new()) };
}

/// Opens a connection. Where too few descriptors are left, one that waits is closed for it, of whichever
/// node.
async fn connect_in_place(
    origin: &Origin,
    client: Option<proxy_protocol::Header>,
    timeouts: &Timeouts,
) -> Result<OriginConnection, RequestFailure> {
    match connect(origin, client, timeouts).await {
        Err(failure) if matches!(failure.cause, FailureCause::NoDescriptors) && close_idle() => {
            connect(origin, client, timeouts).await
        }
        opened => opened,
    }
}

/// Closes a connection of this thread that waits for a request. Tells whether there was one.
fn close_idle() -> bool {
    POOLS.with_borrow(|pools| {
        pools.iter().filter_map(Weak::upgrade).any(|pool| {
            let mut idle = pool.idle.borrow_mut();
            // The one that waits longest.
            (!idle.is_empty()).then(|| idle.remove(0)).is_some()
        })
    })
}

/// Whom a connection is for, if its PROXY protocol head says so: client, and the address it reached.
type Client = Option<proxy_protocol::Header>;

/// A connection for one request.
pub(crate) struct Lease {
    connection: OriginConnection,
    /// If it was opened for this request, and may have to wait for a process of the application.
    unanswered: Option<Rc<Unanswered>>,
}

impl Lease {
    /// Sends a request.
    pub(crate) async fn send(
        self,
        request: ClientRequest,
    ) -> Result<ClientResponse, RequestFailure> {
        let sending = pin!(self.connection.send(request));
        match self.unanswered {
            None => sending.await,
            // Kept out of the way of all others.
            Some(unanswered) => Box::pin(unanswered.watch(sending)).await,
        }
    }
}

impl From<OriginConnection> for Lease {
    fn from(connection: OriginConnection) -> Self {
        Self {
            connection,
            unanswered: None,
        }
    }
}

impl Pool {
    /// A pool without connections. `parked` are those that all workers share.
    pub(crate) fn new(origin: Origin, parked: Arc<Parked>) -> Rc<Self> {
        let pool = Rc::new_cyclic(|pool| Self {
            home: Rc::new(HomeOf {
                pool: Weak::clone(pool),
                client: None,
            }),
            fastcgi_home: Rc::new(FastCgiHome {
                pool: Weak::clone(pool),
                unanswered: None,
            }),
            origin,
            plan: Cell::default(),
            idle: RefCell::default(),
            parked,
            shared: RefCell::default(),
            dial: RefCell::default(),
            speaks_http1: Cell::new(false),
            sweeps: Cell::new(false),
        });
        POOLS.with_borrow_mut(|pools| {
            pools.retain(|known| known.strong_count() > 0);
            pools.push(Rc::downgrade(&pool));
        });
        pool
    }

    /// Where its connections go.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sets how connections are kept.
    pub(crate) fn set_plan(&self, plan: PoolPlan) {
        self.plan.set(plan);
    }

    /// A connection that is open, if there is one. It carried requests before, and the node may be closing
    /// it. `is_repeatable` says that the request may be sent again if so.
    pub(crate) fn checkout(
        &self,
        client: Option<proxy_protocol::Header>,
        is_repeatable: bool,
    ) -> Option<Lease> {
        if self.origin.protocol == Protocol::FastCgi {
            return self.take_parked(is_repeatable);
        }
        let client = self.client(client);
        let now = coarse_now();
        let http2 = self.take_room(client, now).map(OriginConnection::Http2);
        let found = http2.or_else(|| self.take_idle(client, now).map(OriginConnection::Http1));
        found.map(Lease::from)
    }

    /// A new connection. One for many requests may be opened for others at the same time, and shared.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn connect(
        self: &Rc<Self>,
        client: Option<proxy_protocol::Header>,
        timeouts: &Timeouts,
    ) -> Result<Lease, RequestFailure> {
        let may_be_shared = match self.origin.protocol {
            Protocol::Http1 | Protocol::FastCgi => false,
            Protocol::Http2 => true,
            Protocol::Auto => self.origin.tls.is_some() && !self.speaks_http1.get(),
        };
        if !may_be_shared || self.origin.proxy_head != ProxyHead::None {
            return self.open(client, timeouts).await;
        }
        loop {
            let known = self.dial.borrow().clone();
            let Some(dial) = known else {
                break;
            };
            dial.ended().await?;
            if let Some(connection) = self.take_room(None, coarse_now()) {
                return Ok(OriginConnection::Http2(connection).into());
            }
            if self.speaks_http1.get() {
                return self.open(client, timeouts).await;
            }
        }
        let dialing = Dialing::begin(self);
        let opened = self.open(client, timeouts).await;
        dialing.end(opened.as_ref().err());
        opened
    }

    /// Whether the node may choose between HTTP/1.1 and HTTP/2.
    pub(crate) fn has_choice(&self) -> bool {
        self.origin.protocol == Protocol::Auto
    }

    /// A new connection of HTTP/1.1, also to a node that prefers HTTP/2.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn connect_http1(
        &self,
        client: Option<proxy_protocol::Header>,
        timeouts: &Timeouts,
    ) -> Result<Lease, RequestFailure> {
        let origin = Origin {
            protocol: Protocol::Http1,
            ..self.origin.clone()
        };
        let mut connection = connect_in_place(&origin, client, timeouts).await?;
        if let OriginConnection::Http1(http1) = &mut connection {
            self.send_home(http1, self.client(client));
        }
        Ok(connection.into())
    }

    async fn open(
        self: &Rc<Self>,
        client: Option<proxy_protocol::Header>,
        timeouts: &Timeouts,
    ) -> Result<Lease, RequestFailure> {
        if self.origin.protocol == Protocol::FastCgi {
            self.parked.make_room();
        }
        let mut unanswered = None;
        let mut connection = connect_in_place(&self.origin, client, timeouts).await?;
        match &mut connection {
            OriginConnection::Http1(http1) => {
                self.speaks_http1.set(true);
                self.send_home(http1, self.client(client));
            }
            OriginConnection::Http2(http2) => {
                self.speaks_http1.set(false);
                self.shared.borrow_mut().push(Shared {
                    connection: http2.clone(),
                    client: self.client(client),
                });
                self.keep_swept(self.plan.get().idle_timeout);
            }
            OriginConnection::FastCgi(fastcgi) => {
                let guard = Rc::new(Unanswered::new(&self.parked));
                let home = FastCgiHome {
                    pool: Weak::clone(&self.fastcgi_home.pool),
                    unanswered: Some(Rc::clone(&guard)),
                };
                self.send_application_home(fastcgi, Rc::new(home));
                unanswered = Some(guard);
            }
        }
        Ok(Lease {
            connection,
            unanswered,
        })
    }

    /// A connection of FastCGI that waits, of whichever worker.
    fn take_parked(&self, is_repeatable: bool) -> Option<Lease> {
        let plan = self.plan.get();
        let parked = self.parked.take(&plan, is_repeatable, Instant::now())?;
        let mut connection = parked.resume().ok()?;
        self.send_application_home(&mut connection, Rc::clone(&self.fastcgi_home));
        Some(OriginConnection::FastCgi(connection).into())
    }

    /// Whom a connection has to be for.
    fn client(&self, client: Option<proxy_protocol::Header>) -> Client {
        match self.origin.proxy_head {
            ProxyHead::None => None,
            ProxyHead::V1 | ProxyHead::V2 => client,
        }
    }

    /// A connection of HTTP/2 that has room.
    fn take_room(&self, client: Client, now: Instant) -> Option<Http2Client> {
        let plan = self.plan.get();
        let mut shared = self.shared.borrow_mut();
        if shared.is_empty() {
            return None;
        }
        shared.retain(|shared| !shared.is_spent(&plan, now));
        let found = shared.iter().find(|shared| shared.has_room(client));
        found.map(|shared| shared.connection.clone())
    }

    /// A connection of HTTP/1.1 that waits, the one used last.
    fn take_idle(&self, client: Client, now: Instant) -> Option<Http1Client> {
        let plan = self.plan.get();
        let mut idle = self.idle.borrow_mut();
        loop {
            let place = idle.iter().rposition(|idle| idle.is_for(client))?;
            // The last one, but for PROXY protocol heads: nothing moves.
            let mut found = idle.remove(place);
            if !found.is_spent(&plan, now) && found.connection.is_usable() {
                self.send_home(&mut found.connection, client);
                return Some(found.connection);
            }
        }
    }

    /// Has a connection come back after its next response, unless that is its last: the node is told so
    /// then.
    fn send_home(&self, connection: &mut Http1Client, client: Client) {
        let plan = self.plan.get();
        let is_last = connection.requests().checked_add(1) == Some(plan.max_requests);
        if plan.max_idle == 0 || is_last {
            return;
        }
        connection.set_connection_return(match client {
            None => Rc::clone(&self.home) as Rc<dyn ConnectionReturn>,
            Some(_) => Rc::new(HomeOf {
                pool: Weak::clone(&self.home.pool),
                client,
            }),
        });
    }

    /// As [`Pool::send_home`], for FastCGI. A connection that was opened in the name of one client is
    /// not for others.
    fn send_application_home(&self, connection: &mut FastCgiClient, home: Rc<FastCgiHome>) {
        let plan = self.plan.get();
        let is_last = connection.requests().checked_add(1) == Some(plan.max_requests);
        let is_kept = plan.max_idle > 0 && self.origin.proxy_head == ProxyHead::None;
        if is_kept && !is_last {
            connection.set_connection_return(home);
        }
    }

    fn put_back(self: &Rc<Self>, connection: Http1Client, client: Client) {
        let plan = self.plan.get();
        let mut idle = self.idle.borrow_mut();
        let back = Idle { connection, client };
        if back.is_spent(&plan, coarse_now()) {
            return;
        }
        let limit = back.limit(&plan);
        idle.push(back);
        if idle.len() > plan.max_idle {
            // The one that waits longest.
            idle.remove(0);
        }
        drop(idle);
        self.keep_swept(limit);
    }

    /// Has connections closed in time that nobody asks for: those that may wait so long, and others.
    fn keep_swept(self: &Rc<Self>, limit: Duration) {
        if !self.sweeps.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self), limit));
        }
    }

    /// Closes connections that have waited too long, or that the node closed. Tells how long those that
    /// are left may wait, if any are.
    fn sweep(&self) -> Option<Duration> {
        let (plan, now) = (self.plan.get(), Instant::now());
        let mut idle = self.idle.borrow_mut();
        idle.retain_mut(|idle| !idle.is_spent(&plan, now) && idle.connection.is_usable());
        let mut shared = self.shared.borrow_mut();
        shared.retain(|shared| !shared.is_spent(&plan, now) && !shared.is_idle(&plan, now));
        let any_parked = self.parked.sweep(&plan, now);
        let any = !idle.is_empty() || !shared.is_empty() || any_parked;
        self.sweeps.set(any);
        let limits = idle.iter().map(|idle| idle.limit(&plan));
        any.then(|| limits.min().unwrap_or(plan.idle_timeout))
    }
}

async fn sweep(pool: Weak<Pool>, mut limit: Duration) {
    loop {
        tokio::time::sleep((limit / 4).clamp(SWEEP_LEAST, SWEEP_MOST)).await;
        match pool.upgrade().and_then(|pool| pool.sweep()) {
            Some(least) => limit = least,
            None => return,
        }
    }
}

/// How often connections are looked at that nobody asks for.
const SWEEP_LEAST: Duration = Duration::from_millis(100);
const SWEEP_MOST: Duration = Duration::from_secs(5);

/// Where a connection of HTTP/1.1 goes back to. It does not keep the pool: the pool has the connection.
struct HomeOf {
    pool: Weak<Pool>,
    client: Client,
}

impl ConnectionReturn for HomeOf {
    fn return_connection(&self, connection: Http1Client) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put_back(connection, self.client);
        }
    }
}

/// Where a connection of FastCGI goes back to.
struct FastCgiHome {
    pool: Weak<Pool>,
    /// What is known of the connection if this was its first request.
    unanswered: Option<Rc<Unanswered>>,
}

impl ConnectionReturn<FastCgiClient> for FastCgiHome {
    fn return_connection(&self, connection: FastCgiClient) {
        if let Some(unanswered) = &self.unanswered {
            unanswered.answered();
        }
        if let Some(pool) = self.pool.upgrade()
            && let Some(parked) = connection.park()
        {
            let plan = pool.plan.get();
            if pool.parked.put_back(parked, &plan) {
                pool.keep_swept(plan.idle_timeout);
            }
        }
    }
}

/// What a failure says of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The node may just have closed it, for having been idle: there was no sign of a response.
    Stale,
    /// The node took no further request over it.
    Refused,
    /// It is for a tunnel, which the node takes over HTTP/1.1 if at all.
    NoTunnel,
    /// Another connection would do no better.
    Lasting,
}

impl Fate {
    pub(crate) fn of(failure: &RequestFailure, is_reused: bool) -> Self {
        match (&failure.phase, &failure.cause) {
            (RequestPhase::Send | RequestPhase::Head, FailureCause::Refused) => Self::Refused,
            (_, FailureCause::NoTunnel) => Self::NoTunnel,
            (RequestPhase::Send | RequestPhase::Head, FailureCause::Closed) if is_reused => {
                Self::Stale
            }
            (RequestPhase::Send | RequestPhase::Head, FailureCause::Io(error)) if is_reused => {
                match error.kind() {
                    ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
                    | ErrorKind::NotConnected
                    | ErrorKind::UnexpectedEof => Self::Stale,
                    _ => Self::Lasting,
                }
            }
            _ => Self::Lasting,
        }
    }
}
