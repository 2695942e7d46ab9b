//! What a proxy does with requests and answers on their way.

use std::time::Duration;

use apus_http::path::strip_decoded_prefix;

use super::backward::{CookieRules, RedirectRule};
use super::forward::Forwarding;
use super::hold::Hold;
use super::mirror::Mirror;
use super::substitute::Substitutions;

/// What a proxy does with requests and answers on their way.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Which host the origin is asked for.
    pub host: Host,
    /// `http` or `https`: the scheme that origins are asked with.
    pub scheme: &'static str,
    /// How the path of the request becomes that which the origin gets.
    pub path: Option<PathChange>,
    /// What the origin is told about the client.
    pub forwarding: Forwarding,
    /// Fields of answers that are not sent on. Names in lower case.
    pub hidden: Vec<Box<str>>,
    /// How redirects are put in the terms of the site.
    pub redirects: Vec<RedirectRule>,
    /// How cookies are.
    pub cookies: CookieRules,
    /// Texts of answers that are replaced.
    pub substitutions: Substitutions,
    /// What of a request is taken in before an origin is asked, so that a slow client does not
    /// occupy it; `None` streams the content through.
    pub hold_request: Option<Hold>,
    /// How much of an answer is taken in faster than its client reads, so that the origin is free
    /// sooner; `None` takes in what the client reads.
    pub hold_response: Option<Hold>,
    /// How long a tunnel, as of WebSocket, may carry nothing.
    pub tunnel_timeout: Duration,
    /// Which requests another group gets copies of.
    pub mirror: Option<Mirror>,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            host: Host::Client,
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

/// Which host an origin is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// The one that the client asked for.
    Client,
    /// This one.
    Fixed(Box<str>),
}

/// How the path of a request becomes that which the origin gets: what it starts with is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// What is taken off the front.
    pub strip: Box<str>,
    /// What is put there instead; starts with `/`.
    pub put: Box<str>,
}

impl PathChange {
    /// The path for the origin. One that does not start with what is to be taken off, whatever its encoding,
    /// stays.
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
    fn replaces_what_a_path_starts_with() {
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
