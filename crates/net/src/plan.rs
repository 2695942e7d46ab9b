//! What the engine is to run: complete and valid before any of it takes over.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use apus_http::ServiceFactory;

use crate::Limits;
use crate::tls::TlsSettings;

/// What the engine is to run.
#[derive(Clone)]
pub struct Plan {
    /// Worker threads; the first is pinned to the first core this process may use, and so on.
    pub workers: NonZeroUsize,
    /// What one client may cost.
    pub limits: Limits,
    /// Where to listen, and what answers there. No address twice.
    pub listeners: Vec<Listener>,
}

/// One listening socket (of each worker, with `SO_REUSEPORT`) and what answers there.
#[derive(Clone)]
pub struct Listener {
    /// Where.
    pub address: ListenAddress,
    /// TLS; `None` is clear text.
    pub tls: Option<Arc<TlsSettings>>,
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

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Inherited { name } => write!(f, "systemd:{name}"),
        }
    }
}

/// A set of addresses: `10.0.0.0/8`, `::1`, or `unix:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The addresses whose first `bits` are those of `address`.
    Ip {
        /// Any address of the network.
        address: IpAddr,
        /// How many bits count.
        bits: u8,
    },
    /// Whoever may open our Unix sockets.
    Unix,
}
