//! The destination of a connection, and all that two requests must have in common to share one.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use apus_codec::h1::HeadLimits;

use crate::tls::Tls;

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
    /// What its responses are read by.
    pub responses: ResponseRules,
}

/// The limits of the heads of responses, and of trailer sections, and what deviates from HTTP/1.1 and is accepted. Origins
/// are trusted to respond, but not to fill the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponseRules {
    /// The most bytes of a head: as they were sent over HTTP/1.1 and FastCGI; over HTTP/2 and HTTP/3 the bytes of names
    /// and values, and 32 for each line (RFC 9113 section 6.5.2).
    pub head_bytes: u32,
    /// The most field lines of a head.
    pub fields: u32,
    /// Whether HTTP/1.1 is read as old servers send it, where no recipient reads that in another way: lines that end with
    /// LF alone, lines without a colon, which are dropped, and equal repetitions of `Content-Length`.
    pub is_lenient: bool,
}

impl ResponseRules {
    /// The limits for the codec of HTTP/1.1 and FastCGI.
    pub(crate) fn head_limits(self) -> HeadLimits {
        HeadLimits {
            // A response has no target.
            target_bytes: 0,
            head_bytes: self.head_size(),
            fields: self.max_fields(),
        }
    }

    pub(crate) fn head_size(self) -> usize {
        usize::try_from(self.head_bytes).unwrap_or(usize::MAX)
    }

    pub(crate) fn max_fields(self) -> usize {
        usize::try_from(self.fields).unwrap_or(usize::MAX)
    }
}

impl Default for ResponseRules {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            fields: 256,
            is_lenient: false,
        }
    }
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
    #[cfg(feature = "http3")]
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
