//! Which pages may open sockets (RFC 6455 section 10.2). A browser sends cookies with a handshake that
//! any page began, and no preflight asks whether it may: without this check a foreign page talks as the
//! user (cross-site WebSocket hijacking).

use std::borrow::Cow;

use apus_http::Request;

/// The pages whose scripts may open a socket. Clients that send no `Origin` are no browsers, and
/// nothing is kept from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Those of the same host and port.
    #[default]
    Same,
    /// Those of the same host and port, and of these origins, as `https://example.com`.
    List(Vec<String>),
    /// All. Only for what is public, or asks for more than cookies.
    Any,
}

/// What a request says of the page that it comes from.
#[derive(Clone, Debug)]
pub(super) struct Page {
    origin: Option<Box<[u8]>>,
    authority: Option<Box<str>>,
}

impl Page {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            origin: request.headers().get("origin").map(Box::from),
            authority: request.authority().map(Box::from),
        }
    }

    /// Whether a socket may be opened from here.
    pub(super) fn is_among(&self, origins: &Origins) -> bool {
        let Some(origin) = &self.origin else {
            return true;
        };
        let Ok(origin) = std::str::from_utf8(origin) else {
            return *origins == Origins::Any;
        };
        match origins {
            Origins::Any => true,
            Origins::Same => self.is_same(origin),
            Origins::List(known) => {
                self.is_same(origin) || known.iter().any(|known| known.eq_ignore_ascii_case(origin))
            }
        }
    }

    /// Whether the origin is the host and port that the request is for. Which scheme the client saw
    /// is not known behind something that ends TLS.
    fn is_same(&self, origin: &str) -> bool {
        let Some((scheme, host)) = origin.split_once("://") else {
            return false;
        };
        let default = match scheme {
            "https" => ":443",
            "http" => ":80",
            _ => return false,
        };
        self.authority.as_deref().is_some_and(|authority| {
            with_port(authority, default).eq_ignore_ascii_case(&with_port(host, default))
        })
    }
}

/// The authority with a port in any case.
fn with_port<'a>(authority: &'a str, default: &str) -> Cow<'a, str> {
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Cow::Borrowed(authority)
        }
        _ => Cow::Owned(format!("{}{default}", authority.trim_end_matches(':'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_among(origin: &str, authority: &str, origins: &Origins) -> bool {
        let page = Page {
            origin: Some(origin.as_bytes().into()),
            authority: Some(authority.into()),
        };
        page.is_among(origins)
    }

    #[test]
    fn only_pages_of_the_same_host_and_port_are_let_in() {
        for (origin, authority, is_same) in [
            ("https://example.com", "example.com", true),
            ("https://Example.com", "example.COM:443", true),
            ("http://example.com:80", "example.com", true),
            ("http://example.com:8080", "example.com:8080", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("https://[::1]", "[::1]", true),
            ("https://example.com", "example.com:8443", false),
            ("https://example.com.evil.test", "example.com", false),
            ("https://evil.test", "example.com", false),
            ("null", "example.com", false),
            ("null", "null", false),
            ("example.com", "example.com", false),
            ("file://example.com", "example.com", false),
            ("", "example.com", false),
        ] {
            let found = is_among(origin, authority, &Origins::Same);
            assert_eq!(found, is_same, "{origin} of {authority}");
            assert!(is_among(origin, authority, &Origins::Any));
        }
        let list = Origins::List(vec!["https://app.test".to_owned()]);
        assert!(is_among("https://app.test", "api.test", &list));
        assert!(is_among("https://api.test", "api.test", &list));
        assert!(!is_among("http://app.test", "api.test", &list));
    }
}
