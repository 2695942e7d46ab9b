//! The generated configuration of a folder that is served without a configuration file.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use apus_net::ListenAddress;

/// The default ports.
const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;

/// The number of ports after the default one that are tried.
const PORTS_TO_TRY: u16 = 100;

/// An address to listen on: `PORT`, `ADDRESS:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenArgument {
    /// A port on all addresses.
    Port(u16),
    /// One address.
    Address(SocketAddr),
    /// A Unix socket.
    Unix(String),
}

impl ListenArgument {
    /// The default address, or that with the next free port: 127.0.0.1:8080, with TLS 127.0.0.1:8443.
    pub fn free(is_tls: bool) -> Self {
        free_port(if is_tls { TLS_PORT } else { PORT })
    }

    /// The address for a listener. Every user of the machine may connect to a Unix socket.
    pub fn address(&self) -> ListenAddress {
        match self {
            Self::Port(port) => ListenAddress::tcp((Ipv6Addr::UNSPECIFIED, *port)),
            Self::Address(address) => ListenAddress::tcp(*address),
            Self::Unix(path) => ListenAddress::Unix {
                path: path.into(),
                mode: 0o666,
            },
        }
    }
}

impl FromStr for ListenArgument {
    type Err = InvalidListen;

    fn from_str(text: &str) -> Result<Self, InvalidListen> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.to_owned()));
        }
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
            return Ok(Self::Port(port));
        }
        let text = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        text.parse().map(Self::Address).map_err(|_| InvalidListen)
    }
}

impl fmt::Display for ListenArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// The text is no address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidListen;

impl fmt::Display for InvalidListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a port (8080), an address and port (127.0.0.1:8080, [::1]:8080), or unix:/path")
    }
}

impl std::error::Error for InvalidListen {}

/// The listeners of a folder. They are chosen once, so that a reload keeps them.
#[derive(Clone, Debug)]
pub(crate) struct FolderConfig {
    /// The address that was named, which is not the default one.
    named: Option<ListenArgument>,
    listen: Option<ListenArgument>,
    listen_tls: Option<ListenArgument>,
}

impl FolderConfig {
    /// Chooses the addresses. Default ports that are in use are skipped.
    pub(crate) fn new(listen: Option<ListenArgument>, tls: bool) -> Self {
        let named = listen.clone();
        match (listen, tls) {
            (Some(listen), false) => Self {
                named,
                listen: Some(listen),
                listen_tls: None,
            },
            (Some(listen), true) => Self {
                named,
                listen: None,
                listen_tls: Some(listen),
            },
            (None, tls) => Self {
                named,
                listen: Some(ListenArgument::free(false)),
                listen_tls: tls.then(|| ListenArgument::free(true)),
            },
        }
    }

    /// Chooses default ports that are free now; false if an address was named.
    pub(crate) fn choose_again(&mut self) -> bool {
        let is_default = self.named.is_none();
        if is_default {
            *self = Self::new(None, self.listen_tls.is_some());
        }
        is_default
    }

    /// The address that was named, if one was.
    pub(crate) fn named_address(&self) -> Option<&ListenArgument> {
        self.named.as_ref()
    }

    /// The configuration of `folder`, without a certificate.
    pub(crate) fn configuration(&self, folder: &str) -> String {
        let mut text = format!("[[sites]]\nroot = {}\nlisting = true\n", quoted(folder));
        if let Some(listen) = &self.listen {
            text += &format!("listen = [{}]\n", written(listen));
        }
        if let Some(listen) = &self.listen_tls {
            text += &format!("listen_tls = [{}]\n", written(listen));
        }
        text
    }
}

fn written(listen: &ListenArgument) -> String {
    match listen {
        ListenArgument::Port(port) => port.to_string(),
        other => quoted(&other.to_string()),
    }
}

/// A TOML string without references to the environment.
fn quoted(text: &str) -> String {
    toml::Value::String(text.replace("${", "$${")).to_string()
}

/// The first free port from `first` on.
fn free_port(first: u16) -> ListenArgument {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let port = (first..first.saturating_add(PORTS_TO_TRY))
        .find(|port| TcpListener::bind(address(*port)).is_ok())
        .unwrap_or(first);
    ListenArgument::Address(address(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_listen_arguments() {
        let read = |text: &str| text.parse::<ListenArgument>().ok().map(|l| l.to_string());
        assert_eq!(read("80").as_deref(), Some("80"));
        assert_eq!(read(":80").as_deref(), Some("80"));
        assert_eq!(read("localhost:80").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(read("[::1]:80").as_deref(), Some("[::1]:80"));
        assert_eq!(read("unix:/x").as_deref(), Some("unix:/x"));
        for text in ["", "x", "65536", "1.2.3.4", "unix:", "example.com:80"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn only_default_ports_are_chosen_again() {
        let mut named = FolderConfig::new(Some(ListenArgument::Port(80)), false);
        assert!(!named.choose_again());
        assert_eq!(named.listen, Some(ListenArgument::Port(80)));
        let mut chosen = FolderConfig::new(None, true);
        let Some(ListenArgument::Address(before)) = chosen.listen else {
            panic!("{chosen:?}");
        };
        let _taken = TcpListener::bind(before);
        assert!(chosen.choose_again());
        assert_ne!(chosen.listen, Some(ListenArgument::Address(before)));
        assert!(chosen.listen_tls.is_some());
    }

    #[test]
    fn skips_ports_that_are_in_use() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_ne!(free_port(port).to_string(), format!("127.0.0.1:{port}"));
    }

    #[test]
    fn no_name_of_a_folder_is_taken_for_more() {
        let site = FolderConfig::new(Some(ListenArgument::Port(0)), false);
        let text = site.configuration("/a\"\n${HOME}");
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["sites"][0]["root"].as_str(), Some("/a\"\n$${HOME}"));
    }
}
