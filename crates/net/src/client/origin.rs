//! Where a connection goes, and what has to be the same for two requests to share one.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::Tls;

/// Where a connection goes and how. Requests may share connections if, and only if, their origins are
/// equal: it is the key of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Where its socket is.
    pub address: Address,
    /// TLS; `None` is clear text.
    pub tls: Option<Tls>,
    /// What is spoken.
    pub protocol: Protocol,
    /// Whether the origin is told whom a connection is for. If it is, a connection serves that one
    /// client, and a pool's key has to hold the client's address too.
    pub proxy_head: ProxyHead,
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A Unix socket.
    Unix(Arc<Path>),
}

/// The protocol that is spoken to an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: over TLS it is all that is offered, in clear text it is spoken with prior knowledge
    /// (RFC 9113 section 3.3).
    Http2,
    /// Over TLS what the origin chooses of the two (RFC 7301), in clear text HTTP/1.1.
    Auto,
    /// FastCGI, to an application such as PHP-FPM.
    FastCgi,
}

/// The head with which a connection begins, naming the client it is for (HAProxy's
/// `doc/proxy-protocol.txt`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProxyHead {
    /// None.
    #[default]
    None,
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
