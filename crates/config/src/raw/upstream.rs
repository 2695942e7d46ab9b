//! The keys of groups of origins: `[[sites.upstreams]]`.

use serde_json::json;
use toml::de::DeValue;

use super::{TlsVersion, YEAR, not_given};
use crate::keys::{ConfigReader, KeyType, TypeDescription, ValueNode, choices, keys};
use crate::source::Setting;
use crate::string_type::SitePath;
use crate::string_type::origin::{
    CookiePath, DnsServer, Domain, GroupName, HashKeyText, HostAndPort, NodeAddress, RetryCause,
    Statuses, Token,
};
use crate::value::{FilePath, Int, OneOrMore, Seconds, Switch, Text, Time};

keys! {
    /// A group of origins that answer the same requests. Locations name it as their `upstream`.
    pub(crate) struct Upstream {
        /// The name of the group, for `upstream` in this site, logs and `apus upstream`.
        name [required]: GroupName,
        /// Its nodes: addresses, or tables that say more.
        nodes [required]: OneOrMore<NodeEntry>,
        /// Which node a request goes to.
        strategy: Strategy = Strategy::RoundRobin,
        /// What decides with the strategy `hash`: `"address"` of the client, `"uri"`, `"header:NAME"` or
        /// `"cookie:NAME"`. Equal ones go to one node, and few move when nodes come and go.
        hash: HashKeyText,
        /// The protocol that is spoken with the nodes.
        protocol: Protocol = Protocol::Http1,
        /// TLS to the nodes. Also spoken, with the defaults, where the nodes are written `https://`.
        tls: UpstreamTls,
        /// A cookie that keeps a client with its node, whatever the strategy says.
        sticky: Switch<Sticky> = Switch::Off,
        /// How connections are kept for the next requests.
        keepalive: Keepalive,
        /// Where requests wait while all nodes have their `max_conns`.
        queue: Queue,
        /// How failing requests take a node out for a while. The last node is asked nevertheless.
        passive: Switch<Passive> = Switch::On,
        /// How nodes are checked, whether there are requests or not.
        check: Switch<Check> = Switch::Off,
        /// The circuit breaker of each node.
        breaker: Switch<Breaker> = Switch::Off,
        /// How nodes that are worse than the others are ejected for a while.
        ejection: Switch<Ejection> = Switch::Off,
        /// What is tried again with another node.
        retry: Retry,
        /// How the names of nodes are resolved. They are asked for again when their time to live ends.
        dns: Dns,
        /// How long connecting may take, in seconds.
        connect_timeout: Time<YEAR> = Time::new(5),
        /// How long the TLS handshake may take, in seconds.
        tls_timeout: Time<YEAR> = Time::new(10),
        /// How long the head of a response may take after the request was sent, in seconds.
        first_byte_timeout: Time<YEAR> = Time::new(60),
        /// How long a node may pause while it sends a response, in seconds.
        read_timeout: Time<YEAR> = Time::new(60),
        /// How long a node may take nothing of a request, in seconds.
        write_timeout: Time<YEAR> = Time::new(60),
        /// The longest that a request may take with waiting, retries and content, in seconds. By
        /// default there is no limit.
        total_timeout: Time<YEAR>,
        /// The time over which a node that came back gets its full share, in seconds; 0: at once.
        slow_start: Seconds<0, YEAR> = Seconds::new(0),
        /// The PROXY protocol head that connections begin with, to name the client. Each client has
        /// connections of its own then.
        send_proxy: ProxyHead,
        /// Statuses that count as failures of the node, for `passive`, `breaker` and `ejection`:
        /// `[500, "5xx"]`.
        failure_statuses: OneOrMore<Statuses> = OneOrMore::default(),
    }
}

choices! {
    /// How the node of a request is chosen.
    pub(crate) Strategy: "a strategy" {
        /// In turns, smoothly by weight.
        RoundRobin = "round_robin",
        /// The same.
        Weighted = "weighted",
        /// The fewest open requests for the weight.
        LeastConn = "least_conn",
        /// The least expected time to the head of the response.
        LeastTime = "least_time",
        /// The less busy of two random nodes.
        BestOfTwo = "p2c",
        /// At random by weight.
        Random = "random",
        /// By a key: `hash`.
        Hash = "hash",
        /// By the client's address.
        IpHash = "ip_hash",
    }
}

choices! {
    /// What is spoken with nodes.
    pub(crate) Protocol: "a protocol of origins" {
        /// HTTP/1.1.
        Http1 = "http/1.1",
        /// HTTP/2; in clear text with prior knowledge.
        Http2 = "h2",
        /// Over TLS, what the node chooses of the two; else HTTP/1.1.
        Auto = "auto",
        /// FastCGI, for `php_fastcgi`.
        FastCgi = "fastcgi",
    }
}

choices! {
    /// A version of the PROXY protocol.
    pub(crate) ProxyHead: "a version of the PROXY protocol" {
        /// A line of text.
        V1 = "v1",
        /// Binary.
        V2 = "v2",
    }
}

keys! {
    /// A node of a group.
    pub(crate) struct UpstreamNode {
        /// Where it is: `"host:port"`, `"[::1]:port"`, `"unix:/path"`, `"https://host:port"`, or
        /// `"srv:_http._tcp.example.com"` for what the SRV records of a name say. Each address of a name
        /// is a node of its own.
        addr [required]: NodeAddress,
        /// What logs and `apus upstream` call it. By default its address as it is written.
        name: Text,
        /// Its share of requests beside the others'.
        weight: Int<1, 1_000_000> = Int(1),
        /// Whether it is asked only when none of the others can be.
        backup: bool = false,
        /// Whether it gets only requests of clients that `sticky` keeps with it.
        drain: bool = false,
        /// Whether it gets no requests.
        down: bool = false,
        /// The most requests that it works on at once; others wait in the queue. 0: any number.
        max_conns: Int<0, 10_000_000> = Int(0),
    }
}

/// A node: its address alone, or a table.
#[derive(Clone, Debug)]
pub(crate) enum NodeEntry {
    Address(NodeAddress),
    Table(Box<UpstreamNode>),
}

impl KeyType for NodeEntry {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::String(_) => NodeAddress::read(node, reader).map(Self::Address),
            DeValue::Table(_) => {
                UpstreamNode::read(node, reader).map(|table| Self::Table(Box::new(table)))
            }
            _ => {
                reader.wrong_type(node, "an address or a table");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let table = UpstreamNode::type_description();
        TypeDescription {
            expected: "an address, a table".to_owned(),
            schema: json!({"anyOf": [{"type": "string"}, table.schema]}),
            repeated: true,
            ..table
        }
    }
}

keys! {
    /// TLS to the nodes of a group.
    pub(crate) struct UpstreamTls {
        /// Whether the certificates of nodes are verified. Without that, whoever is on the way can read
        /// and change all that is sent.
        verify: bool = true,
        /// Certificates of those who may sign those of nodes, PEM. By default those that the system
        /// trusts.
        ca: FilePath,
        /// The certificate that is shown to nodes which ask for one, with its chain, PEM.
        cert: FilePath,
        /// The private key of `cert`, PEM.
        key: FilePath,
        /// The name that is asked for and that certificates have to be for. By default the host in the
        /// address of each node.
        server_name: Text,
        /// The oldest version of TLS that is spoken.
        min_version: TlsVersion = TlsVersion::Tls12,
    }
}

keys! {
    /// The cookie that keeps a client with its node.
    pub(crate) struct Sticky {
        /// Its name.
        name: Token = Token("apus_node".to_owned()),
        /// Its `Path`.
        path: CookiePath = CookiePath("/".to_owned()),
        /// Its `Domain`. By default the host that the client asked for.
        domain: Domain,
        /// Its `Max-Age`, in seconds. By default until the browser is closed.
        max_age: Time<{ 100 * YEAR }>,
        /// Whether it is for TLS only.
        secure: bool = false,
        /// Whether scripts cannot read it.
        http_only: bool = true,
        /// Which requests from other sites it comes with.
        same_site: SameSite,
    }
}

choices! {
    /// Which requests from other sites a cookie comes with.
    pub(crate) SameSite: "a value of SameSite" {
        /// None.
        Strict = "strict",
        /// Those that follow a link.
        Lax = "lax",
        /// All.
        None = "none",
    }
}

keys! {
    /// How connections to nodes are kept.
    pub(crate) struct Keepalive {
        /// The most connections that wait for a request, of each worker and node. 0: none is kept.
        max_idle: Int<0, 1_000_000> = Int(64),
        /// How long one waits, in seconds. What a node says of its own limit, by `Keep-Alive: timeout`,
        /// counts if that is shorter; the limits of others should be longer.
        idle_timeout: Time<YEAR> = Time::new(30),
        /// The most requests over one connection. 0: any number.
        max_requests: Int<0, { i64::MAX as u64 }> = Int(0),
        /// The longest that a connection is used, in seconds. 0: any time.
        max_age: Seconds<0, YEAR> = Seconds::new(3600),
    }
}

keys! {
    /// The queue of requests that wait for a node. They are served in their order, and clients each in
    /// turn.
    pub(crate) struct Queue {
        /// The most requests that wait, over all workers; answered 503 beyond. 0: none waits.
        max: Int<0, 10_000_000> = Int(1024),
        /// How long one waits, in seconds.
        timeout: Time<YEAR> = Time::new(30),
    }
}

keys! {
    /// When failing requests take a node out.
    pub(crate) struct Passive {
        /// So many failures within `fail_timeout` take it out.
        max_fails: Int<1, 1_000_000> = Int(3),
        /// Within which time, and for how long, in seconds.
        fail_timeout: Time<YEAR> = Time::new(10),
    }
}

keys! {
    /// How nodes are checked.
    pub(crate) struct Check {
        /// What is asked: `http` for a response to GET, `tcp` whether a connection opens, `grpc` for
        /// `SERVING` of `grpc.health.v1.Health`.
        r#type: CheckType = CheckType::Http,
        /// The path of the request, for `http`. By default `/`.
        path: SitePath,
        /// Its `Host`. By default the node's name.
        host: HostAndPort,
        /// The statuses that are good. By default 200 to 399.
        status: OneOrMore<Statuses> = OneOrMore::default(),
        /// What the content must have in its first 64 KB.
        contains: Text,
        /// The service that is asked about, for `grpc`. By default the server as a whole.
        service: Text,
        /// The time between two checks of a node, in seconds.
        interval: Time<YEAR> = Time::new(5),
        /// How much longer or shorter that is by chance, in percent.
        jitter: Int<0, 100> = Int(20),
        /// The longest that one check takes, in seconds.
        timeout: Time<YEAR> = Time::new(3),
        /// How many good checks in a row bring a node back.
        rise: Int<1, 1_000_000> = Int(2),
        /// How many bad checks in a row take a node out.
        fall: Int<1, 1_000_000> = Int(3),
    }
}

choices! {
    /// What a check asks.
    pub(crate) CheckType: "a kind of check" {
        /// For a response to GET.
        Http = "http",
        /// Whether a connection opens.
        Tcp = "tcp",
        /// For the state of a gRPC service.
        Grpc = "grpc",
    }
}

keys! {
    /// When the circuit breaker of a node opens. When it has been open for its time, single requests find
    /// out whether it may close.
    pub(crate) struct Breaker {
        /// The part of requests that fail, in percent, that opens it...
        percent: Int<1, 100> = Int(50),
        /// ...when there were at least so many requests...
        min_requests: Int<1, 1_000_000> = Int(20),
        /// ...within this time, in seconds.
        window: Time<YEAR> = Time::new(10),
        /// How long it is open, in seconds; twice as long each time that the node is not back.
        open_for: Time<YEAR> = Time::new(5),
        /// The longest that it is open, in seconds.
        max_open_for: Time<YEAR> = Time::new(60),
        /// How many requests, one after another, have to be answered before it closes.
        probes: Int<1, 1_000_000> = Int(1),
    }
}

keys! {
    /// When a node is ejected for being worse than the others.
    pub(crate) struct Ejection {
        /// So many failures in a row. 0: not for that.
        consecutive: Int<0, 1_000_000> = Int(5),
        /// The comparison of the node with its group.
        rate: Switch<EjectionRate> = Switch::On,
        /// How long it is ejected, in seconds: this, times how often it was.
        time: Time<YEAR> = Time::new(30),
        /// The longest that it is ejected, in seconds.
        max_time: Time<YEAR> = Time::new(300),
        /// The most nodes that are ejected at once, in percent; one may be, if it is not 0.
        max_percent: Int<0, 100> = Int(50),
        /// How many nodes stay whatever they do.
        keep: Int<0, 1_000_000> = Int(1),
    }
}

keys! {
    /// The comparison of a node with its group.
    pub(crate) struct EjectionRate {
        /// How often nodes are compared, in seconds.
        interval: Time<YEAR> = Time::new(10),
        /// How many percent more of its requests than of the others' fail, at least.
        margin: Int<1, 100> = Int(30),
        /// The fewest requests in the interval.
        min_requests: Int<1, 1_000_000> = Int(20),
    }
}

keys! {
    /// What is tried again with another node. A request that a node may have seen is tried again only if
    /// its method is idempotent.
    pub(crate) struct Retry {
        /// Attempts in all. 1: nothing is tried again.
        tries: Int<1, 100> = Int(3),
        /// How long after the request came another attempt may begin, in seconds. By default any time.
        within: Time<YEAR>,
        /// What goes wrong when it is tried again: `"error"` of the connection, `"timeout"`, and statuses
        /// as 503 or `"5xx"`.
        on: OneOrMore<RetryCause> = OneOrMore(default_causes()),
        /// Whether requests that a node may have seen are tried again whatever their method.
        non_idempotent: bool = false,
        /// How many retries there may be.
        budget: RetryBudget,
        /// After how many seconds without an answer an idempotent request without content is sent to a
        /// second node too; the first answer counts. By default never.
        hedge: Time<YEAR>,
    }
}

fn default_causes() -> Vec<Setting<RetryCause>> {
    vec![not_given(RetryCause::Error), not_given(RetryCause::Timeout)]
}

keys! {
    /// How many retries a group may make, so that they do not bury nodes that are slow already.
    pub(crate) struct RetryBudget {
        /// In percent of its requests...
        percent: Int<0, 100> = Int(20),
        /// ...and so many each second besides.
        min_per_second: Int<0, 1_000_000> = Int(10),
    }
}

keys! {
    /// How names of nodes are resolved.
    pub(crate) struct Dns {
        /// The resolvers to ask, as `"192.0.2.53"` or with a port. By default those of the system.
        servers: OneOrMore<DnsServer> = OneOrMore::default(),
        /// The shortest time until a name is asked for again, in seconds.
        min_ttl: Time<YEAR> = Time::new(1),
        /// The longest time until a name is asked for again, in seconds.
        max_ttl: Time<YEAR> = Time::new(300),
        /// How long one lookup may take, in seconds.
        timeout: Time<YEAR> = Time::new(5),
        /// Whether IPv6 addresses are used.
        ipv6: bool = true,
    }
}
