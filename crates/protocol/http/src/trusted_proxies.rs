//! The client of a request as trusted proxies name it in `X-Forwarded-For` or `Forwarded` (RFC 7239).

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::client::{Client, ForwardedInfo};
use crate::{Authority, Headers, Network, Peer, Request, RequestId};

/// The proxies that are trusted to name their clients.
///
/// [`TrustedProxies::establish`] is called once for each request, before other services get it. After
/// that, [`Request::client`], [`Request::scheme`], [`Request::authority`] and [`Request::port`] describe the
/// client, and the fields that named them are removed, so that no service reads them in another way.
///
/// Addresses are read from the end, which the nearest proxy wrote: the first one that is not a trusted
/// proxy is the client. The addresses before it are ignored, because any client can write them.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    field: ForwardedField,
    passed: Vec<Box<str>>,
    request_ids: Vec<Box<str>>,
}

/// The field in which trusted proxies name their clients. Only one of the two is read, because proxies
/// forward the other one as the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`, with `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl TrustedProxies {
    /// Trusts these networks, such as `"10.0.0.0/8".parse()?`.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self {
            networks: networks.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Reads `Forwarded` (RFC 7239) in place of `X-Forwarded-For` and the other `X-Forwarded` fields.
    #[must_use]
    pub fn forwarded(mut self) -> Self {
        self.field = ForwardedField::Forwarded;
        self
    }

    /// Keeps a field that trusted proxies write, such as `cf-connecting-ip`, in their requests. It is
    /// removed from all other requests.
    #[must_use]
    pub fn pass(mut self, name: impl Into<Box<str>>) -> Self {
        let mut name = name.into();
        name.make_ascii_lowercase();
        self.passed.push(name);
        self
    }

    /// Takes the [id](Request::id) of a request from this field of a trusted proxy, in place of `X-Request-Id`. Of several
    /// fields, the first one that has a valid id counts.
    #[must_use]
    pub fn request_id(mut self, name: impl Into<Box<str>>) -> Self {
        let mut name = name.into();
        name.make_ascii_lowercase();
        if !self.request_ids.contains(&name) {
            self.request_ids.push(name);
        }
        self
    }

    /// Whether no network is trusted.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether a connection comes from a trusted proxy.
    pub fn trusts(&self, peer: &Peer) -> bool {
        self.networks.iter().any(|network| network.contains(peer))
    }

    /// Establishes the client of a request, and removes the identity fields in which it could claim to be
    /// another one.
    pub fn establish(&self, request: &mut Request) {
        let is_trusted = self.trusts(&request.connection().peer);
        if is_trusted {
            let (forwarded, authority) = self.read(request);
            request.set_forwarded(forwarded, authority);
            if let Some(id) = self.sent_id(request.headers()) {
                request.set_id(id);
            }
        }
        let is_passed = |name: &[u8]| self.passed.iter().any(|passed| passed.as_bytes() == name);
        let is_kept = |name: &[u8]| is_trusted && is_passed(name);
        request.remove_identity_fields(is_kept);
    }

    /// The id that a proxy gave a request.
    fn sent_id(&self, headers: &Headers) -> Option<RequestId> {
        let id_in = |name: &str| {
            let mut lines = headers.get_all(name);
            let line = lines.next().filter(|_| lines.next().is_none())?;
            RequestId::parse(line)
        };
        if self.request_ids.is_empty() {
            return id_in("x-request-id");
        }
        self.request_ids.iter().find_map(|name| id_in(name))
    }

    fn read(&self, request: &Request) -> (ForwardedInfo, Authority) {
        let connection = request.connection();
        let mut found = ForwardedInfo {
            client: connection.peer.into(),
            proxies: SmallVec::new(),
            is_secure: request.is_secure(),
        };
        let (scheme, host, port) = match self.field {
            ForwardedField::XForwardedFor => {
                self.walk(
                    &mut found,
                    &members(request.headers(), "x-forwarded-for", Quotes::Plain),
                    node,
                );
                // The trusted proxy next to the client knows the request of the client.
                let hops = found.proxies.len().max(1);
                let of_client = |name: &'static str| {
                    let members = members(request.headers(), name, Quotes::Plain);
                    let at = hops.min(members.len()).checked_sub(1)?;
                    members.get(at).copied()
                };
                (
                    of_client("x-forwarded-proto"),
                    of_client("x-forwarded-host"),
                    of_client("x-forwarded-port"),
                )
            }
            ForwardedField::Forwarded => {
                let elements = members(request.headers(), "forwarded", Quotes::Pairs);
                let node_of = |element: &str| parameter(element, "for").and_then(node);
                self.walk(&mut found, &elements, node_of);
                let of_proxies = elements.get(..found.proxies.len().max(1).min(elements.len()));
                let of_client = |name: &str| {
                    let elements = of_proxies.unwrap_or_default().iter().rev();
                    elements
                        .filter_map(|element| parameter(element, name))
                        .next()
                };
                (of_client("proto"), of_client("host"), None)
            }
        };
        found.is_secure = scheme.and_then(is_https).unwrap_or(found.is_secure);
        let authority = host
            .and_then(|host| Authority::normalise(host.as_bytes(), found.is_secure))
            .unwrap_or_else(|| request.authority_as_sent(found.is_secure));
        let port = port.and_then(|port| port.parse().ok());
        let authority = authority.or_port(port, found.is_secure);
        (found, authority)
    }

    /// Reads the addresses, the nearest proxy first, up to the first one that is no trusted proxy.
    fn walk(
        &self,
        found: &mut ForwardedInfo,
        elements: &[&str],
        node_of: impl Fn(&str) -> Option<Client>,
    ) {
        for element in elements {
            // An address that is hidden or invalid ends the list.
            let Some(client) = node_of(element) else {
                return;
            };
            found.proxies.extend(found.client.ip);
            found.client = client;
            let is_proxy = |ip| self.networks.iter().any(|network| network.contains_ip(ip));
            if !client.ip.is_some_and(is_proxy) {
                break;
            }
        }
        found.proxies.reverse();
    }
}

/// The meaning of quotation marks in a list field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotes {
    /// Ordinary bytes: `X-Forwarded-For` has no quoted strings.
    Plain,
    /// The ends of quoted strings, in which a comma does not end a member.
    Pairs,
}

/// The members of a list field, the last one first. They are read from the end, which the nearest proxy
/// wrote, so that a quotation mark that a client did not close has no effect on the members after it.
fn members<'a>(headers: &'a Headers, name: &'a str, quotes: Quotes) -> Vec<&'a str> {
    let lines: Vec<&str> = headers
        .get_all(name)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    lines
        .into_iter()
        .rev()
        .flat_map(|line| {
            let mut is_quoted = false;
            line.rsplit(move |character| {
                is_quoted ^= character == '"' && quotes == Quotes::Pairs;
                character == ',' && !is_quoted
            })
        })
        .map(str::trim)
        .filter(|member| !member.is_empty())
        .collect()
}

/// The parts between unquoted semicolons, without white space around them.
fn split(element: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    element
        .split(move |character| {
            is_quoted ^= character == '"';
            character == ';' && !is_quoted
        })
        .map(str::trim)
}

/// A parameter of an element of `Forwarded`, without quotation marks. Addresses, hosts and schemes need no
/// escapes.
fn parameter<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    split(element).find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim_matches('"'))
    })
}

/// Parses an address with or without port; an IPv6 address with or without brackets.
fn node(text: &str) -> Option<Client> {
    let text = text.trim_matches('"');
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let (ip, port) = match bare.unwrap_or(text).parse::<IpAddr>() {
        Ok(ip) if bare.is_none() || ip.is_ipv6() => (ip, None),
        _ => {
            let address: SocketAddr = text.parse().ok()?;
            (address.ip(), Some(address.port()))
        }
    };
    Some(Client {
        ip: Some(ip.to_canonical()),
        port,
    })
}

/// Whether a scheme is `https` rather than `http`; `None` if it is neither. Some proxies write the scheme
/// of a WebSocket.
fn is_https(scheme: &str) -> Option<bool> {
    if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss") {
        Some(true)
    } else if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("ws") {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use http::{Method, Version};

    use super::*;
    use crate::{Body, ConnectionInfo, Extensions, RequestParts, Target};

    fn established(proxies: &TrustedProxies, lines: &[(&str, &str)]) -> Request {
        let mut headers = Headers::new();
        headers.try_append("host", "Inner.example:8080").unwrap();
        for (name, value) in lines {
            headers.try_append(name, value).unwrap();
        }
        let address = |text: &str| Peer::Ip(text.parse().unwrap());
        let mut request = Request::new(RequestParts {
            method: Method::GET,
            target: Target::parse(&Method::GET, "/").unwrap(),
            version: Version::HTTP_11,
            headers,
            body: Body::Empty,
            connection: Rc::new(ConnectionInfo {
                kept: crate::KeptValue::default(),
                id: 1,
                peer: address("10.0.0.1:999"),
                local: address("10.0.0.9:8080"),
                tls: None,
            }),
            extensions: Extensions::new(),
        });
        proxies.establish(&mut request);
        request
    }

    fn trusting() -> TrustedProxies {
        TrustedProxies::new(["10.0.0.0/8".parse().unwrap()])
    }

    fn text(client: Client) -> String {
        match client.port {
            Some(_) => client.peer().to_string(),
            None => client.ip.map_or("unix".to_owned(), |ip| ip.to_string()),
        }
    }

    #[test]
    fn the_id_of_a_request_is_that_of_a_trusted_proxy() {
        let sent = [("x-request-id", "from-proxy")];
        assert_eq!(
            established(&trusting(), &sent).id().to_string(),
            "from-proxy"
        );
        assert_eq!(
            established(&TrustedProxies::default(), &sent)
                .id()
                .to_string()
                .len(),
            32
        );
        for lines in [
            &[("x-request-id", "two words")][..],
            &[sent[0], sent[0]],
            &[],
        ] {
            let id = established(&trusting(), lines).id().to_string();
            assert_eq!(id.len(), 32, "{lines:?}");
        }
        let named = trusting().request_id("X-Trace").request_id("x-other");
        for (lines, expected) in [
            (&[("x-trace", "t"), ("x-other", "o"), sent[0]][..], "t"),
            (&[("x-trace", ""), ("x-other", "o")], "o"),
        ] {
            assert_eq!(established(&named, lines).id().to_string(), expected);
        }
        assert_eq!(established(&named, &sent).id().to_string().len(), 32);
    }

    #[test]
    fn fields_of_an_untrusted_peer_are_ignored_and_removed() {
        let lines = [
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "https"),
            ("x_forwarded_host", "evil.example"),
            ("forwarded", "for=192.0.2.7;proto=https"),
            ("cf-connecting-ip", "192.0.2.7"),
            ("accept", "*/*"),
        ];
        let nobody = TrustedProxies::default().pass("cf-connecting-ip");
        let request = established(&nobody, &lines);
        assert_eq!(text(request.client()), "10.0.0.1:999");
        assert_eq!(request.scheme(), "http");
        assert_eq!(request.authority(), Some("inner.example:8080"));
        assert_eq!(request.port(), Some(8080));
        let names: Vec<_> = request.headers().iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["host", "accept"]);
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxy() {
        for (value, client, proxies) in [
            ("192.0.2.7", "192.0.2.7", &["10.0.0.1"][..]),
            ("127.0.0.1, 192.0.2.7:4711", "192.0.2.7:4711", &["10.0.0.1"]),
            (
                "192.0.2.7, 10.1.1.1",
                "192.0.2.7",
                &["10.1.1.1", "10.0.0.1"],
            ),
            ("[2001:db8::1]:99", "[2001:db8::1]:99", &["10.0.0.1"]),
            ("2001:db8::1", "2001:db8::1", &["10.0.0.1"]),
            ("[2001:db8::1]", "2001:db8::1", &["10.0.0.1"]),
            ("::ffff:192.0.2.7", "192.0.2.7", &["10.0.0.1"]),
            ("10.2.2.2, 10.1.1.1", "10.2.2.2", &["10.1.1.1", "10.0.0.1"]),
            ("192.0.2.7, unknown", "10.0.0.1:999", &[]),
            ("192.0.2.7, [192.0.2.8]", "10.0.0.1:999", &[]),
            ("evil", "10.0.0.1:999", &[]),
        ] {
            let request = established(&trusting(), &[("x-forwarded-for", value)]);
            assert_eq!(text(request.client()), client, "{value}");
            let found: Vec<_> = request.proxies().iter().map(ToString::to_string).collect();
            assert_eq!(found, proxies, "{value}");
        }
    }

    #[test]
    fn scheme_host_and_port_are_those_of_the_proxy_next_to_the_client() {
        let client = ("x-forwarded-for", "192.0.2.7");
        for (lines, scheme, authority, port) in [
            (
                &[("x-forwarded-proto", "https")][..],
                "https",
                "inner.example:8080",
                8080,
            ),
            (
                &[("x-forwarded-proto", "http, https")],
                "https",
                "inner.example:8080",
                8080,
            ),
            (
                &[("x-forwarded-proto", "evil\"")],
                "http",
                "inner.example:8080",
                8080,
            ),
            (
                &[
                    ("x-forwarded-proto", "HTTPS"),
                    ("x-forwarded-host", "A.example:443"),
                ],
                "https",
                "a.example",
                443,
            ),
            (
                &[("x-forwarded-host", "a.example:81")],
                "http",
                "a.example:81",
                81,
            ),
            (
                &[
                    ("x-forwarded-host", "a.example"),
                    ("x-forwarded-port", "0444"),
                ],
                "http",
                "a.example:444",
                444,
            ),
            (
                &[
                    ("x-forwarded-host", "a.example"),
                    ("x-forwarded-port", "80"),
                ],
                "http",
                "a.example",
                80,
            ),
            (
                &[
                    ("x-forwarded-host", "a.example"),
                    ("x-forwarded-port", "70000"),
                ],
                "http",
                "a.example",
                80,
            ),
            (
                &[("x-forwarded-host", "a b")],
                "http",
                "inner.example:8080",
                8080,
            ),
        ] {
            let lines: Vec<_> = [&[client], lines].concat();
            let request = established(&trusting(), &lines);
            assert_eq!(request.scheme(), scheme, "{lines:?}");
            assert_eq!(request.authority(), Some(authority), "{lines:?}");
            assert_eq!(request.port(), Some(port), "{lines:?}");
        }
        let two_hops = [
            ("x-forwarded-for", "192.0.2.7, 10.1.1.1"),
            ("x-forwarded-proto", "evil, https, http"),
        ];
        assert!(established(&trusting(), &two_hops).is_secure());
    }

    #[test]
    fn forwarded_is_read_if_proxies_write_it() {
        let proxies = trusting().forwarded();
        let lines = [
            (
                "forwarded",
                "for=127.0.0.1;proto=http, For=\"[2001:db8::7]:47\";Proto=https;host=\"A.example\"",
            ),
            ("forwarded", "for=10.1.1.1;proto=http"),
            ("x-forwarded-for", "127.0.0.1"),
        ];
        let request = established(&proxies, &lines);
        assert_eq!(text(request.client()), "[2001:db8::7]:47");
        assert_eq!(request.scheme(), "https");
        assert_eq!(request.authority(), Some("a.example"));
        assert_eq!(request.port(), Some(443));
        assert!(!request.headers().contains("forwarded"));
    }

    #[test]
    fn a_named_field_is_passed_from_trusted_proxies_only() {
        let lines = [
            ("cf-connecting-ip", "192.0.2.7"),
            ("x-real-ip", "192.0.2.7"),
        ];
        let request = established(&trusting().pass("CF-Connecting-IP"), &lines);
        assert!(request.headers().contains("cf-connecting-ip"));
        assert!(!request.headers().contains("x-real-ip"));
    }
}
