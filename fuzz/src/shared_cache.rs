//! One cache for several clients, in front of an origin that responds by what it received.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus::{
    Body, BodyError, BodyStream, ConnectionInfo, Frame, Headers, Method, Peer, Request, Response,
    ResponseFuture, ServiceFactory, StatusCode, Target, Version, service_fn,
};
use apus_cache::policy::{CacheNamePattern, KeyHostRule, KeyQueryRule};
use apus_cache::service::{Cache, CacheSettings, CachedService};
use apus_cache::store::StoreSettings;
use apus_http::{Network, RequestParts, TlsInfo, TlsVersion, TrustedProxies, is_identity_field};
use bytes::Bytes;

/// What the last client gets is the same whether others came before it or not, whatever they sent.
///
/// The first line is the configuration. Each line that starts with `>` begins a request, as
/// `> GET /a?b tls h2 proxy`; the lines behind it are its fields, and `= text` is its body. The response of the origin contains
/// everything that distinguishes responses under this configuration, read as applications read it: names in
/// queries and cookies are decoded. If it depends on something that is not in the key, such as a body or the
/// name of another method, it must not be stored.
pub fn shared_cache(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let site = Site::read(lines.next().unwrap_or_default());
    let mut clients: Vec<Client<'_>> = Vec::new();
    for line in lines {
        match (line.strip_prefix('>'), clients.last_mut()) {
            (Some(line), _) => clients.push(Client::read(line)),
            (None, Some(client)) => client.add(line),
            (None, None) => {}
        }
    }
    clients.truncate(4);
    let Some((last, _)) = clients.split_last() else {
        return;
    };
    if !last.is_comparable() {
        return;
    }
    let alone = site.last_response(std::slice::from_ref(last));
    let after_others = site.last_response(&clients);
    assert_eq!(
        alone, after_others,
        "a client is sent what another one caused"
    );
}

/// The address of the trusted proxy, and the address of other clients.
const PROXY: &str = "192.0.2.9";
const STRANGER: &str = "192.0.2.7";

/// The configuration of the cache and of the origin behind it.
#[derive(Clone, Default)]
struct Site {
    settings: CacheSettings,
    /// The parameters that `query` and `except` name.
    parameters: Vec<String>,
    /// The fields that `Vary` of its responses names.
    vary: Vec<String>,
    bypass_cookies: Vec<String>,
    session_cookies: Vec<String>,
    /// Whether names are read as PHP does, in which some characters become an underscore.
    is_php: bool,
    /// Whether `;` separates the parameters of a query, too.
    splits_at_semicolons: bool,
    sets_cookies: bool,
    /// Whether trusted proxies send the addresses of their clients in `Forwarded`.
    is_forwarded: bool,
}

impl Site {
    /// Reads words as `query=id,a_b`, `except=utm`, `headers=x-tenant`, `cookies=lang`, `vary=x-language`,
    /// `bypass=preview`, `sessions=sid`, `host`, `scheme`, `sort`, `php`, `semicolons`, `set-cookie`,
    /// `forwarded`.
    fn read(line: &str) -> Self {
        let mut site = Self::default();
        for word in line.split(' ') {
            let (word, names) = word.split_once('=').unwrap_or((word, ""));
            let names: Vec<String> = names
                .split(',')
                .filter(is_name)
                .map(str::to_owned)
                .collect();
            let lower = || names.iter().map(|name| name.to_ascii_lowercase());
            let patterns = || {
                names
                    .iter()
                    .map(|name| CacheNamePattern::new(name))
                    .collect()
            };
            let rules = &mut site.settings.rules;
            match word {
                "query" => {
                    rules.key.query = KeyQueryRule::Only(patterns());
                    site.parameters = names;
                }
                "except" => {
                    rules.key.query = KeyQueryRule::Except(patterns());
                    site.parameters = names;
                }
                "headers" => {
                    rules.key.headers = lower()
                        .filter(|name| is_plain(name))
                        .map(Into::into)
                        .collect()
                }
                "cookies" => rules.key.cookies = names.iter().map(|name| (**name).into()).collect(),
                "vary" => site.vary = lower().filter(|name| is_plain(name)).collect(),
                "bypass" => {
                    site.settings.bypass_cookies = patterns();
                    site.bypass_cookies = names;
                }
                "sessions" => {
                    rules.credentials.session_cookies = patterns();
                    site.session_cookies = names;
                }
                "host" => rules.key.host = KeyHostRule::Named("all".into()),
                "scheme" => rules.key.scheme = false,
                "sort" => rules.key.sort_query = true,
                "php" => site.is_php = true,
                "semicolons" => site.splits_at_semicolons = true,
                "set-cookie" => site.sets_cookies = true,
                "forwarded" => site.is_forwarded = true,
                _ => {}
            }
        }
        site
    }

    /// What the last of these clients gets from a cache that is empty when the first one comes.
    fn last_response(&self, clients: &[Client<'_>]) -> Option<Received> {
        thread_local! {
            static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime");
        }
        let origin = self.clone();
        let service = CachedService::new(
            &Cache::new(StoreSettings::default()),
            "site",
            self.settings.clone(),
            move || {
                let origin = origin.clone();
                service_fn(move |request| ResponseFuture::from(origin.respond(request)))
            },
        )
        .service();
        RUNTIME.with(|runtime| {
            tokio::task::LocalSet::new().block_on(runtime, async {
                let mut received = None;
                for client in clients {
                    received = match client.request() {
                        Some(mut request) => {
                            self.proxies().establish(&mut request);
                            Some(Received::read(client, service.call(request).wait().await).await)
                        }
                        None => None,
                    };
                }
                received
            })
        })
    }

    /// The trusted proxies.
    fn proxies(&self) -> TrustedProxies {
        let trusted = TrustedProxies::new(PROXY.parse::<Network>());
        if self.is_forwarded {
            trusted.forwarded()
        } else {
            trusted
        }
    }

    /// The response of the origin: its body says what the origin responds by.
    fn respond(&self, mut request: Request) -> Response {
        let mut text = self.facts(&request);
        let tag = hash(&text);
        let _ = write!(text, "body={:?}", read_at_once(request.body_mut()));
        let mut response = Response::text(StatusCode::OK, text.clone());
        let headers = response.headers_mut();
        let mut set = |name: &str, value: &str| {
            let _ = headers.try_insert(name, value);
        };
        set("cache-control", "max-age=600");
        set("etag", &format!("\"{tag:x}\""));
        set("x-received", &text.escape_default().to_string());
        if !self.vary.is_empty() {
            set("vary", &self.vary.join(", "));
        }
        if self.sets_cookies {
            let sent: Vec<_> = request.headers().iter().collect();
            set(
                "set-cookie",
                &format!("id={:x}", hash(&format!("{sent:?}"))),
            );
        }
        if *request.method() == Method::HEAD {
            response.take_body();
        }
        response
    }

    /// All that the response of the origin depends on, except the body.
    fn facts(&self, request: &Request) -> String {
        let key = &self.settings.rules.key;
        let headers = request.headers();
        let mut facts = String::new();
        let mut add = |what: &str, value: &str| {
            let _ = write!(facts, "{what}={value:?} ");
        };
        if key.scheme {
            add("scheme", request.scheme());
        }
        if key.host == KeyHostRule::Requested {
            add("host", request.authority().unwrap_or_default());
            if key.scheme {
                add("port", &format!("{:?}", request.port()));
            }
        }
        add("path", request.path());
        add("query", &self.parameters(request.query()));
        let named = key.headers.iter().map(|name| &**name);
        for name in named.chain(self.vary.iter().map(String::as_str)) {
            add(name, &joined(headers, name));
        }
        for (name, value) in headers.iter().filter(|(name, _)| is_identity_field(name)) {
            add(name, &String::from_utf8_lossy(value));
        }
        let cookies = self.cookies(headers);
        for (name, value) in &cookies {
            if key.cookies.iter().any(|named| **named == **name) {
                add("cookie", value);
            }
            if self.session_cookies.contains(name) {
                add("session", value);
            }
            if self.bypass_cookies.contains(name) {
                add("draft", name);
            }
        }
        for name in [
            "authorization",
            "x-http-method-override",
            "x-http-method",
            "x-method-override",
        ] {
            if headers.contains(name) {
                add(name, &joined(headers, name));
            }
        }
        facts
    }

    /// What the origin reads of a query: parameters that count, with decoded names.
    fn parameters(&self, query: Option<&str>) -> String {
        let key = &self.settings.rules.key;
        let query = query.unwrap_or_default();
        if key.query == KeyQueryRule::All && !key.sort_query {
            return query.to_owned();
        }
        let split = |at: char| at == '&' || self.splits_at_semicolons && at == ';';
        let mut found: Vec<(String, &str)> = query
            .split(split)
            .map(|part| part.split_once('=').unwrap_or((part, "")))
            .map(|(name, value)| (self.name(name), value))
            .filter(|(name, _)| match &key.query {
                KeyQueryRule::All => true,
                KeyQueryRule::Ignored => false,
                KeyQueryRule::Only(_) => self.parameters.contains(name),
                KeyQueryRule::Except(_) => !self.parameters.contains(name),
            })
            .collect();
        if key.sort_query {
            found.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        format!("{found:?}")
    }

    fn cookies<'a>(&self, headers: &'a Headers) -> Vec<(String, &'a str)> {
        headers
            .get_all("cookie")
            .filter_map(|line| std::str::from_utf8(line).ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|part| part.trim().split_once('='))
            .map(|(name, value)| (self.name(name.trim()), value))
            .collect()
    }

    /// A name as applications read it.
    fn name(&self, name: &str) -> String {
        let decoded = decode(name);
        if self.is_php {
            decoded
                .trim_start_matches(' ')
                .replace([' ', '.', '['], "_")
        } else {
            decoded
        }
    }
}

fn is_name(name: &&str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(is_word)
}

/// Whether a field means nothing to the cache, and is of no client: its values are compared as they are.
fn is_plain(name: &str) -> bool {
    name.starts_with("x-") && !name.starts_with("x-forwarded") && !name.contains('_')
}

/// The values of a field as one (RFC 9110 section 5.3), without the white space around commas.
fn joined(headers: &Headers, name: &str) -> String {
    let lines: Vec<_> = headers.get_all(name).map(String::from_utf8_lossy).collect();
    let members: Vec<_> = lines
        .iter()
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .collect();
    members.join(",")
}

/// Decodes `%` and `+`.
fn decode(text: &str) -> String {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        let hex = |at: usize| {
            behind
                .get(at)
                .and_then(|byte| char::from(*byte).to_digit(16))
        };
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            (b'+', ..) => decoded.push(b' '),
            _ => decoded.push(*first),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A request before it is built.
struct Client<'a> {
    method: &'a str,
    target: &'a str,
    is_secure: bool,
    /// Whether it came through a trusted proxy.
    is_proxied: bool,
    /// Whether the body comes without a length, as over HTTP/2.
    has_no_length: bool,
    fields: Vec<(&'a str, &'a str)>,
    body: Option<&'a str>,
}

impl<'a> Client<'a> {
    fn read(line: &'a str) -> Self {
        let mut words = line.split_ascii_whitespace();
        let method = words.next().unwrap_or("GET");
        let target = words.next().unwrap_or("/");
        let flags: Vec<_> = words.collect();
        Self {
            method,
            target,
            is_secure: flags.contains(&"tls"),
            is_proxied: flags.contains(&"proxy"),
            has_no_length: flags.contains(&"h2"),
            fields: Vec::new(),
            body: None,
        }
    }

    fn add(&mut self, line: &'a str) {
        match (line.strip_prefix("= "), line.split_once(':')) {
            (Some(body), _) => self.body = Some(body),
            (None, Some((name, value))) => self.fields.push((name.trim(), value.trim())),
            (None, None) => {}
        }
    }

    /// Whether its response depends on nothing but what the origin would say: parts, conditions and
    /// `only-if-cached` are about what is stored.
    fn is_comparable(&self) -> bool {
        !self.fields.iter().any(|(name, value)| {
            let name = name.to_ascii_lowercase();
            name == "range"
                || name.starts_with("if-")
                || value.to_ascii_lowercase().contains("only-if-cached")
        })
    }

    /// The request, if it is valid.
    fn request(&self) -> Option<Request> {
        let method = Method::from_bytes(self.method.as_bytes()).ok()?;
        let target = Target::parse(&method, self.target).ok()?;
        let mut headers = Headers::new();
        for (name, value) in &self.fields {
            let name = name.to_ascii_lowercase();
            headers.try_append(&name, value).ok()?;
        }
        if !headers.contains("host") {
            headers.try_append("host", "localhost").ok()?;
        }
        headers.remove("content-length");
        let body = match self.body {
            None => Body::Empty,
            Some(text) if self.has_no_length => Body::stream(Unannounced(Some(text.to_owned()))),
            Some(text) => {
                let length = text.len().to_string();
                headers.try_append("content-length", &length).ok()?;
                Body::from(text.to_owned())
            }
        };
        let address = if self.is_proxied { PROXY } else { STRANGER };
        let address = address.parse().expect("an address");
        Some(Request::new(RequestParts {
            method,
            target,
            version: if self.has_no_length {
                Version::HTTP_2
            } else {
                Version::HTTP_11
            },
            headers,
            body,
            connection: Rc::new(ConnectionInfo {
                kept: apus_http::KeptValue::default(),
                id: 1,
                peer: Peer::Ip(SocketAddr::new(address, 50_000)),
                local: Peer::Ip(SocketAddr::from(([192, 0, 2, 1], 80))),
                tls: self.is_secure.then(|| TlsInfo {
                    version: TlsVersion::Tls13,
                    cipher: "TLS13_AES_128_GCM_SHA256",
                    alpn: None,
                    fingerprint: None,
                    server_name: None,
                    certificate_names: [].into(),
                    client_certificate: None,
                }),
            }),
            extensions: Default::default(),
        }))
    }
}

/// A body without a field that announces it.
struct Unannounced(Option<String>);

impl BodyStream for Unannounced {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::Data(text.into()))))
    }
}

/// The body of a request that is available at once.
fn read_at_once(body: &mut Body) -> String {
    let mut bytes = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = body.poll_frame(&mut context) {
        if let Frame::Data(data) = frame {
            bytes.extend_from_slice(&data);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a client gets, but for what says when it was made and whether it was stored.
#[derive(Debug, PartialEq)]
struct Received {
    status: StatusCode,
    fields: Vec<(String, Bytes)>,
    body: Bytes,
}

impl Received {
    async fn read(client: &Client<'_>, mut response: Response) -> Self {
        let mut body = response.take_body();
        let mut bytes = Vec::new();
        while let Some(Ok(frame)) = std::future::poll_fn(|cx| body.poll_frame(cx)).await {
            if let Frame::Data(data) = frame {
                bytes.extend_from_slice(&data);
            }
        }
        if client.method == "HEAD" {
            bytes.clear();
        }
        let mut fields: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), Bytes::copy_from_slice(value)))
            .filter(|(name, _)| {
                let name = name.as_str();
                !matches!(
                    name,
                    "age" | "date" | "cache-status" | "content-length" | "accept-ranges"
                )
            })
            .collect();
        fields.sort();
        Self {
            status: response.status(),
            fields,
            body: bytes.into(),
        }
    }
}
