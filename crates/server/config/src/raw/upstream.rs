//! The keys of groups of origins: `[[sites.upstreams]]`.

use serde_json::json;
use toml::de::DeValue;

use super::{TlsVersion, YEAR, not_given};
use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, ValueNode, choices, keys};
use crate::size::Kilobytes;
use crate::source::Setting;
use crate::string_type::SitePath;
use crate::string_type::origin::{
    CookiePath, DnsServer, Domain, GroupName, HashKeyText, HostAndPort, NodeAddress, RetryCause,
    Statuses, Token,
};
use crate::value::{FilePath, Int, OneOrMore, Seconds, Switch, Text, Time};

keys! {
    /// A group of origins that serve the same requests. Locations name it as their `upstream`.
    pub(crate) struct Upstream {
        /// The name of the group, for `upstream` in this site, logs and `apus upstream`.
        name [required]: GroupName,
        /// Its nodes: addresses, or tables.
        nodes [required]: OneOrMore<NodeEntry>,
        /// The balancing strategy.
        strategy: Strategy = Strategy::RoundRobin,
        /// The key of the strategy `hash`: `"address"` of the client, `"uri"`, `"header:NAME"` or
        /// `"cookie:NAME"`. Requests with equal keys go to one node, and few move when nodes are
        /// added or removed.
        hash: HashKeyText,
        /// The protocol of the nodes.
        protocol: Protocol = Protocol::Http1,
        /// TLS to the nodes. It is also used, with the defaults, where the nodes are written
        /// `https://`.
        tls: UpstreamTls,
        /// A cookie that keeps a client on its node, whatever the strategy.
        sticky: Switch<Sticky> = Switch::Off,
        /// The idle connections to nodes.
        keepalive: Keepalive,
        /// The queue of requests while all nodes have reached `max_conns`.
        queue: Queue,
        /// Passive health: failing requests take a node out for a while. The last node stays in
        /// use.
        passive: Switch<Passive> = Switch::On,
        /// Active health checks of nodes.
        check: Switch<Check> = Switch::Off,
        /// The circuit breaker of each node.
        breaker: Switch<Breaker> = Switch::Off,
        /// Outlier ejection: nodes that fail more often than the others are ejected for a while.
        ejection: Switch<Ejection> = Switch::Off,
        /// Retries with another node.
        retry: Retry,
        /// DNS resolution of the names of nodes. A name is resolved again when its time to live
        /// ends.
        dns: Dns,
        /// How long connecting may take, in seconds; over HTTP/3 with the TLS handshake.
        connect_timeout: Time<YEAR> = Time::new(5),
        /// How long the TLS handshake may take, in seconds.
        tls_timeout: Time<YEAR> = Time::new(10),
        /// How long the head of a response may take after the request was sent, in seconds.
        first_byte_timeout: Time<YEAR> = Time::new(60),
        /// How long a node may pause while it sends a response, in seconds.
        read_timeout: Time<YEAR> = Time::new(60),
        /// How long a node may read nothing of a request, in seconds.
        write_timeout: Time<YEAR> = Time::new(60),
        /// The largest head of a response, and the largest trailer section, in KB. A larger head is a
        /// 502.
        response_header_size: Kilobytes<1, 1024> = Kilobytes::new(64),
        /// Field lines in a head of a response. More are a 502.
        response_header_fields: Int<1, 10_000> = Int(256),
        /// Whether responses over HTTP/1.1 are accepted as old servers send them, where no recipient
        /// reads that in another way: lines that end with LF alone, lines without a colon, which
        /// are dropped, and equal repetitions of `Content-Length`.
        lenient: bool = false,
        /// The longest time of a request with queue, retries and body, in seconds. By default there
        /// is no limit.
        total_timeout: Time<YEAR>,
        /// The time in which a node that came back reaches its full share, in seconds; 0: at once.
        slow_start: Seconds<0, YEAR> = Seconds::new(0),
        /// The PROXY protocol header at the start of connections, which names the client. Each
        /// client then has its own connections.
        send_proxy: ProxyHead,
        /// Statuses that count as failures of the node, for `passive`, `breaker` and `ejection`:
        /// `[500, "5xx"]`.
        failure_statuses: OneOrMore<Statuses> = OneOrMore::default(),
    }
}

choices! {
    /// The balancing strategy.
    pub(crate) Strategy: "a strategy" {
        /// Round robin, smoothly by weight.
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
    /// The protocol of nodes.
    pub(crate) Protocol: "a protocol of origins" {
        /// HTTP/1.1.
        Http1 = "http/1.1",
        /// HTTP/2; in clear text with prior knowledge.
        Http2 = "h2",
        /// HTTP/3 over QUIC; the nodes need TLS, and the port is a UDP port.
        Http3 = "h3",
        /// Over TLS, the one that the node selects by ALPN; otherwise HTTP/1.1.
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
        /// Its address: `"host:port"`, `"[::1]:port"`, `"unix:/path"`, `"https://host:port"`, or
        /// `"srv:_http._tcp.example.com"` for the SRV records of a name. Each address of a name is
        /// a separate node.
        addr [required]: NodeAddress,
        /// The name in logs and for `apus upstream`. By default its address as it is written.
        name: Text,
        /// Its share of requests relative to the others.
        weight: Int<1, 1_000_000> = Int(1),
        /// Whether it gets requests only when none of the others can.
        backup: bool = false,
        /// Whether it gets only requests of clients that `sticky` keeps on it.
        drain: bool = false,
        /// Whether it gets no requests.
        down: bool = false,
        /// The most concurrent requests; others wait in the queue. 0: no limit.
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
        /// Whether the certificates of nodes are verified. Otherwise anybody on the network path
        /// can read and change all data.
        verify: bool = true,
        /// Certificates of the authorities for nodes, PEM. By default those that the system trusts. A node whose own certificate is in the file, such as a self-signed one, is trusted, too: with the same bytes, for its names, while it is valid.
        ca: FilePath,
        /// The client certificate for nodes that request one, with its chain, PEM.
        cert: FilePath,
        /// The private key of `cert`, PEM.
        key: FilePath,
        /// The server name (SNI) that the certificates of nodes must match. By default the host in
        /// the address of each node.
        server_name: Text,
        /// The lowest version of TLS.
        min_version: TlsVersion = TlsVersion::Tls12,
    }
}

keys! {
    /// The cookie that keeps a client on its node.
    pub(crate) struct Sticky {
        /// Its name.
        name: Token = Token("apus_node".to_owned()),
        /// Its `Path`.
        path: CookiePath = CookiePath("/".to_owned()),
        /// Its `Domain`. By default the host of the request.
        domain: Domain,
        /// Its `Max-Age`, in seconds. By default until the browser is closed.
        max_age: Time<{ 100 * YEAR }>,
        /// Whether it has the attribute `Secure`.
        secure: bool = false,
        /// Whether it has the attribute `HttpOnly`.
        http_only: bool = true,
        /// Its `SameSite` attribute.
        same_site: SameSite,
    }
}

choices! {
    /// The `SameSite` attribute: the requests from other sites that have the cookie.
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
    /// The idle connections to nodes.
    pub(crate) struct Keepalive {
        /// The most idle connections, of each worker and node. 0: none is kept.
        max_idle: Int<0, 1_000_000> = Int(64),
        /// How long a connection may be idle, in seconds. A shorter limit of the node, by
        /// `Keep-Alive: timeout`, applies instead; nodes without that field should have a longer
        /// limit.
        idle_timeout: Time<YEAR> = Time::new(30),
        /// The most requests on one connection. 0: no limit.
        max_requests: Int<0, { i64::MAX as u64 }> = Int(0),
        /// The longest time that a connection is used, in seconds. 0: no limit.
        max_age: Seconds<0, YEAR> = Seconds::new(3600),
    }
}

keys! {
    /// The queue of requests that wait for a node. It is first in, first out, as long as clients wait for their
    /// responses; if most give up before, the newest request is first.
    pub(crate) struct Queue {
        /// The most requests in the queue, over all workers; further ones get 503. 0: no queue.
        max: Int<0, 10_000_000> = Int(1024),
        /// How long a request may wait, in seconds.
        timeout: Time<YEAR> = Time::new(30),
    }
}

keys! {
    /// When failing requests take a node out.
    pub(crate) struct Passive {
        /// The number of failures within `fail_timeout` that takes it out.
        max_fails: Int<1, 1_000_000> = Int(3),
        /// The time in which failures are counted, and for which the node is out, in seconds.
        fail_timeout: Time<YEAR> = Time::new(10),
    }
}

keys! {
    /// Active health checks of nodes.
    pub(crate) struct Check {
        /// The kind of check: `http` for a response to GET, `tcp` for a connection, `grpc` for
        /// `SERVING` of `grpc.health.v1.Health`.
        r#type: CheckType = CheckType::Http,
        /// The path of the request, for `http`. By default `/`.
        path: SitePath,
        /// Its `Host`. By default the node's name.
        host: HostAndPort,
        /// The statuses of a good check. By default 200 to 399.
        status: OneOrMore<Statuses> = OneOrMore::default(),
        /// A text that the first 64 KB of the body must contain.
        contains: Text,
        /// The service to check, for `grpc`. By default the server as a whole.
        service: Text,
        /// The time between two checks of a node, in seconds.
        interval: Time<YEAR> = Time::new(5),
        /// The random variation of the interval, in percent.
        jitter: Int<0, 100> = Int(20),
        /// The timeout of one check, in seconds.
        timeout: Time<YEAR> = Time::new(3),
        /// How many good checks in a row bring a node back.
        rise: Int<1, 1_000_000> = Int(2),
        /// How many bad checks in a row take a node out.
        fall: Int<1, 1_000_000> = Int(3),
    }
}

choices! {
    /// The kind of a check.
    pub(crate) CheckType: "a kind of check" {
        /// A response to GET.
        Http = "http",
        /// A connection.
        Tcp = "tcp",
        /// The status of a gRPC service.
        Grpc = "grpc",
    }
}

keys! {
    /// When the circuit breaker of a node opens. After its time, single requests decide whether it
    /// closes.
    pub(crate) struct Breaker {
        /// The percentage of failed requests that opens it...
        percent: Int<1, 100> = Int(50),
        /// ...if there were at least this number of requests...
        min_requests: Int<1, 1_000_000> = Int(20),
        /// ...within this time, in seconds.
        window: Time<YEAR> = Time::new(10),
        /// How long it is open, in seconds; the time doubles each time that the node still fails.
        open_for: Time<YEAR> = Time::new(5),
        /// The longest time that it is open, in seconds.
        max_open_for: Time<YEAR> = Time::new(60),
        /// The number of successful requests in a row that closes it.
        probes: Int<1, 1_000_000> = Int(1),
    }
}

keys! {
    /// Outlier ejection: when a node fails more often than the others.
    pub(crate) struct Ejection {
        /// The number of failures in a row that ejects it. 0: not used.
        consecutive: Int<0, 1_000_000> = Int(5),
        /// The comparison of the node with its group.
        rate: Switch<EjectionRate> = Switch::On,
        /// How long it is ejected, in seconds: this time, multiplied by the number of ejections.
        time: Time<YEAR> = Time::new(30),
        /// The longest time that it is ejected, in seconds.
        max_time: Time<YEAR> = Time::new(300),
        /// The most nodes that are ejected at once, in percent; at least one, unless it is 0.
        max_percent: Int<0, 100> = Int(50),
        /// The number of nodes that are never ejected.
        keep: Int<0, 1_000_000> = Int(1),
    }
}

keys! {
    /// The comparison of a node with its group.
    pub(crate) struct EjectionRate {
        /// How often nodes are compared, in seconds.
        interval: Time<YEAR> = Time::new(10),
        /// The difference between its failure rate and the rate of the others, in percentage points.
        margin: Int<1, 100> = Int(30),
        /// The least number of requests in the interval.
        min_requests: Int<1, 1_000_000> = Int(20),
    }
}

keys! {
    /// Retries with another node. A request that a node may have seen is retried only if its method
    /// is idempotent.
    pub(crate) struct Retry {
        /// The number of attempts. 1: no retries.
        tries: Int<1, 100> = Int(3),
        /// The time after the start of the request in which another attempt may begin, in seconds.
        /// By default no limit.
        within: Time<YEAR>,
        /// The causes of a retry: `"error"` of the connection, `"timeout"`, and statuses as 503 or
        /// `"5xx"`.
        on: OneOrMore<RetryCause> = OneOrMore(default_causes()),
        /// Whether requests that a node may have seen are retried whatever their method.
        non_idempotent: bool = false,
        /// The retry budget.
        budget: RetryBudget,
        /// The time without a response after which an idempotent request without a body is sent to
        /// a second node too, in seconds; the first response is used. By default never.
        hedge: Time<YEAR>,
    }
}

fn default_causes() -> Vec<Setting<RetryCause>> {
    vec![not_given(RetryCause::Error), not_given(RetryCause::Timeout)]
}

keys! {
    /// The retry budget of a group, which protects nodes that are overloaded already.
    pub(crate) struct RetryBudget {
        /// The percentage of its requests...
        percent: Int<0, 100> = Int(20),
        /// ...and this number per second in addition.
        min_per_second: Int<0, 1_000_000> = Int(10),
    }
}

keys! {
    /// DNS resolution of the names of nodes.
    pub(crate) struct Dns {
        /// The DNS servers, as `"192.0.2.53"` or with a port. By default the servers of the system.
        servers: OneOrMore<DnsServer> = OneOrMore::default(),
        /// The shortest time until a name is resolved again, in seconds.
        min_ttl: Time<YEAR> = Time::new(1),
        /// The longest time until a name is resolved again, in seconds.
        max_ttl: Time<YEAR> = Time::new(300),
        /// How long one lookup may take, in seconds.
        timeout: Time<YEAR> = Time::new(5),
        /// Whether IPv6 addresses are used.
        ipv6: bool = true,
    }
}
