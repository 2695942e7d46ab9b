//! The connections of one worker to one node: those that wait for a request, and those that carry many
//! at once. Requests share connections only if they have the same origin, and, where a PROXY protocol
//! head names the client, the same client.

mod dial;
mod idle;

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use apus_http::{ConnectionInfo, Peer};
use apus_net::client::{
    Cause, ClientRequest, ClientResponse, Connection, Failure, Home, Http1, Http2, Origin, Phase,
    Protocol, ProxyHead, Timeouts, connect,
};
use apus_net::coarse_now;

use crate::plan::PoolPlan;
use dial::{Dial, Dialing};
use idle::{Idle, Shared};

/// The connections to a node.
pub(crate) struct Pool {
    origin: Origin,
    plan: Cell<PoolPlan>,
    /// Those of HTTP/1.1 that wait; the one used last is at the end, and goes first.
    idle: RefCell<Vec<Idle>>,
    /// Where those go back to that are not for one client.
    home: Rc<HomeOf>,
    /// Those of HTTP/2.
    shared: RefCell<Vec<Shared>>,
    /// A connection being opened that others may share.
    dial: RefCell<Option<Rc<Dial>>>,
    /// Whether connections turned out to be of HTTP/1.1, where that is the node's choice.
    speaks_http1: Cell<bool>,
    sweeps: Cell<bool>,
}

/// Whom a connection is for, if its PROXY protocol head says so: client, and the address it reached.
type Client = Option<(Peer, Peer)>;

/// A connection for one request.
pub(crate) struct Lease(Connection);

impl Lease {
    /// Sends a request.
    pub(crate) async fn send(self, request: ClientRequest) -> Result<ClientResponse, Failure> {
        match self.0 {
            Connection::Http1(connection) => connection.send(request).await,
            Connection::Http2(connection) => connection.send(request).await,
        }
    }
}

impl Pool {
    /// A pool without connections.
    pub(crate) fn new(origin: Origin) -> Rc<Self> {
        Rc::new_cyclic(|pool| Self {
            home: Rc::new(HomeOf {
                pool: Weak::clone(pool),
                client: None,
            }),
            origin,
            plan: Cell::default(),
            idle: RefCell::default(),
            shared: RefCell::default(),
            dial: RefCell::default(),
            speaks_http1: Cell::new(false),
            sweeps: Cell::new(false),
        })
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
    /// it.
    pub(crate) fn checkout(&self, client: Option<&ConnectionInfo>) -> Option<Lease> {
        let client = self.client(client);
        let now = coarse_now();
        let http2 = self.take_room(client, now).map(Connection::Http2);
        let found = http2.or_else(|| self.take_idle(client, now).map(Connection::Http1));
        found.map(Lease)
    }

    /// A new connection. One for many requests may be opened for others at the same time, and shared.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn connect(
        self: &Rc<Self>,
        client: Option<&ConnectionInfo>,
        timeouts: &Timeouts,
    ) -> Result<Lease, Failure> {
        let may_be_shared = match self.origin.protocol {
            Protocol::Http1 => false,
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
                return Ok(Lease(Connection::Http2(connection)));
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

    async fn open(
        self: &Rc<Self>,
        client: Option<&ConnectionInfo>,
        timeouts: &Timeouts,
    ) -> Result<Lease, Failure> {
        let mut connection = connect(&self.origin, client, timeouts).await?;
        match &mut connection {
            Connection::Http1(http1) => {
                self.speaks_http1.set(true);
                self.send_home(http1, self.client(client));
            }
            Connection::Http2(http2) => {
                self.speaks_http1.set(false);
                self.shared.borrow_mut().push(Shared {
                    connection: http2.clone(),
                    client: self.client(client),
                });
                self.keep_swept(self.plan.get().idle_timeout);
            }
        }
        Ok(Lease(connection))
    }

    /// Whom a connection has to be for.
    fn client(&self, client: Option<&ConnectionInfo>) -> Client {
        match self.origin.proxy_head {
            ProxyHead::None => None,
            ProxyHead::V1 | ProxyHead::V2 => client.map(|client| (client.peer, client.local)),
        }
    }

    /// A connection of HTTP/2 that has room.
    fn take_room(&self, client: Client, now: Instant) -> Option<Http2> {
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
    fn take_idle(&self, client: Client, now: Instant) -> Option<Http1> {
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
    fn send_home(&self, connection: &mut Http1, client: Client) {
        let plan = self.plan.get();
        let is_last = connection.requests().checked_add(1) == Some(plan.max_requests);
        if plan.max_idle == 0 || is_last {
            return;
        }
        connection.set_home(match client {
            None => Rc::clone(&self.home) as Rc<dyn Home>,
            Some(_) => Rc::new(HomeOf {
                pool: Weak::clone(&self.home.pool),
                client,
            }),
        });
    }

    fn put_back(self: &Rc<Self>, connection: Http1, client: Client) {
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
        let any = !idle.is_empty() || !shared.is_empty();
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

impl Home for HomeOf {
    fn take_back(&self, connection: Http1) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put_back(connection, self.client);
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
    /// Another connection would do no better.
    Lasting,
}

impl Fate {
    pub(crate) fn of(failure: &Failure, is_reused: bool) -> Self {
        match (&failure.phase, &failure.cause) {
            (Phase::Send | Phase::Head, Cause::Refused) => Self::Refused,
            (Phase::Send | Phase::Head, Cause::Closed) if is_reused => Self::Stale,
            (Phase::Send | Phase::Head, Cause::Io(error)) if is_reused => match error.kind() {
                ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::NotConnected
                | ErrorKind::UnexpectedEof => Self::Stale,
                _ => Self::Lasting,
            },
            _ => Self::Lasting,
        }
    }
}
