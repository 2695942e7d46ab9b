//! What the engine is to run: complete and valid before any of it takes over.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use apus_http::{Network, ServiceFactory};

use crate::limits::Limits;
use crate::tls::TlsSettings;

/// What the engine is to run.
#[derive(Clone)]
pub struct EnginePlan {
    /// Worker threads; the first is pinned to the first core this process may use, and so on.
    pub workers: NonZeroUsize,
    /// What one client may cost.
    pub limits: Limits,
    /// The value of `Server` where a response has none (RFC 9110 section 10.2.4).
    pub server_field: Option<Arc<str>>,
    /// Where to listen, and what answers there. No address twice.
    pub listeners: Vec<ListenerPlan>,
}

/// One listening socket (of each worker, with `SO_REUSEPORT`) and what answers there.
#[derive(Clone)]
pub struct ListenerPlan {
    /// Where.
    pub address: ListenAddress,
    /// TLS; `None` is clear text.
    pub tls: Option<Arc<TlsSettings>>,
    /// Whether HTTP/2 is spoken with clients that begin with it unasked (RFC 9113 section 3.3). By
    /// ALPN it is where [`TlsSettings`] offer it.
    pub http2: bool,
    /// Who may, and then must, open a connection with a PROXY protocol head. Empty: nobody.
    pub proxy_protocol_from: Vec<Network>,
    /// What answers.
    pub service: Arc<dyn ServiceFactory>,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address and port; port 0 picks a free one.
    Tcp {
        /// The address. `[::]` takes IPv4 connections too unless `ipv6_only`.
        address: SocketAddr,
        /// Whether an IPv6 wildcard leaves IPv4 alone.
        ipv6_only: bool,
    },
    /// A Unix stream socket.
    Unix {
        /// Its path; a socket that nobody listens on is replaced.
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
    /// What somebody on this machine opens to reach it.
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
