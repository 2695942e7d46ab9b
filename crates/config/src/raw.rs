//! The keys of a configuration file.
//!
//! Each is defined once here; the parser, the reference and the JSON schema are made from that.

pub(super) mod cache;
pub(super) mod layers;
pub(super) mod php;
pub(super) mod proxy;
pub(super) mod upstream;
pub(super) mod workers;

use serde_json::json;
use toml::de::DeValue;

use super::diagnostics::Finding;
use super::keys::{ConfigReader, KeyType, TypeDescription, ValueNode, choices, keys, shown};
use super::source::{Setting, SourceSpan};
use super::string_type::origin::UpstreamName;
use super::string_type::php::PhpAddress;
use super::string_type::{
    self, ConditionText, FieldName, FieldValue, FileMode, HeaderText, IdentityFieldName,
    ListenSpec, LocationPath, MediaType, NetworkText, PathPattern, RegexText, SiteHost, SitePath,
    StatusNumber, StatusSet, UriTemplate,
};
use super::value::{
    FilePath, Int, Kilobytes, List, Map, Megabytes, OneOrMore, Seconds, Switch, Text,
};
use cache::{Cache, CacheStore};
use layers::{BasicAuth, Cors, Jwt, RequestIds, SecurityHeaders};
use php::Fastcgi;
use proxy::Proxy;
use upstream::Upstream;

const YEAR: u64 = 31_536_000;

keys! {
    /// A configuration file.
    pub(super) struct File {
        /// Other files to read, as paths or patterns (`"sites/*.toml"`), relative to this file.
        /// They may hold sites and name further files. A path without `*`, `?` or `[` must exist.
        include: OneOrMore<Text> = OneOrMore::default(),
        /// What goes for the whole server. Only the first file may hold it.
        global: Global,
        /// The sites that are served.
        sites: List<Site> = List::default(),
    }
}

keys! {
    /// What goes for the whole server.
    pub(super) struct Global {
        /// Worker threads, each pinned to a core of its own. 0: one per core.
        worker_threads: Int<0, 1024> = Int(0),
        /// Connections per worker. Past it, the connection that has been idle longest is closed for a
        /// new one.
        worker_connections: Int<1, 10_000_000> = Int(51_200),
        /// Connections of the whole server. 0: no limit but the file descriptors.
        max_connections: Int<0, 100_000_000> = Int(0),
        /// Connections of one client address per worker; the addresses of an IPv6 /64 network count
        /// as one. 0: no limit.
        connections_per_address: Int<0, 10_000_000> = Int(16_384),
        /// How long a connection may stay open between two requests, in seconds.
        keepalive_timeout: Seconds<1, YEAR> = Seconds::new(60),
        /// Requests that one connection may bring over HTTP/1.1. 0: no limit.
        keepalive_requests: Int<0, { i64::MAX as u64 }> = Int(0),
        /// Whether HTTP/2 is spoken in clear text with clients that begin with it unasked. Over TLS,
        /// `protocols` of the site says what is spoken.
        h2c: bool = true,
        /// Requests that one HTTP/2 client may have open at the same time.
        h2_max_concurrent_streams: Int<1, 32_768> = Int(256),
        /// The largest HTTP/2 frame that is taken, in bytes.
        h2_max_frame_size: Int<16_384, 16_777_215> = Int(16_384),
        /// Requests that one HTTP/2 connection may bring. 0: no limit.
        h2_max_requests_per_conn: Int<0, { i64::MAX as u64 }> = Int(0),
        /// How long an HTTP/2 client with open requests may be silent until it is asked whether it is
        /// still there; without an answer in as long again, its connection is closed. In seconds; 0:
        /// it is not asked.
        h2_ping_interval: Seconds<0, YEAR> = Seconds::new(30),
        /// The most content that one HTTP/2 client may have sent before it is used, in KB.
        h2_receive_window: Kilobytes<256, 2_097_151> = Kilobytes::new(16_384),
        /// The largest content of a request, in MB; answered 413 beyond. 0: no limit.
        client_max_body_size: Megabytes<0, 1_000_000_000> = Megabytes::new(50),
        /// The largest head of a request, in KB; answered 431 beyond.
        client_header_size: Kilobytes<1, 63> = Kilobytes::new(32),
        /// Field lines in the head of a request; answered 431 beyond.
        client_header_fields: Int<1, 10_000> = Int(100),
        /// The longest request target (path and query), in KB; answered 414 beyond.
        client_target_size: Kilobytes<1, 63> = Kilobytes::new(8),
        /// How long a client may take to send the head of a request, in seconds.
        client_header_timeout: Seconds<1, YEAR> = Seconds::new(15),
        /// How long a client may take for the TLS handshake or the PROXY protocol, in seconds.
        handshake_timeout: Seconds<1, YEAR> = Seconds::new(10),
        /// How long a client may pause while it sends the content of a request, in seconds.
        client_body_timeout: Seconds<1, YEAR> = Seconds::new(30),
        /// The slowest rate at which content may come, in bytes per second, measured once
        /// `client_body_timeout` has passed. 0: any rate.
        client_body_rate: Int<0, 1_000_000_000> = Int(128),
        /// The largest content that is read and thrown away to keep a connection open when a
        /// response did not need it, in KB.
        discard_body_size: Kilobytes<0, 1_000_000> = Kilobytes::new(256),
        /// How long a client may take nothing of a response, in seconds.
        send_timeout: Seconds<1, YEAR> = Seconds::new(60),
        /// How long open requests may take to end after a stop was asked for, in seconds.
        stop_timeout: Seconds<0, YEAR> = Seconds::new(30),
        /// The user that the server becomes when it was started as root: a name or a number. By default
        /// `www-data`, or `nobody` where there is no such user. `"root"`: it stays root. A server that was
        /// started by another user stays that user.
        user: Text,
        /// The group in place of that user's own groups.
        group: Text,
        /// The socket over which `apus reload`, `stop` and `status` reach the server. By default it
        /// lies in the runtime folder of the system or of the user.
        control_socket: FilePath,
        /// Memory for small static files, per worker, in MB; the sites and locations that serve files
        /// share it evenly. As much again holds compressed forms, for all workers.
        static_cache_size: Megabytes<0, 1_000_000> = Megabytes::new(64),
        /// Memory that responses may take beyond the piece that each of them is sending, of the whole
        /// server, in MB: for compressors, and for reading ahead of slow clients. One connection gets an
        /// eighth. Beyond it responses go uncompressed, and are read no faster than their clients take
        /// them.
        response_memory: Megabytes<0, 1_000_000> = Megabytes::new(128),
        /// Whether responses tell the name of the server, without its version.
        server_header: bool = true,
        /// Whether a TLS handshake for a name that no site has, or for none, is refused. Otherwise
        /// the first site's certificate answers it.
        ssl_reject_unknown: bool = false,
        /// The access log of every site that names none. By default there is none.
        access_log: AccessLogChoice,
        /// What the server tells about its own work, on standard error.
        log_level: LogLevel = LogLevel::Info,
        /// Networks of proxies in front of this server (`"10.0.0.0/8"`, `"::1"`, or `"unix:"`). Who the
        /// client is, and which scheme, host and port it used, is what they say; what others say of it is
        /// removed from their requests.
        trusted_proxies: OneOrMore<NetworkText> = OneOrMore::default(),
        /// The field in which `trusted_proxies` name the client: `"X-Forwarded-For"`, with
        /// `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port`; or `"Forwarded"` (RFC 7239).
        /// The one that they do not write they pass on as a client sent it, so it is not read.
        trusted_proxies_header: TrustedHeader = TrustedHeader::XForwardedFor,
        /// Fields about the client, such as `"CF-Connecting-IP"` or `"X-Forwarded-Prefix"`, that origins and
        /// PHP get as `trusted_proxies` write them. They are removed from all other requests, as are those
        /// that are not named here.
        trusted_proxies_pass: OneOrMore<IdentityFieldName> = OneOrMore::default(),
        /// Compression.
        compress: Compress,
        /// Where stored answers are kept.
        cache: CacheStore,
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
    /// How much the server tells about its own work.
    pub LogLevel: "a log level" {
        /// What failed.
        Error = "error",
        /// What may fail soon, or was not meant.
        Warn = "warn",
        /// What changed: start, reload, stop.
        Info = "info",
        /// What helps to find a fault.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

keys! {
    /// Compression: files are compressed once and kept, what handlers make as it is sent. A site's own
    /// table changes the keys that it gives; the others are as in `[global.compress]`.
    pub(super) struct Compress {
        /// Whether gzip is offered.
        gzip: bool = true,
        /// Whether Brotli is offered.
        brotli: bool = true,
        /// Whether Zstandard is offered.
        zstd: bool = true,
        /// Whether files beside a file, with `.br`, `.zst` or `.gz` behind its name, are sent in its
        /// place, if they are not older.
        precompressed: bool = true,
        /// The smallest content that is compressed, in KB.
        min_length: Kilobytes<0, 1_000_000> = Kilobytes::new(1),
        /// The level of gzip for what is compressed as it is sent: 1 is fastest, 9 smallest. Files of up
        /// to 4 MB are compressed once, as small as possible.
        gzip_level: Int<1, 9> = Int(5),
        /// The level of Brotli for what is compressed as it is sent. Levels from 7 on take 10 MB of memory
        /// and more for each response.
        brotli_level: Int<0, 11> = Int(4),
        /// The level of Zstandard for what is compressed as it is sent. Levels from 9 on take 11 MB of
        /// memory and more for each response.
        zstd_level: Int<1, 19> = Int(3),
    }
}

keys! {
    /// A site: what is served under some names on some addresses.
    pub(super) struct Site {
        /// What logs and messages call the site. By default its first server name.
        name: Text,
        /// The host names of the site: `example.com`, `*.example.com`, `www.example.*`, a regular
        /// expression as `~^www\d+\.example\.com$`, or `_` for hosts that no other site has. Without
        /// any, the site is the one for other hosts. An exact name wins over `*.`, that over `.*`,
        /// that over an expression.
        server_name: OneOrMore<SiteHost> = OneOrMore::default(),
        /// Where to listen in clear text: a port, `"address:port"`, `"[::1]:port"`, `"unix:/path"` or
        /// `"systemd:name"` for a socket that systemd opened. A port alone means all addresses, IPv4
        /// and IPv6.
        listen: OneOrMore<ListenSpec> = OneOrMore::default(),
        /// Where to listen with TLS, written like `listen`.
        listen_tls: OneOrMore<ListenSpec> = OneOrMore::default(),
        /// Whether a port alone, or `[::]:port`, leaves IPv4 connections alone.
        ipv6_only: bool = false,
        /// Permission bits of the Unix sockets that this site listens on.
        unix_socket_mode: FileMode = FileMode(0o666),
        /// Networks (`"10.0.0.0/8"`, `"::1"`, or `"unix:"`) whose connections start with a PROXY
        /// protocol head, which names the client. Connections from elsewhere must not.
        proxy_protocol_from: OneOrMore<NetworkText> = OneOrMore::default(),
        /// TLS: certificates, versions, client certificates.
        tls: Tls,
        /// Whether requests in clear text are redirected to `https`.
        force_https: bool = false,
        /// HTTP Strict Transport Security, sent over TLS.
        hsts: Hsts,
        /// Settings that fit a kind of site, before those that the site has itself: `static`; `spa`,
        /// where paths without a file get `/index.html`; and for PHP, with `php_fastcgi`, `wordpress`,
        /// `typecho` and `laravel`: pretty URLs, protected paths, folders for uploads in which nothing is
        /// run, and which cookies the cache has to mind. All set `X-Content-Type-Options` and
        /// `Referrer-Policy`, let files be kept that do not change, and pages be asked for anew.
        preset: Preset,
        /// The access log: `false` for none, a path, or a table. By default as in `[global]`.
        access_log: AccessLogChoice,
        /// Compression, where it differs from `[global.compress]`.
        compress: Compress,
        /// Groups of origins, for the key `upstream` of the site and its locations.
        upstreams: List<Upstream> = List::default(),
        /// Parts of the site, by path.
        locations: List<Location> = List::default(),
        ..keys: LocationKeys,
    }
}

choices! {
    /// Settings that fit a kind of site.
    pub(super) Preset: "a preset" {
        /// A site of files.
        Static = "static",
        /// A single-page application.
        Spa = "spa",
        /// WordPress, also as a network of sites.
        Wordpress = "wordpress",
        /// Typecho.
        Typecho = "typecho",
        /// Laravel; the root is its folder `public`.
        Laravel = "laravel",
    }
}

keys! {
    /// What a site or a location does with requests. In a location, a key that is not given is as in
    /// the site.
    pub(super) struct LocationKeys {
        /// The folder whose files are served; the path of the request is added to it.
        root: FilePath,
        /// Files that stand for a folder, the first that exists. With `php_fastcgi`, `index.php` goes
        /// before by default.
        index: OneOrMore<Text> = OneOrMore(default_index()),
        /// Paths to try in turn; `$uri` is the path of the request, and a path that ends with `/` means
        /// a folder with an index file. The last one is where the request goes if none exists
        /// (`$args` is the query), or a status as `=404`.
        try_files: OneOrMore<Text> = OneOrMore::default(),
        /// Whether folders without an index file are listed, as a page or as JSON.
        listing: bool = false,
        /// Whether files and folders are served whose names start with a dot. `/.well-known/` always
        /// is.
        hidden_files: bool = false,
        /// Which symbolic links are followed. By default `inside`; with the preset `laravel`, whose
        /// `public/storage` is one, `all`.
        symlinks: Symlinks = Symlinks::Inside,
        /// Media types by file name extension, before those of the built-in table.
        mime: Map<Text, MediaType> = Map::default(),
        /// The charset of text files. Empty: none is named.
        charset: Charset = Charset("utf-8".to_owned()),
        /// `Cache-Control` by pattern: of the file's name (`"*.{css,js}"`), or of the path below the root
        /// (`"/assets/**"`, where `**` crosses slashes). The first that matches counts.
        cache_control: Map<PathPattern, HeaderText> = Map::default(),
        /// Fields of responses. Those of a location are changed after those of the site.
        headers: FieldChanges,
        /// Fields of requests, before a handler sees them. Those of a location are changed after
        /// those of the site.
        request_headers: FieldChanges,
        /// Pages in place of error responses: from a status (`404`) or a class (`5xx`) to a path of
        /// the site. Those of a location go before those of the site.
        error_pages: Map<StatusSet, SitePath> = Map::default(),
        /// The largest content of a request, in MB; answered 413 beyond. 0: no limit. By default as in
        /// `[global]`.
        client_max_body_size: Megabytes<0, 1_000_000_000>,
        /// Rules that give requests another path, in order. Those of the site go first.
        rewrite: List<Rewrite> = List::default(),
        /// A fixed answer. That of a site is for paths which no location is for; locations do not
        /// inherit it.
        r#return: Return,
        /// The origins that answer: the name of a group of the site, or a URL. With a path, as in
        /// `"app/"` or `"http://127.0.0.1:3000/v1/"`, that stands in the place of the location's path;
        /// else requests keep theirs. Locations that say nothing else have that of the site.
        upstream: UpstreamName,
        /// Where PHP is that runs the programs below the root: the socket of PHP-FPM as
        /// `"/run/php/php-fpm.sock"`, `"host:port"`, several of them, or the name of a group of the site
        /// with `protocol = "fastcgi"`. All else is served as files. Locations that say nothing else have
        /// that of the site.
        php_fastcgi: OneOrMore<PhpAddress>,
        /// How PHP is asked, and for what.
        fastcgi: Fastcgi,
        /// What is done with requests and answers on their way to origins and back.
        proxy: Proxy,
        /// Whether answers of origins are stored and sent again, and how. `true`: as they say.
        cache: Switch<Cache>,
        /// An id for each request. `true`: in `X-Request-Id`.
        request_id: Switch<RequestIds>,
        /// Fields that restrict what browsers do with responses. `true`: those of the table's defaults.
        security_headers: Switch<SecurityHeaders>,
        /// Which scripts of other origins may read responses (CORS). `false`: none, also where the site allows
        /// some.
        cors: Switch<Cors>,
        /// How long a response may take until it begins, in seconds; answered 503 beyond. 0: no limit.
        request_timeout: Seconds<0, YEAR>,
        /// Name and password with every request. `false`: none, also where the site wants them.
        basic_auth: Switch<BasicAuth>,
        /// JSON Web Tokens with every request. `false`: none, also where the site wants them.
        jwt: Switch<Jwt>,
    }
}

fn default_index() -> Vec<Setting<Text>> {
    vec![not_given(Text("index.html".to_owned()))]
}

/// An item of a list that stands in no file.
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
        /// Those that lead to a place within the root.
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
    /// A part of a site. Of several that match, `= exact` wins; then, if the longest prefix is a `^~`
    /// one, that; then the first regular expression; then the longest prefix.
    pub(super) struct Location {
        /// Which paths: `"= /path"` exactly, `"/prefix"`, `"^~ /prefix"` before any expression,
        /// `"~ regex"`, `"~* regex"` ignoring case.
        path [required]: LocationPath,
        /// What answers: `static` for files, `return` for the fixed answer of the key `return`,
        /// `reverse_proxy` for the origins of the key `upstream`, `fastcgi` for files and the programs that
        /// PHP at `php_fastcgi` runs. By default what the keys that are given
        /// belong to, else that of the site.
        handler: Handler,
        /// Whether there is nothing here for clients, only for requests that the site sends here itself:
        /// by `rewrite`, `try_files`, `error_pages` or `X-Accel-Redirect`.
        internal: bool = false,
        /// The folder that stands in the place of the location's path; `root` would have the path
        /// added.
        alias: FilePath,
        ..keys: LocationKeys,
    }
}

choices! {
    /// What answers in a location.
    pub(super) Handler: "a handler" {
        /// Files.
        Static = "static",
        /// A fixed answer.
        Return = "return",
        /// Origins.
        ReverseProxy = "reverse_proxy",
        /// PHP.
        Fastcgi = "fastcgi",
    }
}

keys! {
    /// Fields to change. Values may hold variables as `$host`.
    pub(super) struct FieldChanges {
        /// Fields to set, in place of what there is of the name.
        set: Map<FieldName, FieldValue> = Map::default(),
        /// Fields to add to what there is.
        add: Map<FieldName, FieldValue> = Map::default(),
        /// Names of fields to remove.
        remove: OneOrMore<FieldName> = OneOrMore::default(),
    }
}

keys! {
    /// A rule that gives requests another path, or clients a redirect.
    pub(super) struct Rewrite {
        /// The regular expression that the path must match.
        from [required]: RegexText,
        /// The new path or URI; `$1` to `$9` and `$name` are what the groups of `from` matched.
        to [required]: UriTemplate,
        /// What happens after the rule.
        then: RewriteThen = RewriteThen::Continue,
        /// Tests that must hold: `-f`, `-d` or `-e` (file, folder, either exists), behind `!` for the
        /// contrary, and a path: `"!-f $request_filename"`.
        when: OneOrMore<ConditionText> = OneOrMore::default(),
    }
}

choices! {
    /// What happens after a rewrite.
    pub(super) RewriteThen: "what happens then" {
        /// The next rule is tried.
        Continue = "continue",
        /// The location is looked for anew.
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
    /// A fixed answer.
    pub(super) struct Return {
        /// Its status.
        status [required]: StatusNumber,
        /// Where a redirect (301, 302, 303, 307, 308) leads; may hold variables as `$request_uri`.
        location: UriTemplate,
        /// The text that is sent; may hold variables.
        text: string_type::BodyText,
        /// The media type of `text`.
        content_type: MediaType = MediaType("text/plain; charset=utf-8".to_owned()),
    }
}

keys! {
    /// HTTP Strict Transport Security (RFC 6797).
    pub(super) struct Hsts {
        /// How long browsers keep to `https`, in seconds.
        max_age: Seconds<0, { 100 * YEAR }> = Seconds::new(YEAR),
        /// Whether it goes for subdomains too.
        include_subdomains: bool = false,
        /// Whether browsers may have the name in their built-in list.
        preload: bool = false,
    }
}

keys! {
    /// TLS of a site.
    pub(super) struct Tls {
        /// The certificate with its chain, PEM. Short for one entry of `certificates`.
        cert: FilePath,
        /// The private key of `cert`, PEM.
        key: FilePath,
        /// Certificates, if there are several, as ECDSA beside RSA; clients get the one they can use.
        certificates: List<CertificatePair> = List::default(),
        /// Protocols to offer, the most wanted first.
        protocols: OneOrMore<Protocol> = OneOrMore(default_protocols()),
        /// The oldest version of TLS that is spoken.
        min_version: TlsVersion = TlsVersion::Tls12,
        /// Whether clients show certificates. Where several sites share an address and one of them
        /// asks, a request for another host than the handshake was for is answered 421.
        client_auth: ClientAuth = ClientAuth::None,
        /// Certificates of those who sign client certificates, PEM.
        client_ca: FilePath,
    }
}

keys! {
    /// A certificate and its key.
    pub(super) struct CertificatePair {
        /// The certificate with its chain, PEM.
        cert [required]: FilePath,
        /// Its private key, PEM.
        key [required]: FilePath,
    }
}

fn default_protocols() -> Vec<Setting<Protocol>> {
    vec![not_given(Protocol::Http2), not_given(Protocol::Http11)]
}

choices! {
    /// A protocol that is offered by ALPN.
    pub(super) Protocol: "a protocol that is supported" {
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
    /// Whether clients show certificates.
    pub(super) ClientAuth: "a kind of client authentication" {
        /// They are not asked.
        None = "none",
        /// They may.
        Optional = "optional",
        /// They must.
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
    }
}

/// An access log, or that there is none.
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
