//! The destination of a connection, and all that two requests must have in common to share one.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::Tls;

/// The destination of a connection, and how to reach it. Requests may share connections if, and only if,
/// their origins are equal: it is the key of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The address of its socket.
    pub address: Address,
    /// TLS; `None` is clear text.
    pub tls: Option<Tls>,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether a PROXY protocol head names the client that a connection is for. Such a connection serves only
    /// that client, and the key of a pool has to include the client's address.
    pub proxy_head: ProxyHead,
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP, or UDP for HTTP/3.
    Ip(SocketAddr),
    /// A Unix socket.
    Unix(Arc<Path>),
}

/// The protocol of a connection to an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: over TLS no other protocol is offered, in clear text it is used with prior knowledge (RFC 9113
    /// section 3.3).
    Http2,
    /// Over TLS the origin chooses one of the two (RFC 7301); in clear text it is HTTP/1.1.
    Auto,
    /// HTTP/3. The origin needs TLS and an IP address, and gets no PROXY protocol head.
    Http3,
    /// FastCGI, to an application such as PHP-FPM.
    FastCgi,
}

/// The PROXY protocol head at the start of a connection, which names its client (HAProxy's
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
