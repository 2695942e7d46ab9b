//! The configuration of groups of origins, as plain data from the configuration file or from code.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apus_client::{Address, Protocol, ProxyHead, ResponseRules, Timeouts, Tls};
use apus_http::{HeaderName, StatusCode};

/// A group of origins that serve the same requests.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// The name of the group for locations and the control socket.
    pub name: Arc<str>,
    /// The nodes, in the order of the status.
    pub nodes: Vec<NodePlan>,
    /// The balancing strategy.
    pub strategy: Strategy,
    /// A cookie that binds a client to its node, before the strategy applies.
    pub sticky: Option<StickyPlan>,
    /// The protocol of the nodes.
    pub protocol: Protocol,
    /// The PROXY protocol header that connections begin with.
    pub proxy_head: ProxyHead,
    /// What responses are read by: the limits of their heads, and whether HTTP/1.1 is read leniently.
    pub responses: ResponseRules,
    /// The pool of connections.
    pub pool: ConnectionPoolPlan,
    /// The queue of requests that wait for a slot of a node.
    pub queue: QueuePlan,
    /// The passive health checks; `None`: none.
    pub passive: Option<PassivePlan>,
    /// The active health checks; `None`: none.
    pub active: Option<CheckPlan>,
    /// The circuit breaker of each node; `None`: none.
    pub breaker: Option<BreakerPlan>,
    /// The ejection of nodes with more failures than the others; `None`: none.
    pub ejection: Option<EjectionPlan>,
    /// Statuses that count as failures of the node for the passive checks, the breaker and the ejection.
    pub failure_statuses: Vec<StatusCode>,
    /// The time in which a node that came back gets its full weight; zero: at once.
    pub slow_start: Duration,
    /// The retries.
    pub retry: RetryPlan,
    /// The time-outs of connections.
    pub timeouts: Timeouts,
    /// The longest time of a request, with waiting, retries and the body of the response; `None`: no limit.
    pub total_timeout: Option<Duration>,
    /// The resolution of the nodes' names.
    pub dns: DnsPlan,
}

impl GroupPlan {
    /// Creates a group of these nodes with the defaults.
    pub fn new(name: impl Into<Arc<str>>, nodes: Vec<NodePlan>) -> Self {
        Self {
            name: name.into(),
            nodes,
            strategy: Strategy::RoundRobin,
            sticky: None,
            protocol: Protocol::Http1,
            proxy_head: ProxyHead::None,
            responses: ResponseRules::default(),
            pool: ConnectionPoolPlan::default(),
            queue: QueuePlan::default(),
            passive: Some(PassivePlan::default()),
            active: None,
            breaker: None,
            ejection: None,
            failure_statuses: Vec::new(),
            slow_start: Duration::ZERO,
            retry: RetryPlan::default(),
            timeouts: Timeouts::default(),
            total_timeout: None,
            dns: DnsPlan::default(),
        }
    }
}

impl GroupPlan {
    /// Whether a response with this status is a failure of the node, or is retried.
    pub(crate) fn is_failure(&self, status: StatusCode) -> bool {
        self.failure_statuses.contains(&status) || self.retry.on.statuses.contains(&status)
    }
}

/// A node of a group: an address, or a name that is resolved to addresses.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// The name of the node in logs and on the control socket.
    pub name: Arc<str>,
    /// Its address or name.
    pub target: NodeTarget,
    /// TLS, if the node speaks it.
    pub tls: Option<Tls>,
    /// Its share of the requests, relative to the other nodes; at least 1.
    pub weight: u32,
    /// Whether it is used only when no other node is available.
    pub backup: bool,
    /// Its admin state.
    pub admin: AdminState,
    /// The most concurrent requests, over all workers; 0: no limit.
    pub max_requests: u32,
}

impl NodePlan {
    /// Creates a node with the defaults.
    pub fn new(name: impl Into<Arc<str>>, target: NodeTarget) -> Self {
        Self {
            name: name.into(),
            target,
            tls: None,
            weight: 1,
            backup: false,
            admin: AdminState::Up,
            max_requests: 0,
        }
    }
}

/// The address of a node, or a name that is resolved to addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeTarget {
    /// An address.
    Address(Address),
    /// The addresses of a name. Each is a separate node.
    Name {
        /// The name.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// The services of the SRV records of a name (RFC 2782), such as `_http._tcp.example.com`. Their weights
    /// multiply the node's weight, and those that do not have the best priority are backups.
    Service(Box<str>),
}

/// Whether an administrator allows requests to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminState {
    /// It gets requests.
    #[default]
    Up,
    /// It gets only requests whose sticky cookie names it.
    Drain,
    /// It gets no requests.
    Down,
}

/// How the node of a request is picked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Round robin, smooth by weight.
    #[default]
    RoundRobin,
    /// The fewest requests in flight for the weight, over all workers.
    LeastConnections,
    /// The least expected time to the response head.
    LeastTime,
    /// The less busy of two random nodes.
    BestOfTwo,
    /// At random by weight.
    Random,
    /// By a key: equal keys go to the same node, and few keys move when nodes change (ketama).
    ConsistentHash(HashKey),
}

impl Strategy {
    /// Whether it compares the requests in flight of nodes.
    pub(crate) fn uses_load(&self) -> bool {
        matches!(
            self,
            Self::LeastConnections | Self::LeastTime | Self::BestOfTwo
        )
    }
}

/// The source of the key of consistent hashing. The sender of a request hashes it by
/// [`hash_key`](crate::hash_key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Address,
    /// The request target.
    Uri,
    /// The value of a header.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(Box<str>),
}

/// The sticky cookie, which binds a client to a node (RFC 6265 section 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyPlan {
    /// The cookie's name.
    pub name: Box<str>,
    /// Its `Path`.
    pub path: Box<str>,
    /// Its `Domain`.
    pub domain: Option<Box<str>>,
    /// Its `Max-Age`; `None`: until the browser is closed.
    pub max_age: Option<Duration>,
    /// Whether it has `Secure`.
    pub secure: bool,
    /// Whether it has `HttpOnly`.
    pub http_only: bool,
    /// Its `SameSite`.
    pub same_site: Option<SameSite>,
}

impl StickyPlan {
    /// Creates a cookie for the whole site, with `HttpOnly`.
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            path: "/".into(),
            domain: None,
            max_age: None,
            secure: false,
            http_only: true,
            same_site: None,
        }
    }
}

/// The requests from other sites that carry a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// None.
    Strict,
    /// Those that follow a link.
    Lax,
    /// All.
    None,
}

impl fmt::Display for SameSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "Strict",
            Self::Lax => "Lax",
            Self::None => "None",
        })
    }
}

/// The pool of connections to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionPoolPlan {
    /// The most idle connections, for each worker and node; 0: none. All workers share FastCGI connections,
    /// for which this is the limit over all workers.
    pub max_idle: usize,
    /// The time after which an idle connection is closed. It has to be shorter than the node's own limit, so
    /// that no request is sent over a connection that the node closes.
    pub idle_timeout: Duration,
    /// The most requests over one connection; 0: no limit.
    pub max_requests: u64,
    /// The longest time that a connection is used; zero: no limit.
    pub max_age: Duration,
}

impl Default for ConnectionPoolPlan {
    fn default() -> Self {
        Self {
            // For each worker and node: under load as many connections as there are requests at a time, so that none
            // has to be opened, which over TLS costs more than a request.
            max_idle: 64,
            // Many servers close after 60 or 75 seconds (nginx), and Node.js after 5: those that announce it by
            // `Keep-Alive` are believed, for the others a request that meets a closed connection is sent again.
            idle_timeout: Duration::from_secs(30),
            max_requests: 0,
            // A connection that is never closed keeps to an address that DNS has long replaced.
            max_age: Duration::from_secs(3600),
        }
    }
}

/// The queue of requests that wait for a slot of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// The most requests in the queue, over all workers; 0: there is no queue.
    pub max_waiting: usize,
    /// The longest time that a request waits.
    pub timeout: Duration,
}

impl Default for QueuePlan {
    fn default() -> Self {
        Self {
            max_waiting: 1024,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Passive health checks: how many failed requests take a node out of service, and for how long. If no other
/// node of the group is available, it still gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassivePlan {
    /// The failures within `fail_timeout` that take a node out.
    pub max_fails: u32,
    /// The time within which failures count, and for which the node is out.
    pub fail_timeout: Duration,
}

impl Default for PassivePlan {
    fn default() -> Self {
        Self {
            // nginx takes a node out after a single failure, so that one reset connection halves a group of two.
            max_fails: 3,
            fail_timeout: Duration::from_secs(10),
        }
    }
}

/// The circuit breaker of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPlan {
    /// The failure rate, in percent, at which it opens.
    pub percent: u8,
    /// The fewest requests within the window for it to open.
    pub min_requests: u32,
    /// The time over which requests count.
    pub window: Duration,
    /// The time until a request is sent as a probe. It doubles with each probe that fails.
    pub open_for: Duration,
    /// The longest time until a probe.
    pub max_open_for: Duration,
    /// The number of successful probes, one after another, that close it; at least 1.
    pub probes: u32,
}

impl Default for BreakerPlan {
    fn default() -> Self {
        Self {
            percent: 50,
            min_requests: 20,
            window: Duration::from_secs(10),
            open_for: Duration::from_secs(5),
            max_open_for: Duration::from_secs(60),
            probes: 1,
        }
    }
}

/// The ejection of nodes with more failures than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionPlan {
    /// The failures in a row that eject a node; 0: none do.
    pub consecutive: u32,
    /// The comparison of failure rates; `None`: none.
    pub rate: Option<RatePlan>,
    /// The time of the first ejection. It grows by this with each further one.
    pub time: Duration,
    /// The longest time of an ejection.
    pub max_time: Duration,
    /// The most nodes that are ejected at the same time, in percent; at least one if this is not 0.
    pub max_percent: u8,
    /// The number of nodes that are never ejected.
    pub keep: usize,
}

impl Default for EjectionPlan {
    fn default() -> Self {
        Self {
            consecutive: 5,
            rate: Some(RatePlan::default()),
            time: Duration::from_secs(30),
            max_time: Duration::from_secs(300),
            max_percent: 50,
            keep: 1,
        }
    }
}

/// The comparison of the failure rates of the nodes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatePlan {
    /// The time between two comparisons.
    pub interval: Duration,
    /// The difference between the failure rate of a node and the rate of the others, in percent, that ejects the node.
    pub margin: u8,
    /// The fewest requests of the node in the interval.
    pub min_requests: u32,
}

impl Default for RatePlan {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            margin: 30,
            min_requests: 20,
        }
    }
}

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPlan {
    /// The kind of check.
    pub kind: CheckKind,
    /// The time between two checks of a node.
    pub interval: Duration,
    /// The random variation of the interval, in percent.
    pub jitter: u8,
    /// The longest time of one check.
    pub timeout: Duration,
    /// The successful checks in a row that bring a node back.
    pub rise: u32,
    /// The failed checks in a row that take a node out.
    pub fall: u32,
}

impl CheckPlan {
    /// Creates a check with the default times.
    pub fn new(kind: CheckKind) -> Self {
        Self {
            kind,
            interval: Duration::from_secs(5),
            // Servers that were started together would otherwise check together for ever.
            jitter: 20,
            timeout: Duration::from_secs(3),
            rise: 2,
            // Rise and fall differ: to go on with a node that fails costs errors, to be without one that works costs
            // room.
            fall: 3,
        }
    }
}

/// The kind of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A connection, with a TLS handshake if the node speaks TLS.
    Connect,
    /// A GET request. Over FastCGI the target names the script: the `ping.path` of PHP-FPM, or a file by its
    /// absolute path.
    Http {
        /// The request target.
        target: Box<str>,
        /// The `Host`; `None`: the name or address of the node.
        host: Option<Box<str>>,
        /// The statuses that are successful; empty: 200 to 399.
        statuses: Vec<StatusCode>,
        /// A text that the first 64 KiB of the body must contain.
        contains: Option<Box<str>>,
    },
    /// A call of `grpc.health.v1.Health/Check` over HTTP/2, which must respond `SERVING`.
    Grpc {
        /// The name of the service; empty: the server as a whole.
        service: Box<str>,
    },
}

/// The retries of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPlan {
    /// The most attempts of a request; 1: there are no retries.
    pub tries: u32,
    /// The time after the arrival of a request within which a retry may begin; `None`: no limit.
    pub within: Option<Duration>,
    /// The failures that are retried.
    pub on: RetryOn,
    /// Whether a request that a node may have seen is retried even if its method is not idempotent.
    pub non_idempotent: bool,
    /// The budget of retries.
    pub budget: BudgetPlan,
    /// The time without a response after which an idempotent request without a body is also sent to a second
    /// node; the first response wins. `None`: never.
    pub hedge: Option<Duration>,
}

impl Default for RetryPlan {
    fn default() -> Self {
        Self {
            tries: 3,
            within: None,
            on: RetryOn::default(),
            non_idempotent: false,
            budget: BudgetPlan::default(),
            hedge: None,
        }
    }
}

/// The failures that are retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// The connection failed, or the node broke the protocol.
    pub error: bool,
    /// The node was too slow to accept the connection or to respond.
    pub timeout: bool,
    /// The response has one of these statuses.
    pub statuses: Vec<StatusCode>,
}

impl Default for RetryOn {
    fn default() -> Self {
        Self {
            error: true,
            timeout: true,
            statuses: Vec::new(),
        }
    }
}

/// The budget of retries of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetPlan {
    /// The retries, in percent of the requests.
    pub percent: u8,
    /// The retries per second that are always allowed in addition.
    pub min_per_second: u32,
}

impl Default for BudgetPlan {
    fn default() -> Self {
        Self {
            // As in Finagle and Linkerd: retries then add at most a fifth to the load of a group that fails, where
            // three tries for each request would triple it (a retry storm).
            percent: 20,
            // A group with few requests has hardly a share of them, and could never retry.
            min_per_second: 10,
        }
    }
}

/// The resolution of the nodes' names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsPlan {
    /// The DNS servers; empty: the servers of the system.
    pub servers: Vec<SocketAddr>,
    /// The shortest time until a name is looked up again, whatever its TTL.
    pub min_ttl: Duration,
    /// The longest time until a name is looked up again, whatever its TTL.
    pub max_ttl: Duration,
    /// The longest time of one lookup.
    pub timeout: Duration,
    /// Whether IPv6 addresses are used.
    pub ipv6: bool,
}

impl Default for DnsPlan {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            // A TTL of zero, as service discovery has it, would mean a lookup without pause.
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(300),
            timeout: Duration::from_secs(5),
            ipv6: true,
        }
    }
}
