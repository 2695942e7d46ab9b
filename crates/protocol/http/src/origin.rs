//! The same-origin test of a request (RFC 6454 section 5).

use crate::url::UrlParts;
use crate::{Authority, Request};

/// Whether `origin`, such as the value of `Origin`, has the scheme, host and port of the request.
///
/// The scheme counts, because the network can change a page that is loaded without TLS. Behind a proxy
/// that terminates TLS, the request has the client's scheme only if the proxy is trusted.
pub fn is_same_origin(request: &Request, origin: &str) -> bool {
    let own = request.authority();
    own.is_some_and(|authority| is_origin_of(request.scheme(), authority, origin))
}

fn is_origin_of(own_scheme: &str, authority: &str, origin: &str) -> bool {
    let Some(origin) = UrlParts::split(origin) else {
        return false;
    };
    let is_secure = own_scheme == "https";
    let normal = |authority: &str| Authority::normalise(authority.as_bytes(), is_secure);
    origin.rest.is_empty()
        && origin.scheme.eq_ignore_ascii_case(own_scheme)
        && normal(origin.authority).is_some_and(|host| normal(authority) == Some(host))
}

#[cfg(test)]
mod tests {
    use super::is_origin_of;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (origin, scheme, authority, is_same) in [
            ("https://example.com", "https", "example.com", true),
            ("https://Example.com", "https", "example.COM:443", true),
            ("HTTPS://example.com", "https", "example.com", true),
            ("http://example.com:80", "http", "example.com", true),
            ("http://example.com:8080", "http", "example.com:8080", true),
            ("http://[::1]:8080", "http", "[::1]:8080", true),
            ("https://[::1]", "https", "[::1]", true),
            ("http://example.com", "https", "example.com", false),
            ("https://example.com", "http", "example.com", false),
            ("http://example.com:443", "https", "example.com", false),
            ("https://example.com:80", "http", "example.com", false),
            ("https://example.com", "https", "example.com:80", false),
            ("https://example.com", "https", "example.com:8443", false),
            (
                "https://example.com.evil.test",
                "https",
                "example.com",
                false,
            ),
            ("https://evil.test", "https", "example.com", false),
            ("null", "https", "example.com", false),
            ("null", "https", "null", false),
            ("example.com", "https", "example.com", false),
            ("file://example.com", "https", "example.com", false),
            ("https://example.com/", "https", "example.com", false),
            ("", "https", "example.com", false),
        ] {
            let found = is_origin_of(scheme, authority, origin);
            assert_eq!(found, is_same, "{origin} of {scheme}://{authority}");
        }
    }
}
