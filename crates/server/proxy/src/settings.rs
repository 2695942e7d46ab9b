//! The settings of a proxy.

use std::time::Duration;

use super::hold::HoldSettings;
use super::mirror::MirrorSettings;
use super::path_change::PathChange;
use super::request_headers::Forwarding;
use super::response_headers::{CookieRules, RedirectRule};
use super::substitute::Substitutions;

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// The name of the site in log lines; may be empty.
    pub site: Box<str>,
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
    /// The form of the path that the origin gets.
    pub path_form: PathForm,
    /// The idle time after which a tunnel, for example of WebSocket, is closed.
    pub tunnel_timeout: Duration,
    /// The mirroring of requests to another group.
    pub mirror: Option<MirrorSettings>,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            site: "".into(),
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
            path_form: PathForm::Normalized,
            tunnel_timeout: Duration::from_secs(3600),
            mirror: None,
        }
    }
}

/// The `Host` of requests to an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The host of the client's request, in its normal form.
    Client,
    /// The host of the client's request, exactly as it was sent.
    AsSent,
    /// This host.
    Fixed(Box<str>),
}

/// The form of the path in requests to an origin. Locations, rules and the keys of caches use the normal form of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathForm {
    /// As the client sent it, with `//` as one slash and dot segments resolved, since the origin may resolve them in
    /// another way.
    #[default]
    Normalized,
    /// As the client sent it, byte for byte. A path that the origin may resolve in another way than this server, with a
    /// dot segment or two slashes at its start, is refused.
    Raw,
}
