//! The check of the `Origin` of a handshake (RFC 6455 section 10.2).
//!
//! A browser sends cookies with a handshake from any page and makes no preflight request for it: without this
//! check, a page of another site could act as the user (cross-site WebSocket hijacking).

use apus_http::Request;

use apus_http::origin::is_same_origin;

/// The origins whose pages may open a socket. Clients that send no `Origin` are not browsers and are always
/// allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WebSocketOrigins {
    /// The origin with the same scheme, host and port. Behind a proxy that terminates TLS, this needs
    /// [`TrustedProxies`](apus_http::TrustedProxies).
    #[default]
    Same,
    /// The same origin, and these origins, such as `https://example.com`.
    List(Vec<String>),
    /// All origins. Only for public data, or for handlers that do not authenticate by cookies alone.
    Any,
}

/// The origin of the page that a request comes from.
#[derive(Clone, Debug)]
pub(super) struct RequestOrigin {
    origin: Option<Box<[u8]>>,
    /// Whether the origin equals the request's origin.
    is_same: bool,
}

impl RequestOrigin {
    pub(super) fn of(request: &Request) -> Self {
        let origin = request.headers().get("origin");
        let text = origin.and_then(|origin| std::str::from_utf8(origin).ok());
        Self {
            origin: origin.map(Box::from),
            is_same: text.is_some_and(|text| is_same_origin(request, text)),
        }
    }

    /// Whether pages of this origin may open a socket.
    pub(super) fn is_allowed_by(&self, allowed: &WebSocketOrigins) -> bool {
        let Some(origin) = &self.origin else {
            return true;
        };
        match allowed {
            WebSocketOrigins::Any => true,
            WebSocketOrigins::Same => self.is_same,
            WebSocketOrigins::List(list) => {
                let is_equal = |listed: &String| listed.as_bytes().eq_ignore_ascii_case(origin);
                self.is_same || list.iter().any(is_equal)
            }
        }
    }
}
