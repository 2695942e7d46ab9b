//! Which pages may open WebSockets (RFC 6455 section 10.2).
//!
//! A browser sends cookies with a handshake that any page began, and no preflight asks whether it
//! may: without this check a foreign page acts as the user (cross-site WebSocket hijacking).

use apus_http::Request;

use apus_http::origin::is_same_origin;

/// The pages whose scripts may open a socket. Clients that send no `Origin` are no browsers, and
/// nothing is kept from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Those of the same scheme, host and port. Behind a proxy that ends TLS, that takes a
    /// [`TrustedProxies`](apus_http::TrustedProxies).
    #[default]
    Same,
    /// Those of the same scheme, host and port, and of these origins, as `https://example.com`.
    List(Vec<String>),
    /// All. Only for what is public, or asks for more than cookies.
    Any,
}

/// What a request says of the page that it comes from.
#[derive(Clone, Debug)]
pub(super) struct Page {
    origin: Option<Box<[u8]>>,
    /// Whether the origin is that of the request.
    is_same: bool,
}

impl Page {
    pub(super) fn of(request: &Request) -> Self {
        let origin = request.headers().get("origin");
        let text = origin.and_then(|origin| std::str::from_utf8(origin).ok());
        Self {
            origin: origin.map(Box::from),
            is_same: text.is_some_and(|text| is_same_origin(request, text)),
        }
    }

    /// Whether a socket may be opened from here.
    pub(super) fn is_among(&self, origins: &Origins) -> bool {
        let Some(origin) = &self.origin else {
            return true;
        };
        match origins {
            Origins::Any => true,
            Origins::Same => self.is_same,
            Origins::List(known) => {
                let is_known = |known: &String| known.as_bytes().eq_ignore_ascii_case(origin);
                self.is_same || known.iter().any(is_known)
            }
        }
    }
}
