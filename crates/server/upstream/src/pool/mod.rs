//! The pool of connections of one worker to one node.

mod application;
mod concurrency;
mod connections;
mod pending_connection;

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_client::{
    ClientRequest, ClientResponse, ConnectionReturn, FailureCause, FastCgiClient, Http1Client,
    MultiplexedClient, Origin, OriginConnection, Protocol, ProxyHead, RequestFailure, RequestPhase,
    RequestTemplate, Timeouts, connect,
};
use apus_codec::proxy_protocol;
use apus_http::Body;
use apus_transport::coarse_now;

use crate::plan::ConnectionPoolPlan;
pub(crate) use application::{Admission, FastCgiApplication, PermitReceiver, RequestPermit};
use connections::{IdleConnection, MultiplexedConnection};
use pending_connection::{ConnectGuard, PendingConnection};

/// The connections of one worker to one node. Requests share connections only if they have the same origin
/// and, where a PROXY protocol header names the client, the same client.
pub(crate) struct ConnectionPool {
    origin: Origin,
    plan: Cell<ConnectionPoolPlan>,
    /// Idle connections of HTTP/1.1. The last used one is at the end and is taken first.
    idle: RefCell<Vec<IdleConnection>>,
    /// The return of connections that are not for one client.
    http1_return: Rc<Http1Return>,
    /// The application of a FastCGI node.
    application: Option<Arc<FastCgiApplication>>,
    /// The return of FastCGI connections after their first response.
    fastcgi_return: Rc<FastCgiReturn>,
    /// Connections of HTTP/2 and HTTP/3.
    multiplexed: RefCell<Vec<MultiplexedConnection>>,
    /// A connection that is being opened and that other requests may share.
    pending: RefCell<Option<Rc<PendingConnection>>>,
    /// Whether the node chose HTTP/1.1 by ALPN.
    speaks_http1: Cell<bool>,
    /// Whether the task that closes idle connections runs.
    is_swept: Cell<bool>,
}

thread_local! {
    /// The pools of this thread.
    static POOLS: RefCell<Vec<Weak<ConnectionPool>>> = const { RefCell::new(Vec::new()) };
}

/// Opens a connection. If too few file descriptors are left, it first closes an idle connection of any node.
async fn connect_or_evict(
    origin: &Origin,
    client: Option<proxy_protocol::ProxyHeader>,
    timeouts: &Timeouts,
) -> Result<OriginConnection, RequestFailure> {
    match connect(origin, client, timeouts).await {
        // Idle connections are worth less than a request: without descriptors they would keep the server from all its
        // nodes.
        Err(failure) if matches!(failure.cause, FailureCause::NoDescriptors) && close_idle() => {
            connect(origin, client, timeouts).await
        }
        opened => opened,
    }
}

/// Closes an idle connection of this thread. Returns whether there was one.
fn close_idle() -> bool {
    POOLS.with_borrow(|pools| {
        pools.iter().filter_map(Weak::upgrade).any(|pool| {
            let mut idle = pool.idle.borrow_mut();
            // The one that is idle for longest.
            (!idle.is_empty()).then(|| idle.remove(0)).is_some()
        })
    })
}

/// The client that a connection is for, if its PROXY protocol header names one.
type ProxyClient = Option<proxy_protocol::ProxyHeader>;

/// A connection of the pool, for one request.
pub(crate) struct PooledConnection {
    connection: OriginConnection,
    /// The permit of a new FastCGI connection, which may have to wait for a process of the application, and the
    /// time after which that is checked.
    first: Option<(Rc<RequestPermit>, Duration)>,
}

impl PooledConnection {
    /// Sends one attempt of a request.
    pub(crate) async fn send(
        self,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<ClientResponse, RequestFailure> {
        match (self.connection, self.first) {
            (OriginConnection::FastCgi(connection), Some((permit, patience))) => {
                // Of the requests over a FastCGI connection, only the first takes this path.
                let request = ClientRequest {
                    template: template.clone(),
                    body,
                };
                // Boxed, so that other requests have a smaller future.
                Box::pin(permit.send_first(connection, request, patience)).await
            }
            (connection, _) => connection.send_attempt(template, body).await,
        }
    }
}

impl From<OriginConnection> for PooledConnection {
    fn from(connection: OriginConnection) -> Self {
        Self {
            connection,
            first: None,
        }
    }
}

impl ConnectionPool {
    /// Creates a pool without connections. `application` is `Some` for a FastCGI node.
    pub(crate) fn new(origin: Origin, application: Option<Arc<FastCgiApplication>>) -> Rc<Self> {
        let pool = Rc::new_cyclic(|pool| Self {
            http1_return: Rc::new(Http1Return {
                pool: Weak::clone(pool),
                client: None,
            }),
            fastcgi_return: Rc::new(FastCgiReturn {
                pool: Weak::clone(pool),
                permit: None,
            }),
            origin,
            plan: Cell::default(),
            idle: RefCell::default(),
            application,
            multiplexed: RefCell::default(),
            pending: RefCell::default(),
            speaks_http1: Cell::new(false),
            is_swept: Cell::new(false),
        });
        POOLS.with_borrow_mut(|pools| {
            pools.retain(|known| known.strong_count() > 0);
            pools.push(Rc::downgrade(&pool));
        });
        pool
    }

    /// Returns the origin of its connections.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sets how long connections are kept.
    pub(crate) fn set_plan(&self, plan: ConnectionPoolPlan) {
        self.plan.set(plan);
    }

    /// Asks the application of a FastCGI node to admit a request; `None` for other nodes. If the request
    /// `may_wait`, it stays within the number that the application serves at once.
    pub(crate) fn admit(&self, may_wait: bool) -> Option<Admission> {
        let application = self.application.as_ref()?;
        Some(application.admit(may_wait && self.keeps_fastcgi()))
    }

    /// Takes an open connection, if there is one. It carried requests before, and the node may be closing it;
    /// `is_repeatable` says that the request may then be sent again. Requests to FastCGI nodes have a permit.
    pub(crate) fn checkout(
        &self,
        client: Option<proxy_protocol::ProxyHeader>,
        is_repeatable: bool,
        permit: Option<&Rc<RequestPermit>>,
    ) -> Option<OriginConnection> {
        if let Some(permit) = permit {
            return self.take_fastcgi(permit, is_repeatable);
        }
        let client = self.client(client);
        let now = coarse_now();
        let multiplexed = self.take_multiplexed(client, now);
        let multiplexed = multiplexed.map(OriginConnection::Multiplexed);
        multiplexed.or_else(|| self.take_http1(client, now).map(OriginConnection::Http1))
    }

    /// Opens a connection, or waits for one of HTTP/2 or HTTP/3 that another request is opening.
    ///
    /// # Errors
    /// It could not be opened.
    pub(crate) async fn connect(
        self: &Rc<Self>,
        client: Option<proxy_protocol::ProxyHeader>,
        timeouts: &Timeouts,
        permit: Option<&Rc<RequestPermit>>,
    ) -> Result<PooledConnection, RequestFailure> {
        let may_be_shared = match self.origin.protocol {
            Protocol::Http1 | Protocol::FastCgi => false,
            Protocol::Http2 | Protocol::Http3 => true,
            Protocol::Auto => self.origin.tls.is_some() && !self.speaks_http1.get(),
        };
        // The header names the client for the whole connection, so requests of different clients cannot share one.
        if !may_be_shared || self.origin.proxy_head != ProxyHead::None {
            return self.open(client, timeouts, permit).await;
        }
        loop {
            // Without this, the requests of a burst would open a connection each, and all but one would be idle (the
            // thundering herd).
            let known = self.pending.borrow().clone();
            let Some(pending) = known else {
                break;
            };
            // All that wait get the failure: each of them would otherwise try the dead node after the other, with a
            // timeout each.
            pending.ended().await?;
            if let Some(connection) = self.take_multiplexed(None, coarse_now()) {
                return Ok(OriginConnection::Multiplexed(connection).into());
            }
            if self.speaks_http1.get() {
                return self.open(client, timeouts, None).await;
            }
        }
        let guard = ConnectGuard::begin(self);
        let opened = self.open(client, timeouts, None).await;
        guard.end(opened.as_ref().err());
        opened
    }

    /// Whether the node chooses between HTTP/1.1 and HTTP/2.
    pub(crate) fn negotiates_version(&self) -> bool {
        self.origin.protocol == Protocol::Auto
    }

    /// Opens a connection of HTTP/1.1, even to a node that prefers HTTP/2.
    ///
    /// # Errors
    /// It could not be opened.
    pub(crate) async fn connect_http1(
        &self,
        client: Option<proxy_protocol::ProxyHeader>,
        timeouts: &Timeouts,
    ) -> Result<PooledConnection, RequestFailure> {
        // The request is for a tunnel. `Upgrade` exists in HTTP/1.1 alone, and few servers of HTTP/2 offer extended
        // CONNECT (RFC 8441).
        let origin = Origin {
            protocol: Protocol::Http1,
            ..self.origin.clone()
        };
        let mut connection = connect_or_evict(&origin, client, timeouts).await?;
        if let OriginConnection::Http1(http1) = &mut connection {
            self.set_http1_return(http1, self.client(client));
        }
        Ok(connection.into())
    }

    async fn open(
        self: &Rc<Self>,
        client: Option<proxy_protocol::ProxyHeader>,
        timeouts: &Timeouts,
        permit: Option<&Rc<RequestPermit>>,
    ) -> Result<PooledConnection, RequestFailure> {
        let first = permit.map(|permit| (Rc::clone(permit), permit.open()));
        let mut connection = connect_or_evict(&self.origin, client, timeouts).await?;
        match &mut connection {
            OriginConnection::Http1(http1) => {
                // From now on the requests of a burst open a connection each, since none of them can be shared.
                self.speaks_http1.set(true);
                self.set_http1_return(http1, self.client(client));
            }
            OriginConnection::Multiplexed(multiplexed) => {
                self.speaks_http1.set(false);
                self.multiplexed.borrow_mut().push(MultiplexedConnection {
                    connection: multiplexed.clone(),
                    client: self.client(client),
                });
                self.start_sweep(self.plan.get().idle_timeout);
            }
            OriginConnection::FastCgi(fastcgi) => {
                let fastcgi_return = FastCgiReturn {
                    pool: Weak::clone(&self.fastcgi_return.pool),
                    permit: permit.cloned(),
                };
                self.set_fastcgi_return(fastcgi, Rc::new(fastcgi_return));
            }
        }
        Ok(PooledConnection { connection, first })
    }

    /// Takes an idle connection of FastCGI, of any worker.
    fn take_fastcgi(
        &self,
        permit: &RequestPermit,
        is_repeatable: bool,
    ) -> Option<OriginConnection> {
        let plan = self.plan.get();
        let parked = permit.take(&plan, is_repeatable, Instant::now())?;
        let mut connection = parked.resume().ok()?;
        self.set_fastcgi_return(&mut connection, Rc::clone(&self.fastcgi_return));
        Some(OriginConnection::FastCgi(connection))
    }

    /// Returns the client that a connection has to be for.
    fn client(&self, client: Option<proxy_protocol::ProxyHeader>) -> ProxyClient {
        match self.origin.proxy_head {
            ProxyHead::None => None,
            ProxyHead::V1 | ProxyHead::V2 => client,
        }
    }

    /// Takes a connection of HTTP/2 or HTTP/3 that accepts one more request.
    fn take_multiplexed(&self, client: ProxyClient, now: Instant) -> Option<MultiplexedClient> {
        let plan = self.plan.get();
        let mut multiplexed = self.multiplexed.borrow_mut();
        if multiplexed.is_empty() {
            return None;
        }
        multiplexed.retain(|open| !open.is_expired(&plan, now));
        let found = multiplexed.iter().find(|open| open.accepts(client));
        found.map(|open| open.connection.clone())
    }

    /// Takes the last used idle connection of HTTP/1.1.
    fn take_http1(&self, client: ProxyClient, now: Instant) -> Option<Http1Client> {
        let plan = self.plan.get();
        let mut idle = self.idle.borrow_mut();
        loop {
            // Mostly the last one, so that `remove` moves nothing.
            // The last used one first: its congestion window is open, and those that are not needed grow old and are
            // closed.
            let index = idle.iter().rposition(|idle| idle.is_for(client))?;
            let mut found = idle.remove(index);
            // The sweep has looked some time ago, and the node may have closed the connection since: a request that
            // is not idempotent could not be sent again.
            if !found.is_expired(&plan, now) && found.connection.is_usable() {
                self.set_http1_return(&mut found.connection, client);
                return Some(found.connection);
            }
        }
    }

    /// Makes a connection return to the pool after its next response, unless that is its last one. The
    /// request then has `Connection: close`.
    fn set_http1_return(&self, connection: &mut Http1Client, client: ProxyClient) {
        let plan = self.plan.get();
        // So the node, too, closes it after its last response, and does not wait for a request that never comes.
        let is_last = connection.requests().checked_add(1) == Some(plan.max_requests);
        if plan.max_idle == 0 || is_last {
            return;
        }
        connection.set_connection_return(match client {
            None => Rc::clone(&self.http1_return) as Rc<dyn ConnectionReturn<Http1Client>>,
            Some(_) => Rc::new(Http1Return {
                pool: Weak::clone(&self.http1_return.pool),
                client,
            }),
        });
    }

    /// Does the same as [`Self::set_http1_return`] for FastCGI. A connection whose PROXY protocol header names a
    /// client does not return, because all workers share idle connections.
    fn set_fastcgi_return(
        &self,
        connection: &mut FastCgiClient,
        fastcgi_return: Rc<FastCgiReturn>,
    ) {
        let plan = self.plan.get();
        let is_last = connection.requests().checked_add(1) == Some(plan.max_requests);
        if self.keeps_fastcgi() && !is_last {
            connection.set_connection_return(fastcgi_return);
        }
    }

    /// Whether connections of FastCGI are used again.
    fn keeps_fastcgi(&self) -> bool {
        // An idle connection is for any worker and any client. One under TLS belongs to a thread, and one that began
        // with a PROXY protocol header to a client.
        self.plan.get().max_idle > 0
            && self.origin.proxy_head == ProxyHead::None
            && self.origin.tls.is_none()
    }

    fn put_back(self: &Rc<Self>, connection: Http1Client, client: ProxyClient) {
        let plan = self.plan.get();
        let mut idle = self.idle.borrow_mut();
        let returned = IdleConnection { connection, client };
        if returned.is_expired(&plan, coarse_now()) {
            return;
        }
        if !self.is_swept.get() {
            self.start_sweep(returned.idle_limit(&plan));
        }
        idle.push(returned);
        if idle.len() > plan.max_idle {
            // The one that is idle for longest.
            idle.remove(0);
        }
    }

    /// Starts the task that closes idle connections in time, unless it runs already. `limit` is how long they
    /// may be idle.
    fn start_sweep(self: &Rc<Self>, limit: Duration) {
        if !self.is_swept.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self), limit));
        }
    }

    /// Closes connections that were idle for too long or that the node closed. Returns how long the remaining
    /// ones may be idle, if there are any.
    fn sweep(&self) -> Option<Duration> {
        let (plan, now) = (self.plan.get(), Instant::now());
        let mut idle = self.idle.borrow_mut();
        // Nobody reads an idle connection. One that the node has closed would keep its descriptor until it is looked
        // at.
        idle.retain_mut(|idle| !idle.is_expired(&plan, now) && idle.connection.is_usable());
        let mut multiplexed = self.multiplexed.borrow_mut();
        multiplexed.retain(|open| !open.is_expired(&plan, now) && !open.is_idle(&plan, now));
        let application = self.application.as_ref();
        let any_parked = application.is_some_and(|application| application.sweep(&plan, now));
        let any = !idle.is_empty() || !multiplexed.is_empty() || any_parked;
        self.is_swept.set(any);
        let limits = idle.iter().map(|idle| idle.idle_limit(&plan));
        any.then(|| limits.min().unwrap_or(plan.idle_timeout))
    }
}

async fn sweep(pool: Weak<ConnectionPool>, mut limit: Duration) {
    loop {
        // A connection is closed a quarter of its limit late at most.
        tokio::time::sleep((limit / 4).clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL)).await;
        match pool.upgrade().and_then(|pool| pool.sweep()) {
            Some(least) => limit = least,
            None => return,
        }
    }
}

/// The limits of the interval at which idle connections are checked.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(100);
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The return of a connection of HTTP/1.1 to its pool. It holds the pool weakly, because the pool owns the
/// connection.
struct Http1Return {
    pool: Weak<ConnectionPool>,
    client: ProxyClient,
}

impl ConnectionReturn<Http1Client> for Http1Return {
    fn return_connection(&self, connection: Http1Client) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put_back(connection, self.client);
        }
    }
}

/// The return of a connection of FastCGI to the idle connections of all workers.
struct FastCgiReturn {
    pool: Weak<ConnectionPool>,
    /// The permit of the connection's first request.
    permit: Option<Rc<RequestPermit>>,
}

impl ConnectionReturn<FastCgiClient> for FastCgiReturn {
    fn return_connection(&self, connection: FastCgiClient) {
        if let Some(permit) = &self.permit {
            permit.serve();
        }
        if let Some(pool) = self.pool.upgrade()
            && let Some(application) = &pool.application
            && let Some(parked) = connection.park()
        {
            let plan = pool.plan.get();
            if application.put_back(parked, &plan) {
                pool.start_sweep(plan.idle_timeout);
            }
        }
    }
}

/// Whether a request that failed may succeed over another connection to the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFailure {
    /// It may: the node closed an idle connection before it sent any of a response.
    Stale,
    /// It may: the node accepted no more requests over the connection.
    Refused,
    /// It may over HTTP/1.1: the request is for a tunnel, which the node does not accept over its connections.
    NoTunnel,
    /// It would fail again.
    Permanent,
}

impl ConnectionFailure {
    pub(crate) fn of(failure: &RequestFailure, is_reused: bool) -> Self {
        match (&failure.phase, &failure.cause) {
            (RequestPhase::Send | RequestPhase::Head, FailureCause::Refused) => Self::Refused,
            (_, FailureCause::NoTunnel) => Self::NoTunnel,
            // The race of keep-alive: the node closes while the request is on its way (RFC 9112 section 9.3.1). Over a
            // new connection, the same is a failure of the node.
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
                    _ => Self::Permanent,
                }
            }
            _ => Self::Permanent,
        }
    }
}
