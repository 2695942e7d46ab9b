//! The keys of a configuration file, from which the parser, the reference and the JSON schema are
//! made.

pub(super) mod access_log;
pub(super) mod acme;
pub(super) mod cache;
pub(super) mod challenge;
pub(super) mod layers;
pub(super) mod limit_tiers;
pub(super) mod location;
pub(super) mod maps;
pub(super) mod php;
pub(super) mod proxy;
pub(super) mod response;
pub(super) mod rules;
pub(super) mod tls;
pub(super) mod upstream;
pub(super) mod workers;

use super::date_time::DateTime;
use super::keys::{choices, keys};
use super::size::{Bytes, Kilobytes, Megabytes};
use super::source::{Setting, SourceSpan};
use super::string_type::acme::{
    EmailText, ExternalKey, ProviderText, SecretText, StorageAddress, WebUrl,
};
use super::string_type::origin::{DnsServer, Domain, FetchUrl, GroupName};
use super::string_type::{
    BotHost, FieldName, FileMode, IdentityFieldName, ListenSpec, NetworkText, SiteHost, SitePath,
    TimeZoneName,
};
use super::value::{FilePath, Int, List, Map, OneOrMore, Seconds, Switch, Text};
use super::when::When;
use access_log::AccessLogChoice;
pub(super) use acme::{AcmeDns, AcmeKeyType, Challenge, DnsProvider, TsigAlgorithm};
use cache::CacheStore;
use challenge::ClientChallenge;
use layers::{FetchTls, Limit};
pub(super) use location::{Handler, Location, LocationKeys, Rewrite, RewriteThen, Symlinks};
use maps::GlobalMap;
pub(super) use response::{FieldChanges, Return};
use rules::{NamedList, Rule};
pub(super) use tls::{
    CertificateScope, ClientAuth, Congestion, Http3, OnDemand, Protocol, Retry, TicketStorage, Tls,
    TlsPolicyName, TlsVersion,
};
use upstream::Upstream;

const YEAR: u64 = 31_536_000;
const HOUR: u64 = 3_600;

keys! {
    /// A configuration file.
    pub(super) struct File {
        /// Other files to read, as paths or patterns (`"sites/*.toml"`), relative to this file.
        /// They may define sites and include further files. A path without `*`, `?` or `[` must
        /// exist.
        include: OneOrMore<Text> = OneOrMore::default(),
        /// Settings of the whole server. Only the first file may have them.
        global: Global,
        /// The sites.
        sites: List<Site> = List::default(),
    }
}

keys! {
    /// Settings of the whole server.
    pub(super) struct Global {
        /// Worker threads, each pinned to its own core. 0: one per core.
        worker_threads: Int<0, 1024> = Int(0),
        /// Connections per worker. Beyond it, the connection that has been idle longest is closed
        /// for a new one.
        worker_connections: Int<1, 10_000_000> = Int(51_200),
        /// Connections of the whole server. 0: no limit but the file descriptors.
        max_connections: Int<0, 100_000_000> = Int(0),
        /// Connections of one client address per worker; the addresses of an IPv6 /64 network count
        /// as one. 0: no limit.
        connections_per_address: Int<0, 10_000_000> = Int(16_384),
        /// How long a connection may stay open between two requests, in seconds.
        keepalive_timeout: Seconds<1, YEAR> = Seconds::new(60),
        /// Requests on one HTTP/1.1 connection. 0: no limit.
        keepalive_requests: Int<0, { i64::MAX as u64 }> = Int(0),
        /// Whether HTTP/2 is accepted in clear text from clients with prior knowledge. Over TLS,
        /// `protocols` of the site decides.
        h2c: bool = true,
        /// Concurrent requests of one HTTP/2 or HTTP/3 client.
        h2_max_concurrent_streams: Int<1, 32_768> = Int(256),
        /// Tunnels, such as WebSockets, that one HTTP/2 or HTTP/3 client may have open at once; more get
        /// 503.
        h2_max_tunnels: Int<0, 32_768> = Int(64),
        /// The largest HTTP/2 frame that is accepted, in bytes.
        h2_max_frame_size: Bytes<16_384, 16_777_215> = Bytes::new(16_384),
        /// Requests on one HTTP/2 or HTTP/3 connection. 0: no limit.
        h2_max_requests_per_conn: Int<0, { i64::MAX as u64 }> = Int(0),
        /// How long an HTTP/2 client with open requests may be silent before it gets a PING;
        /// without a response within the same time, its connection is closed. In seconds; 0: no
        /// PING.
        h2_ping_interval: Seconds<0, YEAR> = Seconds::new(30),
        /// The most body data of one HTTP/2 client that may wait to be read, in KB.
        h2_receive_window: Kilobytes<256, 2_097_151> = Kilobytes::new(16_384),
        /// The largest request body, in MB; larger ones get 413. 0: no limit.
        client_max_body_size: Megabytes<0, 1_000_000_000> = Megabytes::new(50),
        /// The largest request head, in KB; larger ones get 431.
        client_header_size: Kilobytes<1, 63> = Kilobytes::new(32),
        /// Field lines in a request head; more get 431.
        client_header_fields: Int<1, 10_000> = Int(100),
        /// The longest request target (path and query), in KB; longer ones get 414.
        client_target_size: Kilobytes<1, 63> = Kilobytes::new(8),
        /// How long a client may take to send the head of a request, in seconds.
        client_header_timeout: Seconds<1, YEAR> = Seconds::new(15),
        /// How long a client may take for the TLS handshake or the PROXY protocol, in seconds.
        handshake_timeout: Seconds<1, YEAR> = Seconds::new(10),
        /// How long a client may pause while it sends a request body, in seconds.
        client_body_timeout: Seconds<1, YEAR> = Seconds::new(30),
        /// The slowest rate of a request body, in bytes per second, measured after
        /// `client_body_timeout`. 0: any rate.
        client_body_rate: Bytes<0, 1_000_000_000> = Bytes::new(128),
        /// The largest rest of a request body that is read and discarded to keep the connection
        /// open, in KB.
        discard_body_size: Kilobytes<0, 1_000_000> = Kilobytes::new(256),
        /// How long a client may take less of a response that waits for it than `send_rate` demands, in seconds.
        /// The same holds for WebSockets and other tunnels.
        send_timeout: Seconds<1, YEAR> = Seconds::new(60),
        /// The slowest rate at which a client takes responses that wait for it, in bytes per second,
        /// measured over `send_timeout`. 0: one byte in this time.
        send_rate: Bytes<0, 1_000_000_000> = Bytes::new(128),
        /// How long open requests may take to complete after a stop, in seconds.
        stop_timeout: Seconds<0, YEAR> = Seconds::new(30),
        /// The user that the server switches to when it is started as root: a name or a number. By
        /// default `www-data`, or `nobody` where there is no such user. `"root"`: it stays root. A
        /// server that is started by another user stays that user.
        user: Text,
        /// The group in place of that user's own groups.
        group: Text,
        /// The socket over which `apus reload`, `stop` and `status` reach the server. By default it
        /// is in the runtime folder of the system or of the user.
        control_socket: FilePath,
        /// The addresses at which the operator reads metrics (`/metrics`) and the status (`/status`) over HTTP, and uses the API (`/api/v1/`):
        /// `"127.0.0.1:9180"`,
        /// `"[::1]:9180"`, `"unix:/path"` or `"systemd:name"`. By default there is none.
        admin_listen: OneOrMore<ListenSpec> = OneOrMore::default(),
        /// The networks whose clients may use `admin_listen`. By default `127.0.0.0/8`, `::1` and `unix:`.
        admin_allow: OneOrMore<NetworkText> = OneOrMore::default(),
        /// The names by which clients may use `admin_listen`, beside addresses and `localhost`, as `"apus.internal"`. Requests for others are
        /// refused: a web page whose name resolves to this machine has its own name there.
        admin_names: OneOrMore<Domain> = OneOrMore::default(),
        /// The file of accounts that may use the API at `admin_listen`, as `apus admin account` writes them. Without it, only a log-in by
        /// `apus admin login` may. A changed file is used within seconds.
        admin_accounts: FilePath,
        /// TLS at the addresses of `admin_listen`, except for Unix sockets.
        admin_tls: AdminTls,
        /// Whether requests are counted by site and location for metrics. By default they are if there is an `admin_listen` or `otlp`.
        metrics: Switch<SiteMetricKeys> = Switch::Off,
        /// Pushes metrics and traces to a collector by the OpenTelemetry protocol.
        otlp: Otlp,
        /// How many of the last requests of each worker are kept in memory, with about 400 bytes each, so that `apus explain --id` can tell what
        /// happened to one of them. By default 1024 if there is an `admin_listen`, and none otherwise.
        explain_requests: Int<0, 65_536>,
        /// Memory for small static files, per worker, in MB; the sites and locations with files
        /// share it evenly. The same amount again holds compressed variants, for all workers.
        static_cache_size: Megabytes<0, 1_000_000> = Megabytes::new(64),
        /// Memory that responses of the whole server may use beyond the chunk that each of them is
        /// sending, in MB: for compressors, and for reading ahead of slow clients. One connection
        /// gets at most an eighth. Beyond it, responses are not compressed, and are read no faster
        /// than their clients read them.
        response_memory: Megabytes<0, 1_000_000> = Megabytes::new(128),
        /// Memory for messages of WebSockets that are incomplete, not yet taken by the application, or not
        /// yet sent, in MB, and for compression contexts that are kept. Each worker has an even part, and at least 8 MB. When it is used up,
        /// the socket that takes most is closed.
        websocket_memory: Megabytes<1, 1_000_000> = Megabytes::new(64),
        /// Memory for request data of the whole server that came over HTTP/3 and was not read yet, in MB: bodies
        /// that wait for their handlers, and data behind lost packets. Beyond it, connections that hold much of
        /// it are closed, the connections of the client that holds most first.
        request_memory: Megabytes<1, 1_000_000> = Megabytes::new(64),
        /// Whether responses have the field `Server`, without a version.
        server_header: bool = true,
        /// Whether a TLS handshake without a name, or for a name that no site has, is rejected.
        /// Otherwise it gets the certificate of the first site.
        ssl_reject_unknown: bool = false,
        /// The access log of every site without one of its own. By default there is none.
        access_log: AccessLogChoice,
        /// The level of the application log, on standard error.
        log_level: LogLevel = LogLevel::Info,
        /// Networks of proxies in front of this server (`"10.0.0.0/8"`, `"::1"`, or `"unix:"`).
        /// Their fields decide who the client is, and which scheme, host and port it used; such
        /// fields of other clients are removed.
        trusted_proxies: OneOrMore<NetworkText> = OneOrMore::default(),
        /// The field in which `trusted_proxies` name the client: `"X-Forwarded-For"`, with
        /// `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port`; or `"Forwarded"` (RFC
        /// 7239). The other one is ignored: a proxy that does not write it passes it on as the
        /// client sent it.
        trusted_proxies_header: TrustedHeader = TrustedHeader::XForwardedFor,
        /// Fields about the client, such as `"CF-Connecting-IP"` or `"X-Forwarded-Prefix"`, that
        /// origins and PHP get as `trusted_proxies` write them. They are removed from all other
        /// requests, as are those that are not named here.
        trusted_proxies_pass: OneOrMore<IdentityFieldName> = OneOrMore::default(),
        /// Conditions with names, which other conditions use: `office = "client in @office"`. Names are letters, digits, `-` and `_`.
        conditions: Map<Text, When> = Map::default(),
        /// Lists of networks or texts, which conditions name with `@`: `office = ["10.0.0.0/8", "2001:db8::/32"]`, or a file, which is
        /// read again when it changes.
        lists: Map<Text, NamedList> = Map::default(),
        /// Maps, by name: a value from a value of the request, as `map` and `geo` of nginx. `from` is the fact that the value comes from, `values`
        /// has keys and their values, `file` a file with further ones that is read again when it changes, and `default` is the value of all others:
        /// `plan = { from = "header.x-api-key", values = { key-of-ada = "gold", "~^test-" = "test" }, default = "free" }`. Conditions have the value as `map.plan`,
        /// templates and access logs as `$map_plan`, limits by `key = "map.plan"`. Names are letters, digits and `_`.
        maps: Map<Text, GlobalMap> = Map::default(),
        /// The zone of `time` and `weekday` in conditions, as `"Europe/Berlin"`. By default that of the system.
        time_zone: TimeZoneName,
        /// Files in the format MaxMind DB (`.mmdb`), as of MaxMind, DB-IP or ipinfo.io, with the countries, cities and autonomous systems of addresses, for facts as
        /// `geo.country` and `geo.asn`. Of several, the first that knows a fact decides. The user of the server has to be able to read them; a
        /// file is read again when it changes.
        geo_databases: OneOrMore<FilePath> = OneOrMore::default(),
        /// Rules for all sites, which are asked before those of the site.
        rules: List<Rule> = List::default(),
        /// Limits on the requests to all sites together. A limit of a site or a location takes the place of one with its name, or turns it off.
        limits: List<Limit> = List::default(),
        /// Chains of rules, by name, to which the rules of `[global]` jump.
        chains: Map<Text, List<Rule>> = Map::default(),
        /// Bans of clients: by lists, by rules, and by `apus ban`.
        bans: Bans,
        /// What clients do wrong (glitches: breaches of HTTP and TLS, abandoned requests, error responses) is counted for each client, as the fact
        /// `glitches` of conditions. While the workers are busy, connections of clients with many of them are refused; `false` turns that off.
        glitches: Switch<GlitchRefusal> = Switch::On,
        /// Bots that prove who they are: the fact `bot` of conditions and limits.
        bots: List<Bot> = List::default(),
        /// The DNS server that is asked for the names of the addresses of `bots` with `hosts`. By default those of `/etc/resolv.conf`.
        bots_resolver: DnsServer,
        /// Compression.
        compress: Compress,
        /// The store of cached responses.
        cache: CacheStore,
        /// The address to which a certificate authority may write. It means that you agree to the terms of the
        /// authority.
        acme_email: EmailText,
        /// Whether you agree to the terms of the certificate authorities, without an address.
        acme_agree: bool = false,
        /// The authorities that issue certificates: by name (`"letsencrypt"`, `"letsencrypt-staging"`, `"zerossl"`,
        /// `"google"`, `"actalis"`, `"sslcom"`), or by the URL of an ACME directory. The others are asked when the first one fails. By
        /// default Let's Encrypt.
        acme_provider: OneOrMore<ProviderText> = OneOrMore::default(),
        /// The authority at which orders are tried first after three failures, so that the limits of the other are not used up. By
        /// default the staging directory of the same operator, if it has one.
        acme_staging_provider: ProviderText,
        /// The root certificates of the HTTPS servers of authorities that are not public, PEM.
        acme_provider_root: FilePath,
        /// The identifier of your account at the authority, if it wants one (external account binding).
        acme_eab_id: Text,
        /// The key of that account, as base64url.
        acme_eab_key: ExternalKey,
        /// How control over the names is proved: by port 80 (`"http-01"`), by port 443 (`"tls-alpn-01"`), by DNS
        /// (`"dns-01"`, with `acme_dns` or `acme_dns_hook`). By default by the first two in turn, or by DNS if one of these is set.
        acme_challenge: OneOrMore<Challenge> = OneOrMore::default(),
        /// A program that publishes TXT records: it is called with `present` or `cleanup`, the name of the record and its
        /// value, and returns when the record is visible.
        acme_dns_hook: FilePath,
        /// How TXT records are published without a program.
        acme_dns: AcmeDns,
        /// The DNS server that is asked where names point and where TXT records belong: their delegation, their zones and the
        /// name servers of these, which are asked at the same port. By default the first one of `/etc/resolv.conf`.
        acme_resolver: DnsServer,
        /// Whether certificates are ordered only while DNS points to this machine. Behind a load balancer or another proxy,
        /// it does not.
        acme_check_dns: bool = true,
        /// The profile of certificates, if the authority has several, such as `"shortlived"`.
        acme_profile: Text,
        /// Which chain is used where the authority offers several (RFC 8555 section 7.4.2): the one whose topmost certificate was
        /// issued by an authority with this common name, such as `"ISRG Root X1"`. If there is none, the one that is offered
        /// first is used, and the log says so. A change is used for the next order.
        acme_preferred_chain: Text,
        /// The kind of private keys. Of several, there is a certificate with each, and clients get the first kind that they know.
        acme_key_type: OneOrMore<AcmeKeyType> = OneOrMore::default(),
        /// Whether a renewed certificate has the private key of the old one. A key that was revoked is never used again.
        acme_reuse_key: bool = false,
        /// Whether a site has one certificate for all its names, or one for each.
        acme_certificate_per: CertificateScope = CertificateScope::Site,
        /// The folder of accounts, certificates and private keys. By default `/var/lib/apus/acme` for a server that is
        /// started as root, else `apus/acme` in the data folder of the user.
        acme_folder: FilePath,
        /// Storage that several machines share, beside the folder of each: one of them orders, and all respond to challenges
        /// and use the certificates. `"redis://127.0.0.1/"`, `"rediss://user:password@host:6380/1"` (TLS) or
        /// `"redis+unix:///run/redis.sock"` for Redis; `"postgres://user:password@host/database?sslmode=verify-full"` for PostgreSQL.
        acme_storage: StorageAddress,
        /// The folder of what the server remembers over restarts: bans, what quotas have counted, which sites are in maintenance by command, and with `admin_listen` the history, of at most 32 MB. Servers that run at the same time need
        /// different ones. By default it is a folder below `/var/lib/apus/state` for a server that is started as root, else below `apus/state` in the data
        /// folder of the user, which depends on the path of the configuration.
        state_folder: FilePath,
        /// Where the secrets of session tickets are. If they are stored, clients resume their sessions after a restart, and on
        /// all machines that share `acme_folder` or `acme_storage`.
        tls_tickets: TicketStorage = TicketStorage::Memory,
        /// A file to which the secrets of all TLS and QUIC connections of clients are appended, in the format of NSS, so that
        /// Wireshark can decrypt what it records. Whoever reads the file can decrypt the traffic: it is for debugging. It is
        /// opened at the start and at each reload. The server does not read the environment variable `SSLKEYLOGFILE`.
        tls_key_log: FilePath,
    }
}

keys! {
    /// What is counted of sites.
    pub(super) struct SiteMetricKeys {
        /// How many sites have series of their own: those with most requests, which keep them. The others together are the site `other`.
        sites: Int<1, 100_000> = Int(100),
    }
}

keys! {
    /// TLS of the address of the operator.
    pub(super) struct AdminTls {
        /// The certificate with its chain, PEM. A changed file is used within seconds.
        cert [required]: FilePath,
        /// The private key of `cert`, PEM.
        key [required]: FilePath,
        /// Certificates of the authorities for client certificates, PEM, by which accounts may ask in place of a token (`certificates` in
        /// `admin_accounts`). A client whose own certificate is in the file is accepted, too. Clients without one may use tokens.
        client_ca: FilePath,
    }
}

keys! {
    /// A collector of OpenTelemetry. What it does not accept is lost and counted (`apus_otlp_messages`), and holds up nobody.
    pub(super) struct Otlp {
        /// Its URL, as `"http://127.0.0.1:4318"`. Over HTTP, `/v1/metrics` and `/v1/traces` follow.
        endpoint [required]: WebUrl,
        /// How it is spoken to.
        protocol: OtlpProtocolName = OtlpProtocolName::HttpProtobuf,
        /// Fields of each request, as `{ Authorization = "Bearer ${TOKEN}" }`.
        headers: Map<FieldName, SecretText> = Map::default(),
        /// Whether metrics are pushed.
        metrics: bool = true,
        /// Whether requests have traces, whose spans are pushed.
        traces: Switch<TraceKeys> = Switch::Off,
        /// The time between two messages with metrics, in seconds.
        interval: Seconds<1, HOUR> = Seconds::new(60),
        /// What the server is called there (`service.name`).
        service_name: Text = Text("apus".to_owned()),
        /// Certificates of the authorities for the collector, PEM. By default those that the system trusts.
        ca: FilePath,
    }
}

keys! {
    /// Traces of requests (W3C Trace Context). Origins, PHP and handlers get `traceparent`; `$request_id` is the id of a trace that begins here.
    pub(super) struct TraceKeys {
        /// The share of traces that are pushed, in percent, of those that begin here. A trace that continues is pushed if its sampling flag says so.
        percent: Int<0, 100> = Int(10),
        /// Requests that take as long are pushed in any case, in seconds, as those with a status of 5xx and without a response are. 0: no request is slow.
        slow: Seconds<0, HOUR> = Seconds::new(1),
        /// Whether the traces of all clients continue. By default only those of `trusted_proxies` do: a client that may name a trace can
        /// have its requests pushed, and write into the traces of others.
        trust_clients: bool = false,
    }
}

choices! {
    /// A protocol of collectors, by its name in `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub(crate) OtlpProtocolName: "a protocol of OpenTelemetry" {
        /// Protobuf over HTTP/1.1.
        HttpProtobuf = "http/protobuf",
        /// JSON over HTTP/1.1.
        HttpJson = "http/json",
        /// gRPC over HTTP/2.
        Grpc = "grpc",
    }
}

keys! {
    /// Bans of clients. A banned client gets no connection; behind `trusted_proxies`, it gets 403.
    pub(super) struct Bans {
        /// Files with networks that are banned: in each line an address or a network such as `10.0.0.0/8`. What follows `#` or `;` is
        /// a comment. A file that changes is read again within seconds, without a reload; one with lines that are not valid is not used.
        files: OneOrMore<FilePath> = OneOrMore::default(),
        /// Networks that no list and no rule bans, beside `trusted_proxies` and `proxy_protocol_from`. `apus ban add`
        /// needs `--force` for them. By default `127.0.0.0/8` and `::1`; an empty list is none.
        never: OneOrMore<NetworkText> = OneOrMore::default(),
        /// The longest ban of a client, in seconds. Each ban is twice as long as the one before.
        longest: Seconds<1, YEAR> = Seconds::new(7 * 86_400),
        /// After this time without a ban, a client begins anew, in seconds.
        forget_after: Seconds<0, YEAR> = Seconds::new(86_400),
        /// The most bans, without those of `files`. Past it, the bans that end first give way.
        max: Int<1, 10_000_000> = Int(65_536),
    }
}

keys! {
    /// When connections of clients are refused for what they did wrong. Clients of `trusted_proxies` and of `never` in `[global.bans]` are not.
    pub(super) struct GlitchRefusal {
        /// The most glitches of a client that may connect while the workers are busy. They are forgotten within ten minutes.
        refuse_above: Int<1, 100_000> = Int(100),
        /// The load up to which everybody may connect: the share of their time in which the workers were busy, in the last seconds, in percent.
        load: Int<1, 99> = Int(95),
    }
}

keys! {
    /// A bot that signs its requests (Web Bot Auth, RFC 9421) with a key of Ed25519, or whose addresses have names of its operator. That
    /// is checked before anything else is decided about a request.
    pub(super) struct Bot {
        /// The name in conditions: `bot == "openai"`.
        name [required]: GroupName,
        /// The URL of its keys, as `"https://chatgpt.com/.well-known/http-message-signatures-directory"`. They are fetched when the first
        /// signed request comes, and again when they are old or a key is new. No other URLs are fetched, whatever a request names.
        directory: FetchUrl,
        /// TLS to the server of `directory`.
        tls: FetchTls,
        /// A file with its keys, a JSON Web Key Set (RFC 7517), in place of `directory`.
        keys_file: FilePath,
        /// The names of the addresses that its requests come from, as `["*.googlebot.com", "*.google.com"]`: the address has such a name by
        /// reverse DNS, and the name has the address.
        hosts: OneOrMore<BotHost> = OneOrMore::default(),
        /// The text in `User-Agent` of requests whose addresses are looked up, in any case. By default the name of the bot.
        user_agent: Text,
    }
}

choices! {
    /// The field in which trusted proxies name the client.
    pub(crate) TrustedHeader: "a field that names the client" {
        /// `X-Forwarded-For` and its relatives.
        XForwardedFor = "X-Forwarded-For",
        /// `Forwarded` (RFC 7239).
        Forwarded = "Forwarded",
    }
}

choices! {
    /// The level of the application log.
    pub LogLevel: "a log level" {
        /// Errors.
        Error = "error",
        /// Problems that may lead to errors.
        Warn = "warn",
        /// Changes of state: start, reload, stop.
        Info = "info",
        /// Details for debugging.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

keys! {
    /// Compression: files are compressed once and cached, responses of services as they are sent. A
    /// site's own table changes the keys that it gives; the others are as in `[global.compress]`.
    pub(super) struct Compress {
        /// Whether gzip is offered.
        gzip: bool = true,
        /// Whether Brotli is offered.
        brotli: bool = true,
        /// Whether Zstandard is offered.
        zstd: bool = true,
        /// Whether precompressed files beside a file, with `.br`, `.zst` or `.gz` after its name,
        /// are sent in its place, unless they are older.
        precompressed: bool = true,
        /// The smallest body that is compressed, in KB.
        min_length: Kilobytes<0, 1_000_000> = Kilobytes::new(1),
        /// A condition for the responses that are compressed, as `'not cookie.session exists'`. It may be about the request, the user, and
        /// the status, the fields, the type and the length of the response. Others are sent as to a client that accepts no coding, also from
        /// caches and in place of precompressed files; if the condition is about the request alone, origins see no `Accept-Encoding`.
        when: When,
        /// The level of gzip for responses that are compressed as they are sent: 1 is fastest, 9
        /// smallest. Files of up to 4 MB are compressed once, at the highest level.
        gzip_level: Int<1, 9> = Int(5),
        /// The level of Brotli for responses that are compressed as they are sent. Levels from 7 on
        /// take 10 MB of memory and more for each response.
        brotli_level: Int<0, 11> = Int(4),
        /// The level of Zstandard for responses that are compressed as they are sent. Levels from 9
        /// on take 11 MB of memory and more for each response.
        zstd_level: Int<1, 19> = Int(3),
    }
}

keys! {
    /// A site: a virtual host on some addresses.
    pub(super) struct Site {
        /// The name of the site in logs and messages. By default its first server name.
        name: Text,
        /// The host names of the site: `example.com`, `*.example.com`, `www.example.*`, a regular
        /// expression as `~^www\d+\.example\.com$`, or `_` for hosts that no other site has. A site
        /// without a name serves those hosts too. An exact name takes precedence over `*.`, that
        /// over `.*`, that over an expression.
        server_name: OneOrMore<SiteHost> = OneOrMore::default(),
        /// The addresses to listen on in clear text: a port, `"address:port"`, `"[::1]:port"`,
        /// `"unix:/path"` or `"systemd:name"` for a socket of systemd. A port alone means all
        /// addresses, IPv4 and IPv6.
        listen: OneOrMore<ListenSpec> = OneOrMore::default(),
        /// The addresses to listen on with TLS, written like `listen`.
        listen_tls: OneOrMore<ListenSpec> = OneOrMore::default(),
        /// Whether a port alone, or `[::]:port`, accepts only IPv6 connections.
        ipv6_only: bool = false,
        /// Permission bits of the Unix sockets that this site listens on.
        unix_socket_mode: FileMode = FileMode(0o666),
        /// Networks (`"10.0.0.0/8"`, `"::1"`, or `"unix:"`) whose connections start with a PROXY
        /// protocol header, which names the client. Other connections must not have one.
        proxy_protocol_from: OneOrMore<NetworkText> = OneOrMore::default(),
        /// TLS: certificates, versions, client certificates.
        tls: Tls,
        /// Whether requests in clear text are redirected to `https`.
        force_https: bool = false,
        /// HTTP Strict Transport Security, sent over TLS.
        hsts: Hsts,
        /// Whether the site is in maintenance: requests get 503 with `Retry-After`, except for challenges of ACME. `apus site
        /// maintenance` turns it on and off without a reload.
        maintenance: Switch<Maintenance>,
        /// Whether browsers are challenged, and when. Rules with `challenge = true` need no such key.
        challenge: Switch<ClientChallenge>,
        /// Settings for a kind of site, which the site's own keys override: `static`; `spa`, where
        /// paths without a file get `/index.html`; and for PHP, with `php_fastcgi`, `wordpress`,
        /// `typecho` and `laravel`: pretty URLs, protected paths, upload folders in which no script
        /// runs, and the cookies of sessions for the cache. All set `X-Content-Type-Options` and
        /// `Referrer-Policy`, let clients cache files that do not change, and have pages
        /// revalidated.
        preset: Preset,
        /// The access log: `false` for none, a path, or a table. By default as in `[global]`.
        access_log: AccessLogChoice,
        /// Compression, where it differs from `[global.compress]`.
        compress: Compress,
        /// Groups of origins, for the key `upstream` of the site and its locations.
        upstreams: List<Upstream> = List::default(),
        /// Rules: what happens to requests and responses that a condition holds for, in their order, before the location is
        /// looked for.
        rules: List<Rule> = List::default(),
        /// Chains of rules, by name, to which rules of the site and of its locations jump.
        chains: Map<Text, List<Rule>> = Map::default(),
        /// Parts of the site, by path.
        locations: List<Location> = List::default(),
        ..keys: LocationKeys,
    }
}

choices! {
    /// Settings for a kind of site.
    pub(super) Preset: "a preset" {
        /// A site of files.
        Static = "static",
        /// A single-page application.
        Spa = "spa",
        /// WordPress, also as a multisite network.
        Wordpress = "wordpress",
        /// Typecho.
        Typecho = "typecho",
        /// Laravel; the root is its folder `public`.
        Laravel = "laravel",
    }
}

/// A default item of a list.
fn not_given<T>(value: T) -> Setting<T> {
    Setting {
        value,
        span: SourceSpan {
            file: 0,
            bytes: 0..0,
        },
        given: false,
    }
}

keys! {
    /// HTTP Strict Transport Security (RFC 6797).
    pub(super) struct Hsts {
        /// How long browsers use only `https`, in seconds.
        max_age: Seconds<0, { 100 * YEAR }> = Seconds::new(YEAR),
        /// Whether it applies to subdomains too.
        include_subdomains: bool = false,
        /// Whether browsers may add the name to their preload list.
        preload: bool = false,
    }
}

keys! {
    /// Maintenance of a site.
    pub(super) struct Maintenance {
        /// Whether there is maintenance now. With `false`, the other keys are for `apus site maintenance`.
        on: bool = true,
        /// When it ends. `Retry-After` is the time until then; by default it is 300 seconds.
        until: DateTime,
        /// Networks (`"10.0.0.0/8"`, `"::1"`, or `"unix:"`) whose clients pass, such as the operators.
        allow: OneOrMore<NetworkText> = OneOrMore::default(),
        /// The path of a page for the others. By default it is the error page of the site for 503. What the page refers to, such
        /// as images, gets 503, too.
        page: SitePath,
    }
}
