//! The headers of a request for an origin (RFC 9110 section 7.6).

use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;

use apus_http::{FieldSet, Headers, KnownField, Request, Version, list};
use smallvec::SmallVec;

/// The name of this server in `Via`.
const PSEUDONYM: &str = "apus";

/// The number of `Via` members of this server from which on a request is taken to be in a loop.
const MAX_HOPS: usize = 8;

/// Which headers an origin gets about the client.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`, `X-Forwarded-Port` and `X-Real-IP`.
    pub x_forwarded: bool,
    /// `Forwarded` (RFC 7239).
    pub forwarded: bool,
    /// `Via` (RFC 9110 section 7.6.3).
    pub via: bool,
    /// Whether headers with an underscore in their name are forwarded. CGI maps `X_Real_IP` and `X-Real-IP` to
    /// the same variable, so they could replace a header that was checked.
    pub underscores: bool,
    /// The protocols that a client may switch to (RFC 9110 section 7.8), in lower case. A switch to another HTTP
    /// version, for example, would bypass locations, limits and the cache.
    pub upgrades: Vec<Box<str>>,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self {
            x_forwarded: true,
            forwarded: false,
            via: true,
            underscores: false,
            upgrades: vec!["websocket".into()],
        }
    }
}

/// The error for a request that went through this server too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxyLoop;

/// The fields that are not always forwarded, or that tell of hops.
const EXAMINED: FieldSet = FieldSet::IDENTITY
    .with(KnownField::Internal)
    .with(KnownField::Proxy)
    .with(KnownField::Underscored)
    .with(KnownField::Via);

/// Takes the headers out of a request, and makes them those for the origin. Fields that a codec writes from
/// other data are left in them.
pub(super) fn take(request: &mut Request, forwarding: &Forwarding) -> Result<Headers, ProxyLoop> {
    // Identity fields that are still there were not sent by the client.
    let takes_identity = request.are_identity_fields_removed();
    let prepared = ClientHeaders::of(request, forwarding);
    let (mut hops, mut has_own) = (0, false);
    let mut headers = std::mem::take(request.headers_mut());
    // Few requests have any of them.
    if headers.has_any(EXAMINED) {
        headers.retain_fields(|field, name, value| match field {
            KnownField::Proxy => false,
            KnownField::Via => {
                hops += list::members(value)
                    .filter(|member| member.ends_with(PSEUDONYM.as_bytes()))
                    .count();
                has_own = true;
                true
            }
            field if FieldSet::IDENTITY.has(field) => {
                has_own |= takes_identity;
                takes_identity && (forwarding.underscores || !name.contains(&b'_'))
            }
            KnownField::Internal | KnownField::Underscored => {
                forwarding.underscores || !name.contains(&b'_')
            }
            _ => true,
        });
    }
    if hops >= MAX_HOPS {
        return Err(ProxyLoop);
    }
    if has_own {
        prepared.append_missing(&mut headers)
    } else {
        headers.append_from(&prepared.headers, |_, _| true)
    }
    Ok(headers)
}

/// Returns the protocol that the client offers to switch to, if that is allowed. An offer of several protocols
/// is ignored.
pub(super) fn upgrade(request: &Request, forwarding: &Forwarding) -> Option<Box<str>> {
    let offered = request.upgrade()?;
    let mut upgrades = forwarding.upgrades.iter();
    let is_allowed = upgrades.any(|allowed| allowed.eq_ignore_ascii_case(offered));
    is_allowed.then(|| offered.into())
}

/// The headers about the client. Most requests of a connection have the same.
struct ClientHeaders {
    headers: Headers,
    authority: Box<str>,
    version: Version,
    is_secure: bool,
    wanted: [bool; 3],
}

impl ClientHeaders {
    /// Returns the headers for a request. If they equal the headers of the connection's last request, they are shared
    /// with it.
    fn of(request: &Request, forwarding: &Forwarding) -> Rc<Self> {
        let make = || Self::new(request, forwarding);
        if request.is_forwarded() {
            return Rc::new(make());
        }
        let is_current = |kept: &Self| {
            *kept.authority == *request.authority().unwrap_or_default()
                && kept.version == request.version()
                && kept.is_secure == request.is_secure()
                && kept.wanted == wanted(forwarding)
        };
        request.connection().kept.get_or_make(is_current, make)
    }

    fn new(request: &Request, forwarding: &Forwarding) -> Self {
        let mut headers = Headers::new();
        // The values consist of checked parts, so they are valid.
        let mut add = |name: &'static str, value: &[u8]| headers.push(name.as_bytes(), value);
        if forwarding.x_forwarded {
            if let Some(ip) = request.client().ip {
                let mut list = format_address(ip);
                add("x-real-ip", &list);
                for proxy in request.proxies() {
                    list.extend_from_slice(b", ");
                    list.extend_from_slice(&format_address(*proxy));
                }
                add("x-forwarded-for", &list);
            }
            add("x-forwarded-proto", request.scheme().as_bytes());
            if let Some(host) = request.authority() {
                add("x-forwarded-host", host.as_bytes());
            }
            if let Some(number) = request.port() {
                let mut port = ShortText::new();
                push_decimal(number, &mut port);
                add("x-forwarded-port", &port);
            }
        }
        if forwarding.forwarded {
            add("forwarded", forwarded(request).as_bytes());
        }
        if forwarding.via {
            add(
                "via",
                match request.version() {
                    Version::HTTP_10 => b"1.0 apus",
                    Version::HTTP_2 => b"2.0 apus",
                    Version::HTTP_3 => b"3.0 apus",
                    _ => b"1.1 apus",
                },
            );
        }
        Self {
            headers,
            authority: request.authority().unwrap_or_default().into(),
            version: request.version(),
            is_secure: request.is_secure(),
            wanted: wanted(forwarding),
        }
    }

    /// Adds the headers to a request that has some already: a header that the site sets itself stays as it
    /// is, and `Via` gets one more member.
    fn append_missing(&self, to: &mut Headers) {
        for (name, value) in self.headers.iter() {
            if name == "via" {
                append_to_list(to, name, value);
            } else if !to.contains(name) {
                to.push(name.as_bytes(), value);
            }
        }
    }
}

/// Returns which headers about the client the settings want.
fn wanted(forwarding: &Forwarding) -> [bool; 3] {
    [forwarding.x_forwarded, forwarding.forwarded, forwarding.via]
}

/// A text that is mostly as short as an address.
pub type ShortText = SmallVec<[u8; 48]>;

/// Formats an address. IPv4 addresses, the most frequent ones, need no `fmt` machinery.
pub fn format_address(address: IpAddr) -> ShortText {
    let mut text = ShortText::new();
    match address {
        IpAddr::V4(address) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    text.push(b'.');
                }
                push_decimal(octet.into(), &mut text);
            }
        }
        IpAddr::V6(address) => text.extend_from_slice(address.to_string().as_bytes()),
    }
    text
}

/// Appends a number in decimal digits.
pub fn push_decimal(number: u16, text: &mut ShortText) {
    let digits = [10_000, 1000, 100, 10, 1].map(|unit| b'0' + (number / unit % 10) as u8);
    let zeros = digits.iter().take(4).take_while(|digit| **digit == b'0');
    text.extend_from_slice(digits.get(zeros.count()..).unwrap_or_default());
}

/// Returns the value of `Forwarded` (RFC 7239 section 4): an element for the client, and one for each trusted
/// proxy that the request came through.
fn forwarded(request: &Request) -> String {
    let node = |ip: IpAddr| match ip {
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
        IpAddr::V4(ip) => format!("for={ip}"),
    };
    let mut list = request.client().ip.map_or("for=unknown".to_owned(), node);
    if let Some(host) = request.authority() {
        // An authority has no quote and no backslash.
        let _ = write!(list, ";host=\"{host}\"");
    }
    let _ = write!(list, ";proto={}", request.scheme());
    for proxy in request.proxies() {
        let _ = write!(list, ", {}", node(*proxy));
    }
    list
}

/// Appends a member to a list field.
fn append_to_list(to: &mut Headers, name: &str, member: &[u8]) {
    let mut list = Vec::new();
    for value in to.get_all(name) {
        list.extend_from_slice(value);
        list.extend_from_slice(b", ");
    }
    // Valid values joined by commas are valid.
    if list.is_empty() {
        to.push(name.as_bytes(), member);
    } else {
        list.extend_from_slice(member);
        let _ = to.try_insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::rc::Rc;

    use apus_http::{
        Body, ConnectionInfo, Extensions, FieldSet, Method, Peer, RequestParts, Target,
        TrustedProxies,
    };

    use super::*;

    fn request(lines: &[(&str, &str)]) -> Request {
        let mut headers = Headers::new();
        for (name, value) in lines {
            headers.try_append(name, value).unwrap();
        }
        let address = |text: &str| Peer::Ip(text.parse::<SocketAddr>().unwrap());
        Request::new(RequestParts {
            method: Method::GET,
            target: Target::parse(&Method::GET, "/").unwrap(),
            version: Version::HTTP_11,
            headers,
            body: Body::Empty,
            connection: Rc::new(ConnectionInfo {
                kept: apus_http::KeptValue::default(),
                id: 1,
                peer: address("192.0.2.7:999"),
                local: address("198.51.100.1:8080"),
                tls: None,
            }),
            extensions: Extensions::new(),
        })
    }

    fn text(headers: &Headers) -> String {
        let mut written = Vec::new();
        headers.write_without(FieldSet::REQUEST_FRAMING, &mut written);
        String::from_utf8(written).unwrap()
    }

    fn fields(mut request: Request, forwarding: &Forwarding) -> Result<Headers, ProxyLoop> {
        take(&mut request, forwarding)
    }

    #[test]
    fn does_not_forward_hop_by_hop_headers() {
        let request = request(&[
            ("host", "a"),
            ("connection", "keep-alive, X-Hop, upgrade"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "gzip, trailers"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("transfer-encoding", "chunked"),
            ("proxy", "evil"),
            ("accept", "*/*"),
        ]);
        let only = Forwarding {
            x_forwarded: false,
            via: false,
            ..Forwarding::default()
        };
        let headers = fields(request, &only).unwrap();
        assert_eq!(text(&headers), "accept: */*\r\n");
    }

    #[test]
    fn switches_only_to_protocols_of_the_configuration() {
        let connection = ("connection", "upgrade, http2-settings");
        for (offered, sent) in [
            ("websocket", Some("websocket")),
            ("WebSocket", Some("WebSocket")),
            ("WebSocket, h2c", None),
            ("h2c", None),
            ("h2c, TLS/1.3", None),
        ] {
            let request = request(&[connection, ("upgrade", offered), ("http2-settings", "AAM")]);
            let found = upgrade(&request, &Forwarding::default());
            assert_eq!(found.as_deref(), sent, "{offered}");
        }
        assert_eq!(
            upgrade(
                &request(&[("upgrade", "websocket")]),
                &Forwarding::default()
            ),
            None
        );
    }

    #[test]
    fn replaces_identity_headers_of_untrusted_clients() {
        let lines = [
            ("host", "a.example"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x_forwarded_for", "127.0.0.1"),
            ("x-forwarded_proto", "https"),
            ("x.real.ip", "127.0.0.1"),
            ("x-real-ip", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1"),
            ("true-client-ip", "127.0.0.1"),
            ("x-original-url", "/admin"),
        ];
        let both = Forwarding {
            forwarded: true,
            ..Forwarding::default()
        };
        let headers = fields(request(&lines), &both).unwrap();
        assert_eq!(
            text(&headers),
            "x-real-ip: 192.0.2.7\r\n\
             x-forwarded-for: 192.0.2.7\r\n\
             x-forwarded-proto: http\r\n\
             x-forwarded-host: a.example\r\n\
             x-forwarded-port: 80\r\n\
             forwarded: for=192.0.2.7;host=\"a.example\";proto=http\r\n\
             via: 1.1 apus\r\n"
        );
    }

    #[test]
    fn rewrites_identity_headers_of_trusted_proxies() {
        let mut request = request(&[
            ("host", "inner"),
            ("x-forwarded-for", "127.0.0.1, 203.0.113.5, 192.0.2.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "A.example"),
            ("x_forwarded_for", "127.0.0.1"),
            ("x-real-ip", "127.0.0.1"),
            ("cf-connecting-ip", "203.0.113.5"),
            ("via", "1.0 fred"),
        ]);
        let proxies = TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]);
        proxies.pass("cf-connecting-ip").establish(&mut request);
        let both = Forwarding {
            forwarded: true,
            underscores: true,
            ..Forwarding::default()
        };
        let headers = fields(request, &both).unwrap();
        assert_eq!(
            text(&headers),
            "cf-connecting-ip: 203.0.113.5\r\n\
             x-real-ip: 203.0.113.5\r\n\
             x-forwarded-for: 203.0.113.5, 192.0.2.9, 192.0.2.7\r\n\
             x-forwarded-proto: https\r\n\
             x-forwarded-host: a.example\r\n\
             x-forwarded-port: 443\r\n\
             forwarded: for=203.0.113.5;host=\"a.example\";proto=https, for=192.0.2.9, for=192.0.2.7\r\n\
             via: 1.0 fred, 1.1 apus\r\n"
        );
    }

    #[test]
    fn keeps_identity_headers_that_the_site_sets() {
        let mut request = request(&[("x-forwarded-proto", "evil")]);
        TrustedProxies::default().establish(&mut request);
        request
            .headers_mut()
            .try_insert("x-forwarded-proto", "https")
            .unwrap();
        let headers = fields(request, &Forwarding::default()).unwrap();
        let values: Vec<_> = headers.get_all("x-forwarded-proto").collect();
        assert_eq!(values, [b"https"]);
    }

    #[test]
    fn forwards_names_with_underscores_if_configured() {
        let lines = [("under_score", "1")];
        let headers = fields(request(&lines), &Forwarding::default()).unwrap();
        assert!(!headers.contains("under_score"));
        let wanted = Forwarding {
            underscores: true,
            ..Forwarding::default()
        };
        let headers = fields(request(&lines), &wanted).unwrap();
        assert!(headers.contains("under_score"));
    }

    /// The headers about the client are kept for the requests of a connection, which may differ in all that
    /// these headers tell.
    #[test]
    fn requests_of_one_connection_get_their_own_headers_about_the_client() {
        let first = request(&[("host", "a.example")]);
        let connection = Rc::clone(first.connection());
        let again = |host: &str, version: Version| {
            let mut headers = Headers::new();
            headers.try_append("host", host).unwrap();
            headers
                .try_append("x-forwarded-for", "203.0.113.5")
                .unwrap();
            Request::new(RequestParts {
                method: Method::GET,
                target: Target::parse(&Method::GET, "/").unwrap(),
                version,
                headers,
                body: Body::Empty,
                connection: Rc::clone(&connection),
                extensions: Extensions::new(),
            })
        };
        let all = Forwarding {
            forwarded: true,
            ..Forwarding::default()
        };
        let none = Forwarding {
            x_forwarded: false,
            via: false,
            ..Forwarding::default()
        };
        let written =
            |request: Request, forwarding: &Forwarding| text(&fields(request, forwarding).unwrap());
        let of_first = written(first, &all);
        assert!(of_first.contains("x-forwarded-host: a.example\r\n"));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let other = written(again("b.example:81", version), &all);
            assert!(!other.contains("a.example"), "{other}");
            assert!(other.contains("x-forwarded-port: 81\r\n"), "{other}");
            let via = match version {
                Version::HTTP_2 => "via: 2.0 apus\r\n",
                _ => "via: 1.1 apus\r\n",
            };
            assert!(other.ends_with(via), "{other}");
            assert_eq!(written(again("b.example:81", version), &none), "");
        }
        let mut forwarded = again("a.example", Version::HTTP_11);
        TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]).establish(&mut forwarded);
        let forwarded = written(forwarded, &all);
        assert!(
            forwarded.contains("x-real-ip: 203.0.113.5\r\n"),
            "{forwarded}"
        );
        assert_eq!(
            written(again("a.example", Version::HTTP_11), &all),
            of_first
        );
    }

    #[test]
    fn formats_numbers_and_addresses_as_fmt_does() {
        for number in [0, 9, 10, 80, 105, 8080, 10_000, u16::MAX] {
            let mut text = ShortText::new();
            push_decimal(number, &mut text);
            assert_eq!(*text, *number.to_string().as_bytes());
        }
        for text in ["0.0.0.0", "192.0.2.100", "255.255.255.255", "2001:db8::1"] {
            assert_eq!(*format_address(text.parse().unwrap()), *text.as_bytes());
        }
    }

    #[test]
    fn rejects_a_request_in_a_loop() {
        let hops = ["1.1 apus"; MAX_HOPS].join(", ");
        assert!(fields(request(&[("via", &hops)]), &Forwarding::default()).is_err());
        let hops = ["1.1 other"; 2 * MAX_HOPS].join(", ");
        assert!(fields(request(&[("via", &hops)]), &Forwarding::default()).is_ok());
    }
}
