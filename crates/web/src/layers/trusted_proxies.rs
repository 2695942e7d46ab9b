//! Who the client is behind proxies: `X-Forwarded-For`, `X-Forwarded-Proto`, and `Forwarded`
//! (RFC 7239), believed only where a proxy of ours wrote them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use apus_http::{Answer, Headers, Peer, Request};
use apus_net::Network;

use crate::extract::{FromRequestHead, Matched};
use crate::middleware::{Middleware, Next};

/// What is known of the client itself, which may be several proxies away.
///
/// An extractor. Without [`TrustedProxies`] it is the other end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its address; `None` behind a Unix socket whose other side told none.
    pub ip: Option<IpAddr>,
    /// Whether it speaks TLS, to us or to the proxy that it reached.
    pub is_secure: bool,
}

impl ClientInfo {
    /// Of the client that sent a request.
    pub fn of(request: &Request) -> Self {
        let told = request.extensions().get::<Self>();
        told.copied().unwrap_or_else(|| Self {
            ip: request.connection().peer.ip(),
            is_secure: request.is_secure(),
        })
    }
}

impl FromRequestHead for ClientInfo {
    type Rejection = Infallible;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(Self::of(request))
    }
}

/// Believes what proxies of these networks say of their clients.
///
/// The addresses of `X-Forwarded-For` are read from the end, where the nearest proxy wrote: the first
/// that is not a trusted proxy is the client. What stands before it anybody can have written. To be the
/// first layer, since others go by what it finds.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    field: Field,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    XForwarded,
    Forwarded,
}

impl TrustedProxies {
    /// Trusts these, as `"10.0.0.0/8".parse()?`.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self {
            networks: networks.into_iter().collect(),
            field: Field::XForwarded,
        }
    }

    /// Reads `Forwarded` (RFC 7239) in place of `X-Forwarded-For` and `X-Forwarded-Proto`. One or the
    /// other, whichever the proxies write: the other one they pass on as a client sent it.
    #[must_use]
    pub fn forwarded(mut self) -> Self {
        self.field = Field::Forwarded;
        self
    }

    fn trusts(&self, peer: &Peer) -> bool {
        self.networks.iter().any(|network| network.contains(peer))
    }

    /// The client, if a proxy that is trusted told of it.
    fn client(&self, request: &Request) -> Option<ClientInfo> {
        let connection = request.connection();
        if !self.trusts(&connection.peer) {
            return None;
        }
        let mut client = ClientInfo {
            ip: connection.peer.ip(),
            is_secure: request.is_secure(),
        };
        match self.field {
            Field::XForwarded => {
                let entries = members(request.headers(), "x-forwarded-for");
                self.walk(&mut client, entries.map(|entry| (address(entry), None)));
                if let Some(scheme) = members(request.headers(), "x-forwarded-proto").next() {
                    client.is_secure = is_secure(scheme);
                }
            }
            Field::Forwarded => {
                let entries = members(request.headers(), "forwarded");
                let entries = entries.map(|entry| {
                    let proxied = parameter(entry, "for").and_then(address);
                    (proxied, parameter(entry, "proto").map(is_secure))
                });
                self.walk(&mut client, entries);
            }
        }
        Some(client)
    }

    /// Goes from proxy to proxy, the nearest first, up to the first that is none of ours.
    fn walk(
        &self,
        client: &mut ClientInfo,
        entries: impl Iterator<Item = (Option<IpAddr>, Option<bool>)>,
    ) {
        for (ip, is_secure) in entries {
            if let Some(is_secure) = is_secure {
                client.is_secure = is_secure;
            }
            // What hides its client, or cannot be read, is as far as we know.
            let Some(ip) = ip else { return };
            client.ip = Some(ip);
            if !self.trusts(&Peer::Ip(SocketAddr::new(ip, 0))) {
                return;
            }
        }
    }
}

impl Middleware<()> for TrustedProxies {
    fn call(&self, mut request: Request, next: Next) -> Answer {
        if let Some(client) = self.client(&request) {
            request.extensions_mut().insert(client);
        }
        next.call(request)
    }
}

/// The members of a list field, the last one first. Quoted commas count.
fn members<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines: Vec<&str> = headers
        .get_all(name)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    lines
        .into_iter()
        .rev()
        .flat_map(|line| split(line, ',').collect::<Vec<_>>().into_iter().rev())
        .filter(|member| !member.is_empty())
}

/// The parts between separators that are not quoted, trimmed.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
    .map(str::trim)
}

/// A parameter of an element of `Forwarded`, without quotes. Addresses and schemes hold nothing that
/// would have to be escaped.
fn parameter<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    split(element, ';').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim_matches('"'))
    })
}

/// An address with or without port; an IPv6 address with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches('"');
    let parsed = text.parse::<IpAddr>().or_else(|_| {
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        match bare {
            Some(bare) => bare.parse(),
            None => text.parse::<SocketAddr>().map(|address| address.ip()),
        }
    });
    parsed.ok().map(|ip| ip.to_canonical())
}

fn is_secure(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss")
}
