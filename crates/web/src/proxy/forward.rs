//! The fields of a request on its way to an origin (RFC 9110 section 7.6): what belongs to the
//! client's connection stays behind, and nobody says who the client is but we.

use std::fmt::Write;
use std::net::IpAddr;

use apus_http::{Headers, Peer, Request, Version};
use apus_net::Network;
use smallvec::SmallVec;

/// Our name in `Via`.
const PSEUDONYM: &str = "apus";

/// A request that came through us so often goes in a circle.
const MAX_HOPS: usize = 8;

/// Which fields tell an origin about the client.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`, `X-Forwarded-Port` and `X-Real-IP`.
    pub x_forwarded: bool,
    /// `Forwarded` (RFC 7239).
    pub forwarded: bool,
    /// `Via` (RFC 9110 section 7.6.3).
    pub via: bool,
    /// Whether fields are sent on whose names hold an underscore. Many applications take them for
    /// those with a hyphen, which somebody may have checked.
    pub underscores: bool,
    /// Proxies in front of us, whose word about the client is added to rather than replaced.
    pub trusted: Vec<Network>,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self {
            x_forwarded: true,
            forwarded: false,
            via: true,
            underscores: false,
            trusted: Vec::new(),
        }
    }
}

/// The request went through this server too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Circle;

/// What is told apart from the end-to-end fields.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// The protocols of `Upgrade`, if the client asks for one of them.
    pub(super) upgrade: Option<Box<str>>,
    /// Whether the client takes trailers.
    pub(super) te_trailers: bool,
    /// Whether the client waits for a 100 before it sends the content.
    pub(super) expects_continue: bool,
}

/// The end-to-end fields for the origin, and what was among the others.
pub(super) fn fields(
    request: &Request,
    forwarding: &Forwarding,
) -> Result<(Headers, Aside), Circle> {
    let from = request.headers();
    let connection = request.connection();
    let is_trusted = forwarding
        .trusted
        .iter()
        .any(|network| network.contains(&connection.peer));
    let mut named: SmallVec<[&[u8]; 4]> = SmallVec::new();
    for value in from.get_all("connection") {
        named.extend(members(value));
    }
    let asks_to_upgrade = named
        .iter()
        .any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let mut aside = Aside::default();
    let mut hops = 0;
    let mut to = Headers::with_capacity(from.wire().len() + 256);
    to.append_from(from, |name, value| {
        match name {
            "host" | "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding"
            | "content-length" | "http2-settings" | "proxy" => return false,
            "upgrade" => {
                if asks_to_upgrade && aside.upgrade.is_none() {
                    aside.upgrade = std::str::from_utf8(value).ok().map(Into::into);
                }
                return false;
            }
            "te" => {
                aside.te_trailers |=
                    members(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
                return false;
            }
            "expect" => {
                aside.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
                return false;
            }
            "via" => {
                hops += members(value)
                    .filter(|member| member.ends_with(PSEUDONYM.as_bytes()))
                    .count();
            }
            _ => {}
        }
        if tells_of_client(name) {
            // With underscores nobody means well.
            return is_trusted && !name.contains('_');
        }
        (forwarding.underscores || !name.contains('_'))
            && !named
                .iter()
                .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    });
    if hops >= MAX_HOPS {
        return Err(Circle);
    }
    let telling = Telling {
        request,
        forwarding,
        is_trusted,
    };
    telling.tell(&mut to);
    Ok((to, aside))
}

/// Whether origins may take the field for what we know of the client.
pub(crate) fn tells_of_client(name: &str) -> bool {
    let Some(first) = name.bytes().next() else {
        return false;
    };
    if !matches!(first, b'f' | b'x' | b't' | b'c') {
        return false;
    }
    let is = |known: &str| {
        name.len() == known.len()
            && name.bytes().zip(known.bytes()).all(|(byte, known)| {
                byte == known || (matches!(byte, b'_' | b'.') && known == b'-')
            })
    };
    [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-server",
        "x-host",
        "x-original-host",
        "x-backend-host",
        "x-http-host-override",
        "x-forwarded-ssl",
        "x-forwarded-scheme",
        "x-forwarded-prefix",
        "x-forwarded",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-original-forwarded-for",
        "true-client-ip",
        "client-ip",
    ]
    .iter()
    .any(|known| is(known))
}

/// What we know of the client, to be told.
struct Telling<'a> {
    request: &'a Request,
    forwarding: &'a Forwarding,
    /// Whether there may be fields of a proxy in front of us. If not, none of these is there yet.
    is_trusted: bool,
}

impl Telling<'_> {
    /// Adds the fields. What is written is made of what was checked before: every line is valid.
    fn tell(&self, to: &mut Headers) {
        let (request, forwarding) = (self.request, self.forwarding);
        let connection = request.connection();
        let peer = connection.peer.ip();
        if forwarding.x_forwarded {
            if let Some(peer) = peer {
                let told = address(peer);
                let client = match self.is_trusted {
                    true => client_behind(to, &forwarding.trusted),
                    false => None,
                };
                match client.filter(|client| *client != peer) {
                    None => self.add(to, "x-real-ip", &told),
                    Some(client) => self.add(to, "x-real-ip", &address(client)),
                }
                self.add_to_list(to, "x-forwarded-for", &told);
            }
            self.add(to, "x-forwarded-proto", request.scheme().as_bytes());
            if let Some(host) = request.authority() {
                self.add(to, "x-forwarded-host", host.as_bytes());
            }
            if let Peer::Ip(local) = connection.local {
                let mut port = Text::new();
                decimal(local.port(), &mut port);
                self.add(to, "x-forwarded-port", &port);
            }
        }
        if forwarding.forwarded {
            self.add_to_list(to, "forwarded", forwarded(request, peer).as_bytes());
        }
        if forwarding.via {
            let via = match request.version() {
                Version::HTTP_10 => "1.0 apus",
                Version::HTTP_2 => "2.0 apus",
                Version::HTTP_3 => "3.0 apus",
                _ => "1.1 apus",
            };
            append_to_list(to, "via", via.as_bytes());
        }
    }

    /// Adds a field that nobody in front of us has told.
    fn add(&self, to: &mut Headers, name: &'static str, value: &[u8]) {
        if !self.is_trusted || !to.contains(name) {
            let _ = to.try_append(name, value);
        }
    }

    /// Adds to what somebody in front of us has told.
    fn add_to_list(&self, to: &mut Headers, name: &'static str, member: &[u8]) {
        match self.is_trusted {
            true => append_to_list(to, name, member),
            false => drop(to.try_append(name, member)),
        }
    }
}

/// Text as short as an address.
pub(crate) type Text = SmallVec<[u8; 48]>;

/// An address as text. Most are of IPv4, which need no formatter.
pub(crate) fn address(address: IpAddr) -> Text {
    let mut text = Text::new();
    match address {
        IpAddr::V4(address) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    text.push(b'.');
                }
                decimal(octet.into(), &mut text);
            }
        }
        IpAddr::V6(address) => text.extend_from_slice(address.to_string().as_bytes()),
    }
    text
}

pub(crate) fn decimal(number: u16, text: &mut Text) {
    let mut begun = false;
    for unit in [10_000, 1000, 100, 10, 1] {
        let digit = u8::try_from(number / unit % 10).unwrap_or(0);
        begun |= digit > 0 || unit == 1;
        if begun {
            text.push(b'0' + digit);
        }
    }
}

/// The client that trusted proxies name: the last address of `X-Forwarded-For` that is not one of
/// theirs. Further to the left anybody may have written anything.
pub(crate) fn client_behind(headers: &Headers, trusted: &[Network]) -> Option<IpAddr> {
    let lines: Vec<&[u8]> = headers.get_all("x-forwarded-for").collect();
    let mut last = None;
    for member in lines.iter().rev().flat_map(|line| {
        let members: SmallVec<[&[u8]; 4]> = members(line).collect();
        members.into_iter().rev()
    }) {
        let address: IpAddr = std::str::from_utf8(member).ok()?.parse().ok()?;
        let peer = Peer::Ip((address, 0).into());
        last = Some(address);
        if !trusted.iter().any(|network| network.contains(&peer)) {
            break;
        }
    }
    last
}

/// An element of `Forwarded` (RFC 7239 section 4).
fn forwarded(request: &Request, peer: Option<IpAddr>) -> String {
    let mut element = match peer {
        Some(IpAddr::V6(peer)) => format!("for=\"[{peer}]\""),
        Some(IpAddr::V4(peer)) => format!("for={peer}"),
        None => "for=unknown".to_owned(),
    };
    if let Some(host) = request.authority() {
        // An authority holds no quote and no backslash.
        let _ = write!(element, ";host=\"{host}\"");
    }
    let _ = write!(element, ";proto={}", request.scheme());
    element
}

/// Adds a member behind those that the list has.
fn append_to_list(to: &mut Headers, name: &'static str, member: &[u8]) {
    let mut list = Vec::new();
    for value in to.get_all(name) {
        list.extend_from_slice(value);
        list.extend_from_slice(b", ");
    }
    // What were field values stay one.
    if list.is_empty() {
        let _ = to.try_append(name, member);
    } else {
        list.extend_from_slice(member);
        let _ = to.try_insert(name, list);
    }
}

/// The members of a list field (RFC 9110 section 5.6.1).
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::rc::Rc;

    use apus_http::{Body, ConnectionInfo, Method, RequestParts, Target};
    use http::Extensions;

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
                id: 1,
                peer: address("192.0.2.7:999"),
                local: address("198.51.100.1:8080"),
                tls: None,
            }),
            extensions: Extensions::new(),
        })
    }

    fn text(headers: &Headers) -> String {
        String::from_utf8(headers.wire().to_vec()).unwrap()
    }

    #[test]
    fn what_belongs_to_the_clients_connection_stays_behind() {
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
        let (headers, aside) = fields(&request, &only).unwrap();
        assert_eq!(text(&headers), "accept: */*\r\n");
        assert_eq!(aside.upgrade.as_deref(), Some("websocket"));
        assert!(aside.te_trailers && aside.expects_continue);
    }

    #[test]
    fn an_upgrade_that_the_connection_field_does_not_name_is_none() {
        let (_, aside) = fields(&request(&[("upgrade", "x")]), &Forwarding::default()).unwrap();
        assert_eq!(aside.upgrade, None);
    }

    #[test]
    fn a_stranger_does_not_say_who_it_is() {
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
        let (headers, _) = fields(&request(&lines), &both).unwrap();
        assert_eq!(
            text(&headers),
            "x-real-ip: 192.0.2.7\r\n\
             x-forwarded-for: 192.0.2.7\r\n\
             x-forwarded-proto: http\r\n\
             x-forwarded-host: a.example\r\n\
             x-forwarded-port: 8080\r\n\
             forwarded: for=192.0.2.7;host=\"a.example\";proto=http\r\n\
             via: 1.1 apus\r\n"
        );
    }

    #[test]
    fn a_trusted_proxy_is_believed_and_added_to() {
        let lines = [
            ("x-forwarded-for", "203.0.113.5"),
            ("x-forwarded-proto", "https"),
            ("x_forwarded_for", "127.0.0.1"),
            ("x-real-ip", "203.0.113.5"),
            ("via", "1.0 fred"),
        ];
        let trusting = Forwarding {
            trusted: vec!["192.0.2.0/24".parse().unwrap()],
            underscores: true,
            ..Forwarding::default()
        };
        let (headers, _) = fields(&request(&lines), &trusting).unwrap();
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.5, 192.0.2.7"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "203.0.113.5"),
            ("via", "1.0 fred, 1.1 apus"),
        ] {
            assert_eq!(headers.get_str(name), Some(value), "{name}");
        }
        assert!(!headers.contains("x_forwarded_for"));
    }

    #[test]
    fn the_client_is_the_last_one_that_no_trusted_proxy_is() {
        let trusting = Forwarding {
            trusted: vec!["192.0.2.0/24".parse().unwrap()],
            ..Forwarding::default()
        };
        for (list, client) in [
            ("203.0.113.5", "203.0.113.5"),
            ("127.0.0.1, 203.0.113.5, 192.0.2.9", "203.0.113.5"),
            ("192.0.2.8, 192.0.2.9", "192.0.2.8"),
            ("2001:db8::1", "2001:db8::1"),
            ("unknown, 192.0.2.9", "192.0.2.7"),
        ] {
            let request = request(&[("x-forwarded-for", list)]);
            let (headers, _) = fields(&request, &trusting).unwrap();
            assert_eq!(headers.get_str("x-real-ip"), Some(client), "{list}");
            let told = headers.get_str("x-forwarded-for").unwrap();
            assert_eq!(told, format!("{list}, 192.0.2.7"));
        }
    }

    #[test]
    fn names_with_underscores_are_sent_on_where_that_is_wanted() {
        let lines = [("under_score", "1")];
        let (headers, _) = fields(&request(&lines), &Forwarding::default()).unwrap();
        assert!(!headers.contains("under_score"));
        let wanted = Forwarding {
            underscores: true,
            ..Forwarding::default()
        };
        let (headers, _) = fields(&request(&lines), &wanted).unwrap();
        assert!(headers.contains("under_score"));
    }

    #[test]
    fn numbers_and_addresses_are_written_as_the_formatter_has_them() {
        for number in [0, 9, 10, 80, 105, 8080, 10_000, u16::MAX] {
            let mut text = Text::new();
            decimal(number, &mut text);
            assert_eq!(*text, *number.to_string().as_bytes());
        }
        for text in ["0.0.0.0", "192.0.2.100", "255.255.255.255", "2001:db8::1"] {
            assert_eq!(*address(text.parse().unwrap()), *text.as_bytes());
        }
    }

    #[test]
    fn a_request_that_goes_in_a_circle_is_refused() {
        let hops = ["1.1 apus"; MAX_HOPS].join(", ");
        assert!(fields(&request(&[("via", &hops)]), &Forwarding::default()).is_err());
        let hops = ["1.1 other"; 2 * MAX_HOPS].join(", ");
        assert!(fields(&request(&[("via", &hops)]), &Forwarding::default()).is_ok());
    }
}
