//! The keys of a configuration file, from which the parser, the reference and the JSON schema are
//! made.

pub(super) mod cache;
pub(super) mod challenge;
pub(super) mod layers;
pub(super) mod limit_tiers;
pub(super) mod maps;
pub(super) mod php;
pub(super) mod proxy;
pub(super) mod rules;
pub(super) mod upstream;
pub(super) mod workers;

use serde_json::json;
use toml::de::DeValue;

use super::date_time::DateTime;
use super::description::TypeDescription;
use super::diagnostics::Finding;
use super::keys::{ConfigReader, KeyType, ValueNode, choices, keys, shown};
use super::size::{Bytes, Kilobytes, Megabytes};
use super::source::{Setting, SourceSpan};
use super::string_type::acme::{
    DnsSecret, EmailText, ExternalKey, ProviderText, SecretText, StorageAddress, WebUrl,
};
use super::string_type::origin::{DnsServer, FetchUrl, GroupName, UpstreamName};
use super::string_type::php::PhpAddress;
use super::string_type::{
    self, BotHost, FieldName, FieldValue, FileConditionText, FileMode, HeaderText,
    IdentityFieldName, ListenSpec, LocationPath, MediaType, NetworkText, PathPattern, RegexText,
    SiteHost, SitePath, StatusNumber, StatusSet, TimeZoneName, UriTemplate,
};
use super::value::{FilePath, Int, List, Map, OneOrMore, Seconds, Switch, Text};
use super::when::When;
use cache::{Cache, CacheStore};
use challenge::ClientChallenge;
use layers::{
    BasicAuth, CertificateNeed, Cors, FetchTls, ForwardAuth, Jwt, Limit, Networks, RefererRules,
    RequestIds, Satisfy, SecurityHeaders, SignedUrl,
};
use maps::GlobalMap;
use php::Fastcgi;
use proxy::Proxy;
use rules::{NamedList, Rule};
use upstream::Upstream;

const YEAR: u64 = 31_536_000;

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
        /// The folder of what the server remembers over restarts: bans, what quotas have counted, and which sites are in maintenance by command. Servers that run at the same time need
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
    /// Where the secrets of session tickets are.
    pub(super) TicketStorage: "a place of the secrets of session tickets" {
        /// In the memory of the process.
        Memory = "memory",
        /// In `acme_folder`, which only the user of the server can read. They change every twelve hours.
        Stored = "stored",
    }
}

choices! {
    /// A way to prove control over a name.
    pub(super) Challenge: "a challenge" {
        /// A file at port 80.
        Http = "http-01",
        /// A handshake at port 443.
        TlsAlpn = "tls-alpn-01",
        /// A TXT record.
        Dns = "dns-01",
    }
}

keys! {
    /// How TXT records of challenges are published. CNAME records that delegate `_acme-challenge` are followed, and the name
    /// servers of the zone have to show the records before the authority is told.
    pub(super) struct AcmeDns {
        /// The protocol.
        provider [required]: DnsProvider,
        /// The primary name server of the zone, for `rfc2136`.
        server: DnsServer,
        /// The name of the key of TSIG, for `rfc2136`.
        key_name: Text,
        /// The secret of that key, as base64.
        key: DnsSecret,
        /// The algorithm of that key.
        key_algorithm: TsigAlgorithm = TsigAlgorithm::HmacSha256,
        /// The URL of the server, for `acme-dns` and `webhook`.
        url: WebUrl,
        /// The user, for `acme-dns`.
        user: Text,
        /// The password, for `acme-dns`.
        password: SecretText,
        /// The subdomain, for `acme-dns`.
        subdomain: Text,
        /// A token that a webhook gets in `Authorization: Bearer`.
        token: SecretText,
    }
}

choices! {
    /// A protocol to publish TXT records.
    pub(super) DnsProvider: "a protocol of DNS changes" {
        /// Dynamic updates of the zone (RFC 2136), signed by TSIG (RFC 8945).
        Rfc2136 = "rfc2136",
        /// The API of acme-dns.
        AcmeDns = "acme-dns",
        /// A web server of yours, which gets `{"action": "present", "name": "...", "value": "..."}`, and later `"cleanup"`.
        Webhook = "webhook",
    }
}

choices! {
    /// An algorithm of TSIG.
    pub(super) TsigAlgorithm: "an algorithm of TSIG" {
        /// HMAC with SHA-256.
        HmacSha256 = "hmac-sha256",
        /// HMAC with SHA-384.
        HmacSha384 = "hmac-sha384",
        /// HMAC with SHA-512.
        HmacSha512 = "hmac-sha512",
    }
}

choices! {
    /// The names of a certificate.
    pub(super) CertificateScope: "the names of a certificate" {
        /// All names of a site.
        Site = "site",
        /// One name.
        Name = "name",
    }
}

choices! {
    /// Which clients of TLS a site accepts.
    pub(super) TlsPolicyName: "a policy of TLS" {
        /// TLS 1.3 alone: browsers since about 2019.
        Modern = "modern",
        /// TLS 1.3, and TLS 1.2 with forward secrecy and AEAD ciphers: browsers since about 2014.
        Intermediate = "intermediate",
        /// As `"intermediate"`, with cipher suites in the order of the server. Certificates that are ordered by ACME have one with an
        /// RSA key beside them, unless `acme_key_type` is given.
        Legacy = "legacy",
    }
}

choices! {
    /// The kind of a private key.
    pub(super) AcmeKeyType: "a kind of key" {
        /// ECDSA on P-256.
        P256 = "p256",
        /// ECDSA on P-384.
        P384 = "p384",
        /// RSA with 2,048 bits, for clients older than about 2014.
        Rsa2048 = "rsa2048",
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

keys! {
    /// Keys of a site and of a location. A location inherits the keys that it does not give from
    /// the site.
    pub(super) struct LocationKeys {
        /// The folder of static files; the path of the request is appended to it.
        root: FilePath,
        /// The index files of a folder; the first that exists is sent. With `php_fastcgi`, the
        /// default starts with `index.php`.
        index: OneOrMore<Text> = OneOrMore(default_index()),
        /// Paths to try in order; `$uri` is the path of the request, and a path that ends with `/`
        /// means a folder with an index file. If none exists, the request is redirected internally
        /// to the last one, which can contain the variables of `rewrite` (`$args` is the query), or
        /// gets its status, as `=404`.
        try_files: OneOrMore<Text> = OneOrMore::default(),
        /// Whether folders without an index file are listed, as a page or as JSON.
        listing: bool = false,
        /// Whether files and folders are served whose names start with a dot. `/.well-known/`
        /// always is.
        hidden_files: bool = false,
        /// Which symbolic links are followed. By default `inside`; with the preset `laravel`, whose
        /// `public/storage` is one, `all`.
        symlinks: Symlinks = Symlinks::Inside,
        /// Media types by file name extension, which take precedence over the built-in table.
        mime: Map<Text, MediaType> = Map::default(),
        /// The charset of text files. Empty: none.
        charset: Charset = Charset("utf-8".to_owned()),
        /// `Cache-Control` by pattern: of the file's name (`"*.{css,js}"`), or of the path below
        /// the root (`"/assets/**"`, where `**` matches slashes too). The first matching pattern
        /// applies.
        cache_control: Map<PathPattern, HeaderText> = Map::default(),
        /// Changes of response fields. Changes of a location are applied after the changes of the site.
        headers: FieldChanges,
        /// Changes of request fields, before the handler. Changes of a location are applied after
        /// the changes of the site.
        request_headers: FieldChanges,
        /// Error pages: from a status (`404`) or a class (`5xx`) to a path of the site. Pages of a
        /// location take precedence over the pages of the site.
        error_pages: Map<StatusSet, SitePath> = Map::default(),
        /// The largest request body, in MB; larger ones get 413. 0: no limit. By default as in
        /// `[global]`.
        client_max_body_size: Megabytes<0, 1_000_000_000>,
        /// Rules that rewrite the path, in order. The rules of the site are applied first.
        rewrite: List<Rewrite> = List::default(),
        /// A status, a redirect or a text as the response. A site's `return` is for paths that
        /// match no location; locations do not inherit it.
        r#return: Return,
        /// The origins of a reverse proxy: the name of a group of the site, or a URL. A path, as in
        /// `"app/"` or `"http://127.0.0.1:3000/v1/"`, replaces the path of the location; otherwise
        /// the path is unchanged. Locations without their own handler inherit it.
        upstream: UpstreamName,
        /// The PHP servers that run scripts below the root: the socket of PHP-FPM as
        /// `"/run/php/php-fpm.sock"`, `"host:port"`, several of them, or the name of a group of the
        /// site with `protocol = "fastcgi"`. Other files are served as they are. Locations without
        /// their own handler inherit it.
        php_fastcgi: OneOrMore<PhpAddress>,
        /// Settings for PHP over FastCGI.
        fastcgi: Fastcgi,
        /// Changes of requests to origins and of their responses.
        proxy: Proxy,
        /// Whether responses of origins are cached, and how. `true`: as their fields say.
        cache: Switch<Cache>,
        /// An id for each request. `true`: in `X-Request-Id`.
        request_id: Switch<RequestIds>,
        /// Fields that restrict what browsers do with responses. `true`: the defaults of the table.
        security_headers: Switch<SecurityHeaders>,
        /// Which scripts of other origins may read responses (CORS). `false`: none, also where the site allows
        /// some.
        cors: Switch<Cors>,
        /// How long a response may take until it begins, without the time in which the client sends its body, in
        /// seconds; 503 beyond. 0: no limit.
        request_timeout: Seconds<0, YEAR>,
        /// The networks whose clients are served; all others get 403. `"unix:"` is clients of Unix sockets, and
        /// `"@NAME"` a list of networks of `[global.lists]`. Behind
        /// `trusted_proxies` the client is the one that they name. `false`: all, also where the site allows only some.
        allow: Networks,
        /// The networks whose clients get 403, also those that `allow` has and those that authenticate. `"@NAME"` is a list of
        /// networks of `[global.lists]`. `false`: none, also
        /// where the site denies some.
        deny: Networks,
        /// Whether clients need a verified certificate; 403 without one. It is for sites whose `tls.client_auth` is
        /// `"optional"`.
        client_certificate: CertificateNeed = CertificateNeed::Optional,
        /// How many of `allow`, `client_certificate`, `basic_auth`, `jwt` and `forward_auth` have to admit a client. `"any"`: one of those that there
        /// are; a client that none of them admits gets 401 if it can log in, else 403.
        satisfy: Satisfy = Satisfy::All,
        /// Pages from which something may be requested. `true`: those of the host that is requested, and no page. `false`: all,
        /// also where the site restricts them.
        referers: Switch<RefererRules>,
        /// Links with a signature that may expire. `false`: none is needed, also where the site requires one.
        signed_url: Switch<SignedUrl>,
        /// Name and password with every request. `false`: none, also where the site requires them.
        basic_auth: Switch<BasicAuth>,
        /// JSON Web Tokens with every request. `false`: none, also where the site requires them.
        jwt: Switch<Jwt>,
        /// Another service that decides about each request. `false`: none, also where the site asks one.
        forward_auth: Switch<ForwardAuth>,
        /// Limits on requests.
        limits: List<Limit> = List::default(),
    }
}

fn default_index() -> Vec<Setting<Text>> {
    vec![not_given(Text("index.html".to_owned()))]
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

choices! {
    /// Which symbolic links are followed.
    pub(super) Symlinks: "which links to follow" {
        /// Links to a file within the root.
        Inside = "inside",
        /// All.
        All = "all",
        /// None.
        None = "none",
    }
}

/// A charset; empty for none.
#[derive(Clone, Debug)]
pub(super) struct Charset(pub(super) String);

impl KeyType for Charset {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, "a charset")?;
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte);
        if text.bytes().all(valid) {
            return Some(Self(text));
        }
        reader.report(Finding::error(
            &node.span,
            format!("`{}` is not a charset", shown(&text)),
            "expected a name as utf-8, or an empty string",
        ));
        None
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new("a charset as \"utf-8\"", json!({"type": "string"}))
    }

    fn shown(&self) -> serde_json::Value {
        self.0.as_str().into()
    }
}

keys! {
    /// A location of a site. Of several that match, `= exact` takes precedence; then, if the
    /// longest prefix is a `^~` one, that; then the first regular expression; then the longest
    /// prefix.
    pub(super) struct Location {
        /// The paths that match: `"= /path"` exactly (`"= /login.php"` with its `PATH_INFO`, too),
        /// `"/prefix"`, `"^~ /prefix"` before any expression, `"~ regex"`, `"~* regex"` ignoring case.
        path [required]: LocationPath,
        /// The handler: `static` for files, `return` for the key `return`, `reverse_proxy` for the
        /// origins of the key `upstream`, `fastcgi` for files and PHP scripts with `php_fastcgi`.
        /// By default it follows from the keys that are given, else it is the handler of the site.
        handler: Handler,
        /// Whether the location serves only internal redirects: by `rewrite`, `try_files`,
        /// `error_pages` or `X-Accel-Redirect`. Clients get 404.
        internal: bool = false,
        /// The folder that replaces the location's path; with `root`, the path is appended.
        alias: FilePath,
        /// Rules for the requests of this location, which are asked behind the rules of the site.
        rules: List<Rule> = List::default(),
        ..keys: LocationKeys,
    }
}

choices! {
    /// The handler of a location.
    pub(super) Handler: "a handler" {
        /// Files.
        Static = "static",
        /// A status, a redirect or a text as the response.
        Return = "return",
        /// Origins.
        ReverseProxy = "reverse_proxy",
        /// PHP.
        Fastcgi = "fastcgi",
    }
}

keys! {
    /// Changes of fields. Values may hold variables as `$host`.
    pub(super) struct FieldChanges {
        /// Fields to set; existing lines of the name are replaced.
        set: Map<FieldName, FieldValue> = Map::default(),
        /// Fields to add; existing lines of the name stay.
        add: Map<FieldName, FieldValue> = Map::default(),
        /// Names of fields to remove.
        remove: OneOrMore<FieldName> = OneOrMore::default(),
    }
}

keys! {
    /// A rule that rewrites the path, or redirects the client.
    pub(super) struct Rewrite {
        /// The regular expression that the path must match.
        from [required]: RegexText,
        /// The new path or URI; `$1` to `$9` and `$name` are what the groups of `from` matched.
        to [required]: UriTemplate,
        /// The effect of the rule.
        then: RewriteThen = RewriteThen::Continue,
        /// Tests of files: `-f`, `-d` or `-e` (file, folder, either exists), negated by `!`, and a
        /// path: `"!-f $request_filename"`.
        when: OneOrMore<FileConditionText> = OneOrMore::default(),
    }
}

choices! {
    /// The effect of a rewrite rule.
    pub(super) RewriteThen: "what happens then" {
        /// The next rule is tried.
        Continue = "continue",
        /// The location is matched again, with the new path.
        Last = "last",
        /// No other rule is tried; the location stays.
        Break = "break",
        /// The client is redirected with 302.
        Redirect = "redirect",
        /// The client is redirected with 301.
        Permanent = "permanent",
    }
}

keys! {
    /// A status, a redirect or a text as the response.
    pub(super) struct Return {
        /// The status.
        status [required]: StatusNumber,
        /// The target of a redirect (301, 302, 303, 307, 308); may hold variables as
        /// `$request_uri`.
        location: UriTemplate,
        /// The body; may hold variables.
        text: string_type::BodyText,
        /// The media type of `text`.
        content_type: MediaType = MediaType("text/plain; charset=utf-8".to_owned()),
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

keys! {
    /// TLS of a site.
    pub(super) struct Tls {
        /// The certificate with its chain, PEM. Short for one entry of `certificates`.
        cert: FilePath,
        /// The private key of `cert`, PEM.
        key: FilePath,
        /// Certificates, if there are several, as ECDSA beside RSA; a client gets the first that it
        /// supports.
        certificates: List<CertificatePair> = List::default(),
        /// The protocols of the site. Over TCP, those but `h3` are offered by ALPN, most preferred first;
        /// `h3` serves HTTP/3 over UDP at the same addresses, and tells clients by `Alt-Svc`.
        protocols: OneOrMore<Protocol> = OneOrMore(default_protocols()),
        /// HTTP/3. Sites on one address need the same, except for `early_data`.
        http3: Http3,
        /// The lowest version of TLS.
        min_version: TlsVersion = TlsVersion::Tls12,
        /// Versions, cipher suites and groups, after Mozilla's guidelines for servers.
        policy: TlsPolicyName = TlsPolicyName::Intermediate,
        /// Whether the server requests client certificates. Where several sites share an address and one
        /// of them does, a request for another host than in the handshake gets 421.
        client_auth: ClientAuth = ClientAuth::None,
        /// Certificates of the authorities for client certificates, PEM. A client whose own certificate is in the file, such as a self-signed one, is accepted, too, while it is valid.
        client_ca: FilePath,
        /// Lists of the certificates that these authorities have revoked (CRLs), PEM, in one file. A list is used until the file
        /// has another one, even if it has expired.
        client_crl: FilePath,
        /// Whether the certificate is ordered and renewed by ACME. By default it is, if the site names no certificate, all
        /// its names are on the public Internet, and you agree to the terms by `acme_email` or `acme_agree`.
        acme: bool,
        /// As `acme_email` of `[global]`, for this site.
        acme_email: EmailText,
        /// As `acme_agree` of `[global]`, for this site.
        acme_agree: bool = false,
        /// As `acme_provider` of `[global]`, for this site.
        acme_provider: OneOrMore<ProviderText> = OneOrMore::default(),
        /// As `acme_challenge` of `[global]`, for this site.
        acme_challenge: OneOrMore<Challenge> = OneOrMore::default(),
        /// As `acme_check_dns` of `[global]`, for this site.
        acme_check_dns: bool = true,
        /// As `acme_profile` of `[global]`, for this site.
        acme_profile: Text,
        /// As `acme_preferred_chain` of `[global]`, for this site.
        acme_preferred_chain: Text,
        /// As `acme_key_type` of `[global]`, for this site.
        acme_key_type: OneOrMore<AcmeKeyType> = OneOrMore::default(),
        /// As `acme_reuse_key` of `[global]`, for this site.
        acme_reuse_key: bool = false,
        /// As `acme_certificate_per` of `[global]`, for this site.
        acme_certificate_per: CertificateScope = CertificateScope::Site,
        /// Certificates for names that are first seen in a handshake, one for each name. The site has wildcards such as
        /// `*.example.com` as `server_name`, or is the site of all other names.
        acme_on_demand: OnDemand,
    }
}

keys! {
    /// Which names may get a certificate on demand.
    pub(super) struct OnDemand {
        /// Names that may: `shop.example.com`, or `*.example.com` for all names one level below.
        names: OneOrMore<SiteHost> = OneOrMore::default(),
        /// A URL that is requested about other names, with `?domain=NAME`. Status 200 permits a certificate, and 400 to 499
        /// refuses it for five minutes.
        ask: WebUrl,
        /// The most orders in an hour.
        orders_per_hour: Int<1, 1_000_000> = Int(60),
    }
}

keys! {
    /// HTTP/3 of a site.
    pub(super) struct Http3 {
        /// The most body data of one client that may wait to be read, in KB.
        receive_window: Kilobytes<64, 2_097_151> = Kilobytes::new(16_384),
        /// The most body data of one request that may wait to be read, in KB. It limits the rate of an upload to itself per
        /// round trip: with 2,048 and 100 ms, to 168 Mbit/s.
        stream_receive_window: Kilobytes<64, 2_097_151> = Kilobytes::new(2_048),
        /// The most response data of one client that is held until it is acknowledged, in KB. Less is held as long as
        /// the network takes less.
        send_window: Kilobytes<64, 2_097_151> = Kilobytes::new(16_384),
        /// How long a connection without packets lasts, in seconds; of both ends, the shorter time counts.
        /// `keepalive_timeout` ends connections without requests, if it is shorter.
        max_idle_timeout: Seconds<1, 3600> = Seconds::new(30),
        /// Whether clients may send GET, HEAD and OPTIONS requests without a body before the handshake is complete
        /// (0-RTT). Origins get them with `Early-Data: 1`.
        early_data: bool = true,
        /// When clients have to prove their addresses before a handshake, which costs a round trip. `"auto"`: while
        /// many handshakes are incomplete.
        retry: Retry = Retry::Auto,
        /// The congestion control.
        congestion: Congestion = Congestion::Cubic,
        /// A folder in which each connection is logged to a file of its own, in the qlog format: packets with their frames,
        /// losses and round-trip times, and no contents. At most 100 connections are logged at a time, 4 MB of each; of more
        /// than 500 files, the oldest are removed. It is for debugging.
        qlog: FilePath,
    }
}

keys! {
    /// A certificate and its private key.
    pub(super) struct CertificatePair {
        /// The certificate with its chain, PEM.
        cert [required]: FilePath,
        /// Its private key, PEM.
        key [required]: FilePath,
    }
}

fn default_protocols() -> Vec<Setting<Protocol>> {
    vec![
        not_given(Protocol::Http3),
        not_given(Protocol::Http2),
        not_given(Protocol::Http11),
    ]
}

choices! {
    /// When a client has to prove its address.
    pub(super) Retry: "a way to prove addresses" {
        /// While many handshakes are incomplete.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

choices! {
    /// A congestion controller.
    pub(super) Congestion: "a congestion controller" {
        /// CUBIC (RFC 9438).
        Cubic = "cubic",
        /// BBR, version 1.
        Bbr = "bbr",
    }
}

choices! {
    /// A protocol of a TLS site.
    pub(super) Protocol: "a protocol that is supported" {
        /// HTTP/3.
        Http3 = "h3",
        /// HTTP/2.
        Http2 = "h2",
        /// HTTP/1.1.
        Http11 = "http/1.1",
    }
}

choices! {
    /// A version of TLS.
    pub(super) TlsVersion: "a version of TLS" {
        /// TLS 1.2.
        Tls12 = "1.2",
        /// TLS 1.3.
        Tls13 = "1.3",
    }
}

choices! {
    /// Whether the server requests client certificates.
    pub(super) ClientAuth: "a kind of client authentication" {
        /// No certificate is requested.
        None = "none",
        /// A certificate is optional.
        Optional = "optional",
        /// A certificate is required.
        Required = "required",
    }
}

keys! {
    /// An access log.
    pub(super) struct AccessLog {
        /// The file; `/dev/stdout` is the standard output.
        path [required]: FilePath,
        /// `combined`, `json`, or a line with variables: `"$remote_addr \"$request\" $status"`.
        format: Text = Text("combined".to_owned()),
        /// The requests that are logged, as a condition on request and response: `when = "status >= 400 or time_taken > 1s"`. Requests that end
        /// before there is a response are logged in any case, if the condition is about the response.
        when: When,
    }
}

/// An access log, or none.
#[derive(Clone, Debug)]
pub(super) enum AccessLogChoice {
    Off,
    Path(FilePath),
    Table(AccessLog),
}

impl KeyType for AccessLogChoice {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::String(_) => FilePath::read(node, reader).map(Self::Path),
            DeValue::Table(_) => AccessLog::read(node, reader).map(Self::Table),
            _ => {
                reader.wrong_type(node, "false, a path, or a table");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let table = AccessLog::type_description();
        TypeDescription {
            expected: "`false`, a path, or a table".to_owned(),
            schema: json!({"anyOf": [
                {"const": false},
                {"type": "string", "minLength": 1},
                table.schema,
            ]}),
            ..table
        }
    }
}
