//! The creation of a proxy to one origin by its URL.

use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use apus_client::{Address, ClientTlsSettings, Tls};
use apus_upstream::Upstreams;
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};

use super::path_change::PathChange;
use super::response_headers::RedirectRule;
use super::service::Proxy;
use super::settings::{HostHeader, ProxySettings};

impl Proxy {
    /// Creates a proxy to one origin: `http://127.0.0.1:9000`, `https://api.example.com/v1` or `unix:/run/app.sock`.
    ///
    /// A path of the address is put in front of the path of each request. Over `http` the origin gets the `Host`
    /// of the client; over `https` it gets the host of the address, for which its certificate has to be valid. A
    /// name is looked up once, here; use a group for a name whose addresses change and for more than one origin
    /// ([`Proxy::new`]).
    ///
    /// ```
    /// # use apus_proxy::Proxy;
    /// let old = Proxy::to("http://127.0.0.1:9000")?;
    /// # let _ = old;
    /// # Ok::<(), apus_proxy::InvalidOrigin>(())
    /// ```
    ///
    /// # Errors
    /// It is no such address, its name has no addresses, or this system has no trusted root certificates.
    pub fn to(address: &str) -> Result<Self, InvalidOrigin> {
        let invalid = |reason: String| InvalidOrigin {
            address: address.to_owned(),
            reason,
        };
        let mut settings = ProxySettings::default();
        let nodes = match address.strip_prefix("unix:") {
            Some(path) => {
                let target = NodeTarget::Address(Address::Unix(std::path::Path::new(path).into()));
                vec![NodePlan::new(address, target)]
            }
            None => nodes(address, &mut settings).map_err(invalid)?,
        };
        let upstreams = Upstreams::new();
        upstreams.apply(vec![GroupPlan::new(address, nodes)]);
        Ok(Self::new(&upstreams, address, settings))
    }

    /// Returns this proxy, which passes `Location` and other references on as the origin sends them. This is for an origin that redirects to
    /// its own host, such as one with a page for log-in.
    #[must_use]
    pub fn keep_references(self) -> Self {
        self.configure(|settings| settings.redirects.insert(0, RedirectRule::keep()))
    }

    /// Returns this proxy with changed settings.
    ///
    /// ```
    /// # use apus_proxy::{PathForm, Proxy};
    /// // The origin is an object store, whose keys may have `//`.
    /// let store = Proxy::to("http://127.0.0.1:9000")?.configure(|settings| {
    ///     settings.path_form = PathForm::Raw;
    /// });
    /// # Ok::<(), apus_proxy::InvalidOrigin>(())
    /// ```
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut ProxySettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

/// Returns the nodes of a URL: all addresses of its host.
fn nodes(address: &str, settings: &mut ProxySettings) -> Result<Vec<NodePlan>, String> {
    let uri: http::Uri = address.parse().map_err(|_| "it is not a URL".to_owned())?;
    let (scheme, port) = match uri.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        _ => return Err("it has to begin with http://, https:// or unix:".to_owned()),
    };
    if uri.query().is_some() {
        return Err("a query is not allowed".to_owned());
    }
    let authority = uri.authority().ok_or("it names no host")?;
    if authority.as_str().contains('@') {
        return Err("a user is not allowed".to_owned());
    }
    let host = authority.host();
    let host = host
        .strip_prefix('[')
        .map_or(host, |host| host.trim_end_matches(']'));
    settings.scheme = scheme;
    if !matches!(uri.path(), "" | "/") {
        settings.path = Some(PathChange {
            strip: "/".into(),
            put: format!("{}/", uri.path().trim_end_matches('/')).into(),
        });
    }
    let tls = match scheme {
        "https" => {
            settings.host = HostHeader::Fixed(authority.as_str().into());
            let tls = Tls::new(&ClientTlsSettings::new(host));
            Some(tls.map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let port = authority.port_u16().unwrap_or(port);
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("{host} cannot be looked up: {error}"))?;
    let nodes = found.map(|found| NodePlan {
        tls: tls.clone(),
        ..NodePlan::new(found.to_string(), NodeTarget::Address(Address::Ip(found)))
    });
    Ok(nodes.collect())
}

/// The error for an address to which no proxy can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOrigin {
    address: String,
    reason: String,
}

impl fmt::Display for InvalidOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} cannot be proxied to: {}; expected an address as http://127.0.0.1:9000",
            self.address, self.reason
        )
    }
}

impl std::error::Error for InvalidOrigin {}
