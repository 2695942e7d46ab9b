//! The plan of the engine, which is complete and valid before any of it takes effect.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use apus_http::{Network, ServiceFactory};

use crate::client_filter::ClientFilter;
use crate::http3_settings::{Http3Secret, Http3Settings};
use crate::limits::Limits;
use crate::tls::TlsSettings;

/// The plan of the engine.
#[derive(Clone)]
pub struct EnginePlan {
    /// Worker threads; the first is pinned to the first core this process may use, and so on.
    pub workers: NonZeroUsize,
    /// The limits of clients.
    pub limits: Limits,
    /// The value of `Server` where a response has none (RFC 9110 section 10.2.4).
    pub server_field: Option<Arc<str>>,
    /// The listeners. No address occurs twice.
    pub listeners: Vec<ListenerPlan>,
    /// From which the keys of HTTP/3 are derived; `None` is a random one. With the secret of an earlier process, connections
    /// of that process are reset (RFC 9000 section 10.3), and its tokens are accepted. A reload does not change it.
    pub http3_secret: Option<Http3Secret>,
    /// Clients that may not connect; `None`: all may.
    pub client_filter: Option<Arc<dyn ClientFilter>>,
    /// Whether this engine is for something beside the work of the program, such as its administration. Then its workers are pinned to no
    /// core, and are no part of the load of the program.
    pub is_secondary: bool,
}

impl EnginePlan {
    /// A plan with the default limits, and without the field `Server`.
    pub fn new(workers: NonZeroUsize, listeners: Vec<ListenerPlan>) -> Self {
        Self {
            workers,
            limits: Limits::default(),
            server_field: None,
            listeners,
            http3_secret: None,
            client_filter: None,
            is_secondary: false,
        }
    }
}

/// One listening socket (of each worker, with `SO_REUSEPORT`) and its service.
#[derive(Clone)]
pub struct ListenerPlan {
    /// The address.
    pub address: ListenAddress,
    /// TLS; `None` is clear text.
    pub tls: Option<Arc<TlsSettings>>,
    /// Whether clients may use HTTP/2 with prior knowledge (RFC 9113 section 3.3). By ALPN they may if
    /// [`TlsSettings`] offer it.
    pub http2: bool,
    /// HTTP/3 at the UDP port of the same number; `None` is off. It needs TLS at an address of TCP, and no PROXY
    /// protocol. If the port cannot be bound, a warning is logged, and the other protocols are served.
    pub http3: Option<Http3Settings>,
    /// The proxies that may open a connection with a PROXY protocol head, and then must. Empty: none.
    pub proxy_protocol_from: Vec<Network>,
    /// The service of the listener.
    pub service: Arc<dyn ServiceFactory>,
}

impl ListenerPlan {
    /// A listener for HTTP/1.1 and HTTP/2 in clear text, behind no proxy.
    pub fn new(address: ListenAddress, service: Arc<dyn ServiceFactory>) -> Self {
        Self {
            address,
            tls: None,
            http2: true,
            http3: None,
            proxy_protocol_from: Vec::new(),
            service,
        }
    }
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address and port; port 0 picks a free one.
    Tcp {
        /// The address. `[::]` accepts IPv4 connections too unless `ipv6_only`.
        address: SocketAddr,
        /// Whether an IPv6 wildcard does not accept IPv4.
        ipv6_only: bool,
    },
    /// A Unix stream socket.
    Unix {
        /// Its path; a socket file that no process listens on is replaced.
        path: PathBuf,
        /// Permission bits of the socket file.
        mode: u32,
    },
    /// A socket from systemd (`LISTEN_FDS`), by its `FileDescriptorName=` or its index from 0.
    Inherited {
        /// Name or index.
        name: String,
    },
}

impl ListenAddress {
    /// An address and port, of which `[::]` accepts IPv4 connections too.
    pub fn tcp(address: impl Into<SocketAddr>) -> Self {
        Self::Tcp {
            address: address.into(),
            ipv6_only: false,
        }
    }

    /// The port of an address of TCP.
    #[cfg(feature = "http3")]
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp { address, .. } => Some(address.port()),
            Self::Unix { .. } | Self::Inherited { .. } => None,
        }
    }

    /// The URL of the listener on this machine.
    pub fn url(&self, is_tls: bool) -> String {
        let scheme = if is_tls { "https" } else { "http" };
        match self {
            Self::Tcp { address, .. } => {
                let port = match (is_tls, address.port()) {
                    (false, 80) | (true, 443) => String::new(),
                    (_, port) => format!(":{port}"),
                };
                match address.ip() {
                    ip if ip.is_unspecified() => format!("{scheme}://localhost{port}/"),
                    IpAddr::V4(ip) => format!("{scheme}://{ip}{port}/"),
                    IpAddr::V6(ip) => format!("{scheme}://[{ip}]{port}/"),
                }
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Inherited { name } => write!(f, "systemd:{name}"),
        }
    }
}
