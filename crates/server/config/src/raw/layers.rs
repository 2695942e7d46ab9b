//! The keys of layers: what stands around the handler of a site or a location.

use apus_http::{HeaderName, HeaderValue, Method};
use apus_sites::ServerName;
use serde_json::json;
use toml::de::DeValue;

use super::limit_tiers::LimitTiers;
use super::{YEAR, not_given};
use crate::description::TypeDescription;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, choices, keys};
use crate::size::Bytes;
use crate::source::Setting;
use crate::string_type::limit::{
    BandwidthText, BodyDirection, LimitFact, LimitName, QuotaText, RateText, RefusalStatus,
};
use crate::string_type::origin::{FetchUrl, PathAndQuery, ProxyHost, UpstreamName};
use crate::string_type::{FieldName, HeaderText, NetworkEntry};
use crate::value::{FilePath, Int, OneOrMore, Seconds, Switch, Text, Time};
use crate::when::When;

/// An origin whose scripts may read responses.
#[derive(Clone, Debug)]
pub(crate) enum CorsOrigin {
    /// `*`.
    Any,
    /// An origin, or the subdomains of one.
    Origin(String),
}

impl StringType for CorsOrigin {
    const EXPECTED: &'static str =
        "an origin as \"https://shop.example\" or \"https://*.shop.example\", or \"*\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let host = text.split_once("://").map(|(_, host)| host);
        let host = host.map(|host| host.strip_prefix("*.").unwrap_or(host));
        let is_host =
            |host: &str| !host.is_empty() && !host.contains(['/', '*', '?', '#', '@', ' ']);
        if text == "null" || host.is_some_and(is_host) {
            Ok(Self::Origin(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }
}

/// A request field that scripts may send.
#[derive(Clone, Debug)]
pub(crate) enum CorsHeader {
    /// `*`.
    Any,
    /// A field.
    Name(HeaderName),
}

impl StringType for CorsHeader {
    const EXPECTED: &'static str = "a field name or \"*\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "*" => Ok(Self::Any),
            name => HeaderName::from_bytes(name.as_bytes())
                .map(Self::Name)
                .map_err(|_| ValueError::Unexpected),
        }
    }
}

/// A method.
#[derive(Clone, Debug)]
pub(crate) struct MethodName(pub(crate) Method);

impl StringType for MethodName {
    const EXPECTED: &'static str = "a method as \"PUT\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Method::from_bytes(text.as_bytes())
            .map(Self)
            .map_err(|_| ValueError::Unexpected)
    }

    fn as_written(&self) -> Option<&str> {
        Some(self.0.as_str())
    }
}

/// A field value, empty for none.
fn header(value: &'static str) -> HeaderText {
    HeaderText(HeaderValue::from_static(value))
}

keys! {
    /// Cross-origin resource sharing (Fetch standard, section 3.2): which scripts of other origins may read
    /// responses. The server responds to preflight requests.
    pub(crate) struct Cors {
        /// The origins whose scripts may: `"https://shop.example"`, `"https://*.shop.example"` for the
        /// subdomains, or `"*"` for all of them, which excludes `credentials`.
        origins [required]: OneOrMore<CorsOrigin>,
        /// The methods that scripts may use, in place of GET, HEAD and POST.
        methods: OneOrMore<MethodName> = OneOrMore(default_methods()),
        /// The request fields that scripts may send, beside those that a form could send; `"*"`: those that
        /// they request.
        headers: OneOrMore<CorsHeader> = OneOrMore::default(),
        /// The response fields that scripts may read, beside those that they always may.
        expose_headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// Whether scripts may send the cookies, client certificates and `Authorization` of the reader.
        credentials: bool = false,
        /// How long a browser may use the response to a preflight request, in seconds.
        max_age: Seconds<0, YEAR> = Seconds::new(5),
    }
}

fn default_methods() -> Vec<Setting<MethodName>> {
    [Method::GET, Method::HEAD, Method::POST]
        .map(|method| not_given(MethodName(method)))
        .into()
}

keys! {
    /// Name and password with every request (RFC 7617). Without them 401.
    pub(crate) struct BasicAuth {
        /// What browsers show when they ask for the password.
        realm: Text = Text("Restricted".to_owned()),
        /// The file with the users, as `htpasswd -B` writes it: `name:hash` on each line. Hashes are made by
        /// bcrypt, SHA-crypt or Argon2; those of old files, by MD5 (`$apr1$`) and SHA-1 (`{SHA}`), are accepted with a warning. It
        /// is read at start and reload.
        users_file [required]: FilePath,
        /// How many wrong passwords of one client for one name are checked in a minute, all of which may come at once; further
        /// ones get 429. An IPv6 network of 64 bits is one client. 0: no limit.
        failures_per_minute: Int<0, 10_000> = Int(10),
    }
}

/// Networks, or none at all.
#[derive(Clone, Debug)]
pub(crate) enum Networks {
    /// `false`.
    Off,
    /// These.
    Of(OneOrMore<NetworkEntry>),
}

impl KeyType for Networks {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let DeValue::Boolean(false) = node.value {
            return Some(Self::Off);
        }
        let networks = OneOrMore::read(node, reader)?;
        if networks.0.is_empty() {
            // Whoever generates an empty list may mean nobody or everybody.
            let finding = Finding::error(&node.span, "the list is empty", "expected a network");
            reader.report(finding.help("write false for no restriction"));
            return None;
        }
        Some(Self::Of(networks))
    }

    fn type_description() -> TypeDescription {
        let networks = OneOrMore::<NetworkEntry>::type_description();
        TypeDescription {
            expected: format!("`false`, {}", networks.expected),
            schema: json!({"anyOf": [{"const": false}, networks.schema]}),
            ..networks
        }
    }
}

choices! {
    /// How many of the checks of a client have to admit it.
    pub(crate) Satisfy: "how many checks have to admit a client" {
        /// All.
        All = "all",
        /// One.
        Any = "any",
    }
}

choices! {
    /// Whether clients need a certificate.
    pub(crate) CertificateNeed: "whether clients need a certificate" {
        /// They need none.
        Optional = "optional",
        /// They need one.
        Required = "required",
    }
}

keys! {
    /// Links with a signature, which only who has the key can make, and which may expire. Requests for other URLs get 403.
    pub(crate) struct SignedUrl {
        /// The file with the key, of 32 bytes at least: `openssl rand -base64 48`. It is read at start and reload.
        key_file [required]: FilePath,
    }
}

/// Pages from which something may be requested.
#[derive(Clone, Debug)]
pub(crate) enum RefererSource {
    /// `none`: no field.
    None,
    /// `blocked`: no URL.
    Blocked,
    /// `server_names`: the host that is requested.
    ServerNames,
    /// A host, or the subdomains of one.
    Host(String),
}

impl StringType for RefererSource {
    const EXPECTED: &'static str =
        "\"none\", \"blocked\", \"server_names\", a host as \"example.com\", or \"*.example.com\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "none" => return Ok(Self::None),
            "blocked" => return Ok(Self::Blocked),
            "server_names" => return Ok(Self::ServerNames),
            _ => {}
        }
        let host = text.strip_prefix("*.").unwrap_or(text);
        if text.contains("://") || host.contains(['/', ':']) && !host.starts_with('[') {
            return Err("it is a host, without a scheme, a port and a path".into());
        }
        if host.contains(['*', '~', ' ']) {
            return Err("`*` stands only at the begin, for subdomains".into());
        }
        match host.parse::<ServerName>() {
            Ok(_) => Ok(Self::Host(text.to_owned())),
            Err(_) => Err(ValueError::Unexpected),
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(match self {
            Self::None => "none",
            Self::Blocked => "blocked",
            Self::ServerNames => "server_names",
            Self::Host(host) => host,
        })
    }
}

keys! {
    /// The pages from which something may be requested, by the field `Referer`. Requests from others get 403. It keeps other sites
    /// from embedding pictures and downloads, and protects no secrets: any program can send any `Referer`.
    pub(crate) struct RefererRules {
        /// The pages: `"server_names"` of the host that is requested, `"example.com"`, `"*.example.com"` of its subdomains;
        /// `"none"` allows requests without the field, `"blocked"` those in which something replaced its value by one that is no
        /// URL.
        allow: OneOrMore<RefererSource> = OneOrMore(default_referers()),
    }
}

fn default_referers() -> Vec<Setting<RefererSource>> {
    [RefererSource::None, RefererSource::ServerNames]
        .map(not_given)
        .into()
}

keys! {
    /// JSON Web Tokens in `Authorization: Bearer` (RFC 7519, RFC 8725). Without a valid one 401. `exp` is
    /// required and checked, `nbf` is checked if it is there.
    pub(crate) struct Jwt {
        /// The only algorithms that are accepted: with `key_file` exactly one; with a key set any but those with a secret, and by default
        /// all of these. Each key of a set is for the algorithms of its own type only.
        algorithm: OneOrMore<JwtAlgorithm> = OneOrMore::default(),
        /// The file with the key: for `HS256`, `HS384` and `HS512` the secret, of 32 bytes at least; else the
        /// public key, PEM. It is read at start and reload. Or one of `jwks_file` and `jwks_url`.
        key_file: FilePath,
        /// A file with the public keys of the issuer, a JSON Web Key Set (RFC 7517). It is read at start and reload.
        jwks_file: FilePath,
        /// The URL of such a key set. It is fetched with the first token, again as its `Cache-Control: max-age` says (a minute at
        /// least, a day at most, an hour without it), and for a token with an unknown key, but not within 30 seconds of the last
        /// time. While that fails, the keys of before stay in force; without any, requests get 503.
        jwks_url: FetchUrl,
        /// TLS to the server of `jwks_url`.
        tls: FetchTls,
        /// The issuer that tokens must have (`iss`).
        issuer: Text,
        /// The audience that tokens must have (`aud`).
        audience: Text,
        /// By how much clocks may differ, in seconds.
        leeway: Seconds<0, 3600> = Seconds::new(60),
        /// Whether requests without a token are served too. An invalid token is refused in any case.
        optional: bool = false,
    }
}

keys! {
    /// TLS to a server from which keys are fetched.
    pub(crate) struct FetchTls {
        /// Certificates of the authorities for the server, PEM, in place of those that the system trusts. A server whose own certificate is in the file, such as a self-signed one, is trusted, too: with the same bytes, for its names, while it is valid. It is read at start and reload.
        ca [required]: FilePath,
    }
}

keys! {
    /// Another service that decides about each request, the authority: it gets a GET request without body, and the client is admitted
    /// if its response is a success. 401, 403 and redirects get to the client; with any other response, and without one, nobody is
    /// admitted.
    pub(crate) struct ForwardAuth {
        /// The authority: the name of a group of the site's `upstreams`, or a URL as `upstream` has it. A path of it is the path of
        /// the requests.
        to [required]: UpstreamName,
        /// The path of the requests in place of the one in `to`, with a query or without.
        uri: PathAndQuery,
        /// The `Host` of the requests: `$http_host` for the host that the client requests, `$proxy_host` for the one of the URL in
        /// `to`, or a name. By default `$proxy_host` for a URL with a host, else `$http_host`.
        host: ProxyHost,
        /// The fields of the client that are sent. `"*"`: all but those about the body, ranges and conditions.
        request_headers: OneOrMore<FieldName> = OneOrMore(default_forwarded_fields()),
        /// Fields of the authority's response that are copied into the request. What the client sent in them is removed.
        copy_headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// Fields of the authority's response that are copied into the response to an admitted client, such as `Set-Cookie`.
        response_headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// The field of the authority's response with the name of the user.
        user_header: FieldName,
        /// Whether it is remembered who was admitted.
        cache: Switch<ForwardAuthCache> = Switch::Off,
    }
}

fn default_forwarded_fields() -> Vec<Setting<FieldName>> {
    [
        "Accept",
        "Authorization",
        "Cookie",
        "Origin",
        "User-Agent",
        "X-Requested-With",
    ]
    .map(|name| not_given(FieldName(name.to_owned())))
    .into()
}

keys! {
    /// For how long an authority is not asked again about a client that it admitted. Only admissions are remembered, each for requests
    /// of the same client with the same fields for the authority.
    pub(crate) struct ForwardAuthCache {
        /// For how long, in seconds.
        time: Seconds<1, 86_400> = Seconds::new(30),
        /// What else has to be the same: `"method"`, `"scheme"`, `"host"`, `"path"`, `"uri"` (the path with the query). Fewer are for
        /// authorities that do not look at the others.
        key: OneOrMore<ForwardAuthKey> = OneOrMore(default_forward_auth_key()),
        /// The most admissions that each worker remembers.
        size: Int<1, 10_000_000> = Int(10_000),
    }
}

fn default_forward_auth_key() -> Vec<Setting<ForwardAuthKey>> {
    [
        ForwardAuthKey::Method,
        ForwardAuthKey::Scheme,
        ForwardAuthKey::Host,
        ForwardAuthKey::Uri,
    ]
    .map(not_given)
    .into()
}

choices! {
    /// A part of a request that an authority looks at.
    pub(crate) ForwardAuthKey: "a part of a request" {
        /// The method.
        Method = "method",
        /// `http` or `https`.
        Scheme = "scheme",
        /// The host, with its port.
        Host = "host",
        /// The path.
        Path = "path",
        /// The path and the query.
        Uri = "uri",
    }
}

choices! {
    /// An algorithm of signatures (RFC 7518 section 3.1, RFC 8037).
    pub(crate) JwtAlgorithm: "an algorithm that is supported" {
        /// HMAC with SHA-256.
        Hs256 = "HS256",
        /// HMAC with SHA-384.
        Hs384 = "HS384",
        /// HMAC with SHA-512.
        Hs512 = "HS512",
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        Rs256 = "RS256",
        /// RSASSA-PKCS1-v1_5 with SHA-384.
        Rs384 = "RS384",
        /// RSASSA-PKCS1-v1_5 with SHA-512.
        Rs512 = "RS512",
        /// RSASSA-PSS with SHA-256.
        Ps256 = "PS256",
        /// RSASSA-PSS with SHA-384.
        Ps384 = "PS384",
        /// RSASSA-PSS with SHA-512.
        Ps512 = "PS512",
        /// ECDSA on P-256 with SHA-256.
        Es256 = "ES256",
        /// ECDSA on P-384 with SHA-384.
        Es384 = "ES384",
        /// Ed25519.
        EdDsa = "EdDSA",
    }
}

impl JwtAlgorithm {
    /// Whether its key is a secret.
    pub(crate) fn is_secret(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

keys! {
    /// Fields that restrict what browsers do with responses. A field that a response has already stays; an
    /// empty value leaves a field out.
    pub(crate) struct SecurityHeaders {
        /// What pages may load and run.
        content_security_policy: HeaderText = header("base-uri 'self'; frame-ancestors 'self'; object-src 'none'"),
        /// As `content_security_policy`, but violations are only reported, to where the policy says.
        content_security_policy_report_only: HeaderText = header(""),
        /// Whether browsers guess media types.
        content_type_options: HeaderText = header("nosniff"),
        /// Which sites may show pages in a frame.
        frame_options: HeaderText = header("SAMEORIGIN"),
        /// What browsers send of a page's URL to others.
        referrer_policy: HeaderText = header("strict-origin-when-cross-origin"),
        /// Which windows share a process with a page.
        opener_policy: HeaderText = header("same-origin"),
        /// Which features of the browser pages may use.
        permissions_policy: HeaderText = header(""),
    }
}

keys! {
    /// An id for each request: in the response, in the request to origins and PHP, and in their logs. An id that
    /// a proxy of `trusted_proxies` sends is kept.
    pub(crate) struct RequestIds {
        /// The field of the id.
        header: FieldName = FieldName("x-request-id".to_owned()),
    }
}

keys! {
    /// A limit on the rate of requests, on requests at once, or on bandwidth, exact over all workers. A location has the limits of its site and its own, and a
    /// site those of `[global]`; one of the same name takes the place of the outer one.
    pub(crate) struct Limit {
        /// The name in the log, in `apus status` and in the fields of responses: letters, digits, `-` and `_`.
        name [required]: LimitName,
        /// What requests are counted by, one or several facts together: `"client"`, an address or an IPv6 /64; `"network"`, 24
        /// bits of an IPv4 address or 48 of an IPv6 address; `"connection"`; `"all"` for all requests together; `"host"`, `"path"`, `"method"`,
        /// `"header.x-api-key"`, `"cookie.session"`, `"user_agent"`, `"user"`. A request without the fact, or with several values of
        /// it, counts for its client.
        key: OneOrMore<LimitFact> = OneOrMore(vec![not_given(LimitFact("client".to_owned()))]),
        /// The requests in a time: `"100/s"`, `"10/5s"`, `"600/m"`, `"1000/h"`. Others get 429. With a unit of size, as `"500mb/h"`, the
        /// bytes of the bodies of responses; who has sent for them all is refused.
        rate: RateText,
        /// The requests in an hour, a day or a month of the calendar, in place of a rate: `"10000/day"`, or `"100gb/month"` for the bytes of the bodies of
        /// responses. Windows begin at minute 0, at midnight or on the first of the month, in the `time_zone` of `[global]`. What was used is stored in
        /// `state_folder` about once a second, so that it outlasts a restart and a crash.
        quota: QuotaText,
        /// Which responses the `rate` or the `quota` counts, in place of requests: `"status in [401, 403]"` are log-ins that failed. The request after the
        /// last one that is allowed is refused.
        count: When,
        /// The requests that the limit is for, as a condition; without it, it is for all: `when = 'method == "POST"'`. Others pass, and are not
        /// counted.
        when: When,
        /// How many requests may come at once before the rate applies. By default the requests of `rate`; 1 spreads them evenly.
        burst: Int<1, 1_000_000_000>,
        /// How long requests beyond `burst` may wait for their time in place of being refused, in seconds.
        delay: Seconds<0, 3600> = Seconds::new(0),
        /// Other rates or quotas for some values of the key, as the plans of API keys: `{ key-of-ada = "1000/s" }`. A request with another
        /// value then counts for its client, so that nobody gains by making up keys.
        /// `{ file = "plans.txt" }` has them in a file, which is read again when it changes: a value, a space and a rate on each line, without what is behind `#`.
        tiers: LimitTiers = LimitTiers::default(),
        /// How many requests there may be at once, in place of a rate. A request counts until its response was sent. Others get 503.
        concurrent: Int<1, 1_000_000>,
        /// How many more requests may wait for a place. Clients take turns, and in a full queue a client with many requests
        /// makes room for one with few.
        queue: Int<0, 100_000> = Int(0),
        /// How long a request may wait in the queue, in seconds.
        queue_timeout: Time<3600> = Time::new(10),
        /// The bytes per second that bodies with the same key share, in place of a rate: `"1mb/s"`, `"500kb/s"`. Nothing is refused.
        bandwidth: BandwidthText,
        /// Which bodies have this `bandwidth`.
        direction: BodyDirection = BodyDirection::Response,
        /// The bytes at the beginning of each body that `bandwidth` does not limit: `"10mb"`.
        after: Bytes<0, 1_099_511_627_776> = Bytes::new(0),
        /// About how many values of the key are remembered, with 18 bytes each. Beyond it, those that come least are forgotten.
        keys: Int<1, 100_000_000> = Int(100_000),
        /// For how long a client is banned that was refused `ban_after` times, and longer if it was banned before, as `[global.bans]` says.
        /// For limits by `"client"`. Refusals are forgotten within ten minutes.
        ban: Time<YEAR>,
        /// The refusal of a client that leads to its `ban`.
        ban_after: Int<1, 1_000_000> = Int(10),
        /// The status of refusals. By default 429 for a `rate` or a `quota`, and 503 for `concurrent`.
        status: RefusalStatus,
        /// Whether it only counts and logs what it would do.
        dry_run: bool = false,
        /// Whether it applies only to requests for which a rule names it: `limit = "name"`.
        by_rules: bool = false,
        /// Whether it applies. A location can turn a limit of its site off by its name, and a site one of `[global]`.
        enabled: bool = true,
    }
}
