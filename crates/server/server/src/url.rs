//! URLs of the command line, and the listeners that serve them.

use std::fmt;

use apus_config::ServerPlan;
use apus_http::url::UrlParts;
use apus_net::{ListenAddress, ListenerPlan};
use apus_patterns::ServerNames;

/// The parts of a URL, as they were written.
pub(crate) struct Url<'a> {
    pub(crate) is_secure: bool,
    pub(crate) authority: &'a str,
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
    path_and_query: &'a str,
}

impl<'a> Url<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, InvalidUrl> {
        let wrong = || InvalidUrl::Invalid(text.to_owned());
        // The fragment is never sent.
        let sent = text.split('#').next().unwrap_or_default();
        let url = UrlParts::split(sent).ok_or_else(wrong)?;
        let is_secure = match url.scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let authority = url.authority;
        let path_and_query = if url.rest.is_empty() { "/" } else { url.rest };
        let parsed: http::uri::Authority = authority.parse().map_err(|_| wrong())?;
        if authority.contains('@') || parsed.host().is_empty() {
            return Err(wrong());
        }
        let host_len = parsed.host().len();
        Ok(Self {
            is_secure,
            authority,
            host: authority.get(..host_len).unwrap_or_default(),
            port: parsed.port_u16(),
            path_and_query,
        })
    }

    /// The request target.
    pub(crate) fn target(&self) -> String {
        if self.path_and_query.starts_with('/') {
            self.path_and_query.to_owned()
        } else {
            format!("/{}", self.path_and_query)
        }
    }

    /// Whether a site may get requests for this URL: one has the host, and one listens on the port.
    ///
    /// The default port may belong to a proxy or a container in front, and so may others behind a trusted
    /// proxy.
    pub(crate) fn check_site(&self, plan: &ServerPlan) -> Result<(), InvalidUrl> {
        let host = self.host.strip_suffix('.').unwrap_or(self.host);
        let host = host.to_ascii_lowercase();
        let mut names = ServerNames::default();
        let all = plan.sites.iter().flat_map(|site| &site.server_names);
        for name in all.clone() {
            // The same name at other addresses is another site.
            let _ = names.insert(name, 0);
        }
        let has_fallback = plan.sites.iter().any(|site| site.is_fallback);
        if !has_fallback && names.find(&host).is_none() {
            let mut sites: Vec<_> = all.map(ToString::to_string).collect();
            sites.sort();
            sites.dedup();
            return Err(InvalidUrl::NoSite { host, sites });
        }
        let Some(port) = self.port.filter(|port| *port != self.default_port()) else {
            return Ok(());
        };
        let listeners = plan.sites.iter().flat_map(|site| &site.listeners);
        let mut ports = Vec::new();
        for listener in listeners {
            match &listener.address {
                ListenAddress::Tcp { address, .. } => ports.push(address.port()),
                _ => return Ok(()),
            }
        }
        if ports.contains(&port) || ports.contains(&0) || !plan.global.trusted_proxies.is_empty() {
            return Ok(());
        }
        ports.sort_unstable();
        ports.dedup();
        Err(InvalidUrl::NoPort { port, ports })
    }

    pub(crate) fn default_port(&self) -> u16 {
        if self.is_secure { 443 } else { 80 }
    }

    /// The listener for this URL; the first of the scheme, if the URL has no port.
    pub(crate) fn listener<'l>(
        &self,
        listeners: &'l [ListenerPlan],
    ) -> Result<&'l ListenerPlan, InvalidUrl> {
        let mut fitting = listeners
            .iter()
            .filter(|one| one.tls.is_some() == self.is_secure);
        let port_of = |listener: &ListenerPlan| match &listener.address {
            ListenAddress::Tcp { address, .. } => Some(address.port()),
            _ => None,
        };
        let by_port = |port| fitting.clone().find(|one| port_of(one) == Some(port));
        let found = match self.port {
            Some(port) => by_port(port),
            None => by_port(self.default_port()).or_else(|| fitting.next()),
        };
        found.ok_or_else(|| InvalidUrl::NoListener {
            url: format!("{}://{}", scheme(self.is_secure), self.authority),
            listeners: listeners
                .iter()
                .map(|one| format!("{} ({})", one.address, scheme(one.tls.is_some())))
                .collect(),
        })
    }
}

/// The scheme of a URL.
pub(crate) fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

/// A URL cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidUrl {
    /// The text is no URL with the scheme `http` or `https`.
    Invalid(String),
    /// No site has the host.
    NoSite {
        /// The host.
        host: String,
        /// The names of the sites.
        sites: Vec<String>,
    },
    /// No site listens on the port.
    NoPort {
        /// The port.
        port: u16,
        /// The ports of the sites.
        ports: Vec<u16>,
    },
    /// No listener serves the URL.
    NoListener {
        /// Its scheme and authority.
        url: String,
        /// The listeners.
        listeners: Vec<String>,
    },
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(
                f,
                "`{text}` is not a URL of a server; expected http://host/path or https://host/path"
            ),
            Self::NoSite { host, sites } => write!(
                f,
                "no site has the host `{host}`; the sites have {}",
                sites.join(", ")
            ),
            Self::NoPort { port, ports } => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                let ports = ports.join(", ");
                write!(f, "no site listens on port {port}; they listen on {ports}")
            }
            Self::NoListener { url, listeners } => write!(
                f,
                "nothing listens for {url}; the configuration listens on {}",
                listeners.join(", ")
            ),
        }
    }
}

impl std::error::Error for InvalidUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_url_apart_without_changing_it() {
        let url = Url::parse("https://Example.com:8443/a/../%2e?b#c").unwrap();
        assert!(url.is_secure);
        assert_eq!((url.host, url.port), ("Example.com", Some(8443)));
        assert_eq!(url.path_and_query, "/a/../%2e?b");
        let bare = Url::parse("http://[::1]").unwrap();
        assert_eq!(
            (bare.host, bare.port, bare.path_and_query),
            ("[::1]", None, "/")
        );
        for text in [
            "",
            "/a",
            "example.com/",
            "ftp://a/",
            "http://",
            "http://a@b/",
            "http:///x",
        ] {
            assert!(
                matches!(Url::parse(text), Err(InvalidUrl::Invalid(_))),
                "{text:?}"
            );
        }
    }
}
