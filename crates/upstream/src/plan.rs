//! The configuration of groups of origins.
//!
//! It is plain data, made from the configuration file or in code, and shared by all threads.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{HeaderName, StatusCode};
use apus_net::client::{Address, Protocol, ProxyHead, Timeouts, Tls};

/// A group of origins that answer the same requests.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// The name by which locations and the control socket know the group.
    pub name: Arc<str>,
    /// The nodes, in the order in which they are shown.
    pub nodes: Vec<NodePlan>,
    /// Which node a request goes to.
    pub strategy: Strategy,
    /// A cookie that keeps a client with its node, whatever the strategy says.
    pub sticky: Option<StickyPlan>,
    /// The HTTP version spoken with the nodes.
    pub protocol: Protocol,
    /// The PROXY protocol head that connections begin with.
    pub proxy_head: ProxyHead,
    /// How connections are kept.
    pub pool: PoolPlan,
    /// Where requests wait for a node that has its most already.
    pub queue: QueuePlan,
    /// How failing requests take a node out; `None`: not at all.
    pub passive: Option<PassivePlan>,
    /// How nodes are checked; `None`: not at all.
    pub active: Option<CheckPlan>,
    /// The circuit breaker of each node; `None`: none.
    pub breaker: Option<BreakerPlan>,
    /// How nodes worse than the others are ejected; `None`: not at all.
    pub ejection: Option<EjectionPlan>,
    /// Statuses that count as failures of the node for all of these.
    pub failure_statuses: Vec<StatusCode>,
    /// The time over which a node that came back gets its full share; zero: at once.
    pub slow_start: Duration,
    /// What is tried again.
    pub retry: RetryPlan,
    /// The time-outs of connections.
    pub timeouts: Timeouts,
    /// The longest time that a request may take, retries, waiting and content included; `None`: any.
    pub total_timeout: Option<Duration>,
    /// How names of nodes are resolved.
    pub dns: DnsPlan,
}

impl GroupPlan {
    /// A group of these nodes with the defaults.
    pub fn new(name: impl Into<Arc<str>>, nodes: Vec<NodePlan>) -> Self {
        Self {
            name: name.into(),
            nodes,
            strategy: Strategy::RoundRobin,
            sticky: None,
            protocol: Protocol::Http1,
            proxy_head: ProxyHead::None,
            pool: PoolPlan::default(),
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
    /// Whether a response with this status is a failure of the node, or one that another node may better.
    pub(crate) fn is_failure(&self, status: StatusCode) -> bool {
        self.failure_statuses.contains(&status) || self.retry.on.statuses.contains(&status)
    }
}

/// A node of a group: an address, or a name that stands for some.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// What logs and the control socket call it.
    pub name: Arc<str>,
    /// Where it is.
    pub place: Place,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
    /// Its share of requests beside the others'; at least 1.
    pub weight: u32,
    /// Whether it is asked only when none of the others can be.
    pub backup: bool,
    /// Whether it is asked at all.
    pub admin: Admin,
    /// The most requests that it works on at once, over all workers; 0: any number.
    pub max_requests: u32,
}

impl NodePlan {
    /// A node with the defaults.
    pub fn new(name: impl Into<Arc<str>>, place: Place) -> Self {
        Self {
            name: name.into(),
            place,
            tls: None,
            weight: 1,
            backup: false,
            admin: Admin::Up,
            max_requests: 0,
        }
    }
}

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// At an address.
    Address(Address),
    /// At the addresses of a name, each a node of its own.
    Name {
        /// The name.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// Where the SRV records of a name say (RFC 2782), such as `_http._tcp.example.com`. Their weights
    /// multiply the node's, and those that are not of the best priority are backups.
    Service(Box<str>),
}

/// Whether a node is to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// It takes requests.
    #[default]
    Up,
    /// It takes only requests of clients that a sticky cookie keeps with it.
    Drain,
    /// It takes no requests.
    Down,
}

/// How the node of a request is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// In turns, smoothly by weight.
    #[default]
    RoundRobin,
    /// The fewest open requests for the weight, over all workers.
    LeastConnections,
    /// The least expected time to the head of the response.
    LeastTime,
    /// The less busy of two random nodes.
    BestOfTwo,
    /// At random by weight.
    Random,
    /// By a key, so that equal keys go to one node and few move when nodes change (ketama).
    ConsistentHash(HashKey),
}

impl Strategy {
    /// Whether it compares how busy nodes are.
    pub(crate) fn looks_at_load(&self) -> bool {
        matches!(
            self,
            Self::LeastConnections | Self::LeastTime | Self::BestOfTwo
        )
    }
}

/// What the key of consistent hashing is made of. Who sends a request gives it, hashed by
/// [`hash_key`](crate::hash_key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Address,
    /// The request target.
    Uri,
    /// The value of a field.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(Box<str>),
}

/// The cookie that keeps a client with its node (RFC 6265 section 4.1).
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
    /// Whether it is for TLS only.
    pub secure: bool,
    /// Whether scripts cannot read it.
    pub http_only: bool,
    /// Its `SameSite`.
    pub same_site: Option<SameSite>,
}

impl StickyPlan {
    /// A cookie for the whole site that scripts cannot read.
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

/// Which requests from other sites a cookie comes with.
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

/// How a worker keeps connections to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// The most connections that wait for a request, of each worker and node; 0: none is kept. Those of
    /// FastCGI are counted over all workers, which share them.
    pub max_idle: usize,
    /// How long one waits before it is closed. Shorter than the node's own limit, so that a request
    /// does not meet a connection that is being closed.
    pub idle_timeout: Duration,
    /// The most requests over one connection; 0: any number.
    pub max_requests: u64,
    /// The longest that a connection is used; zero: any time.
    pub max_age: Duration,
}

impl Default for PoolPlan {
    fn default() -> Self {
        Self {
            max_idle: 64,
            idle_timeout: Duration::from_secs(30),
            max_requests: 0,
            max_age: Duration::from_secs(3600),
        }
    }
}

/// The queue of requests that wait for a node of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// The most requests that wait, over all workers; 0: none waits.
    pub max_waiting: usize,
    /// How long one waits.
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

/// When failing requests take a node out, and for how long. The last node of a group is asked
/// nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassivePlan {
    /// So many failures...
    pub max_fails: u32,
    /// ...within this time take it out for the same time.
    pub fail_timeout: Duration,
}

impl Default for PassivePlan {
    fn default() -> Self {
        Self {
            max_fails: 3,
            fail_timeout: Duration::from_secs(10),
        }
    }
}

/// When a node's circuit breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPlan {
    /// The part of requests that fail, in percent, that opens it...
    pub percent: u8,
    /// ...when there were at least so many requests...
    pub min_requests: u32,
    /// ...within this time.
    pub window: Duration,
    /// How long it is open before a request tries the node; twice as long each time that fails.
    pub open_for: Duration,
    /// The longest that it is open.
    pub max_open_for: Duration,
    /// How many requests, one after another, have to be answered before it closes; at least 1.
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

/// When a node is ejected for being worse than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionPlan {
    /// So many failures in a row; 0: not for that.
    pub consecutive: u32,
    /// The comparison with the group; `None`: not for that.
    pub rate: Option<RatePlan>,
    /// How long it is ejected: this, times how often it was.
    pub time: Duration,
    /// The longest that it is ejected.
    pub max_time: Duration,
    /// The most nodes that are ejected at once, in percent; one may be, if it is not 0.
    pub max_percent: u8,
    /// How many nodes stay whatever they do.
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

/// The comparison of a node with its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatePlan {
    /// How often nodes are compared.
    pub interval: Duration,
    /// How many percent more of its requests than of the others' fail, at least.
    pub margin: u8,
    /// The fewest requests in the interval.
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

/// How nodes are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPlan {
    /// What is asked.
    pub kind: CheckKind,
    /// The time between two checks of a node.
    pub interval: Duration,
    /// How much longer or shorter that is by chance, in percent.
    pub jitter: u8,
    /// The longest that one check takes.
    pub timeout: Duration,
    /// How many good checks in a row bring a node back.
    pub rise: u32,
    /// How many bad checks in a row take a node out.
    pub fall: u32,
}

impl CheckPlan {
    /// A check with the default times.
    pub fn new(kind: CheckKind) -> Self {
        Self {
            kind,
            interval: Duration::from_secs(5),
            jitter: 20,
            timeout: Duration::from_secs(3),
            rise: 2,
            fall: 3,
        }
    }
}

/// What a check asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// Whether a connection opens, and TLS if the node speaks it.
    Connect,
    /// For a response to GET. An application that speaks FastCGI is asked for the script that the target
    /// names: `ping.path` of PHP-FPM, or a file by its whole path.
    Http {
        /// The request target.
        target: Box<str>,
        /// The `Host`; `None`: the name or address at which the node is.
        host: Option<Box<str>>,
        /// The statuses that are good; empty: 200 to 399.
        statuses: Vec<StatusCode>,
        /// What the content must have in its first 64 KiB.
        contains: Option<Box<str>>,
    },
    /// For `SERVING` of `grpc.health.v1.Health/Check`, over HTTP/2.
    Grpc {
        /// The service asked about; empty: the server as a whole.
        service: Box<str>,
    },
}

/// What is tried again with another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPlan {
    /// Attempts in all; 1: nothing is tried again.
    pub tries: u32,
    /// How long after the request came another attempt may begin; `None`: any time.
    pub within: Option<Duration>,
    /// What goes wrong when it is tried again.
    pub on: RetryOn,
    /// Whether a request that a node may have seen is tried again even if its method is not idempotent.
    pub non_idempotent: bool,
    /// How many retries there may be.
    pub budget: BudgetPlan,
    /// After which time without an answer an idempotent request without content is sent to a second
    /// node too; the first answer counts. `None`: never.
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

/// What goes wrong when a request is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// The connection failed, or what came was no HTTP.
    pub error: bool,
    /// The node was too slow to accept, or to answer.
    pub timeout: bool,
    /// The node answered with one of these.
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

/// How many retries a group may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetPlan {
    /// In percent of its requests...
    pub percent: u8,
    /// ...and so many each second besides.
    pub min_per_second: u32,
}

impl Default for BudgetPlan {
    fn default() -> Self {
        Self {
            percent: 20,
            min_per_second: 10,
        }
    }
}

/// How names of nodes are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsPlan {
    /// The resolvers to ask; empty: those of the system.
    pub servers: Vec<SocketAddr>,
    /// The shortest time until a name is asked for again, whatever its TTL.
    pub min_ttl: Duration,
    /// The longest time until a name is asked for again, whatever its TTL.
    pub max_ttl: Duration,
    /// How long one lookup may take.
    pub timeout: Duration,
    /// Whether IPv6 addresses are used.
    pub ipv6: bool,
}

impl Default for DnsPlan {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(300),
            timeout: Duration::from_secs(5),
            ipv6: true,
        }
    }
}
