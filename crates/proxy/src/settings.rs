//! The settings of a proxy.

use std::time::Duration;

use apus_http::path::strip_decoded_prefix;

use super::hold::HoldSettings;
use super::mirror::MirrorSettings;
use super::request_headers::Forwarding;
use super::response_headers::{CookieRules, RedirectRule};
use super::substitute::Substitutions;

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// The `Host` of requests to the origin.
    pub host: HostHeader,
    /// The scheme of requests to the origin: `http` or `https`.
    pub scheme: &'static str,
    /// The change of the path for the origin.
    pub path: Option<PathChange>,
    /// The headers that the origin gets about the client.
    pub forwarding: Forwarding,
    /// The response headers that are not forwarded, in lower case.
    pub hidden: Vec<Box<str>>,
    /// The rules for redirects.
    pub redirects: Vec<RedirectRule>,
    /// The rules for cookies.
    pub cookies: CookieRules,
    /// The texts of response bodies that are replaced.
    pub substitutions: Substitutions,
    /// The buffering of request bodies, so that a slow client does not occupy the origin; `None` streams them.
    pub hold_request: Option<HoldSettings>,
    /// The read-ahead of response bodies, so that a slow client does not occupy the origin; `None` reads only as
    /// fast as the client.
    pub hold_response: Option<HoldSettings>,
    /// The idle time after which a tunnel, for example of WebSocket, is closed.
    pub tunnel_timeout: Duration,
    /// The mirroring of requests to another group.
    pub mirror: Option<MirrorSettings>,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            host: HostHeader::Client,
            scheme: "http",
            path: None,
            forwarding: Forwarding::default(),
            hidden: Vec::new(),
            redirects: Vec::new(),
            cookies: CookieRules::default(),
            substitutions: Substitutions::default(),
            hold_request: None,
            hold_response: None,
            tunnel_timeout: Duration::from_secs(3600),
            mirror: None,
        }
    }
}

/// The `Host` of requests to an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The host of the client's request.
    Client,
    /// This host.
    Fixed(Box<str>),
}

/// The replacement of a prefix of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The prefix.
    pub strip: Box<str>,
    /// Its replacement, which starts with `/`.
    pub put: Box<str>,
}

impl PathChange {
    /// Returns the changed path; `None` if it does not start with the prefix in any encoding.
    pub(super) fn apply(&self, path: &str) -> Option<String> {
        let rest = strip_decoded_prefix(path, self.strip.as_bytes())?;
        let put = match rest.starts_with('/') {
            true => self.put.trim_end_matches('/'),
            false => &*self.put,
        };
        let slash = match rest.is_empty() || put.ends_with('/') || rest.starts_with('/') {
            true => "",
            false => "/",
        };
        Some(format!("{put}{slash}{rest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_the_prefix_of_a_path() {
        for (strip, put, path, changed) in [
            ("/api/", "/", "/api/x", Some("/x")),
            ("/api", "/", "/api/x", Some("/x")),
            ("/api", "/", "/api", Some("/")),
            ("/api/", "/v1/", "/api/x?", Some("/v1/x?")),
            ("/api", "/v1", "/api/x", Some("/v1/x")),
            ("/api/", "/v1", "/api/x", Some("/v1/x")),
            ("/", "/base/", "/x", Some("/base/x")),
            ("/api/", "/", "/other", None),
            ("/api/", "/public/", "/%61pi/x", Some("/public/x")),
            ("/api/", "/", "/api/a%2Fb", Some("/a%2Fb")),
        ] {
            let change = PathChange {
                strip: strip.into(),
                put: put.into(),
            };
            assert_eq!(
                change.apply(path).as_deref(),
                changed,
                "{strip} {put} {path}"
            );
        }
    }
}
