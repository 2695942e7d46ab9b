//! What the engine is to run: complete and valid before any of it takes over.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use apus_http::{Peer, ServiceFactory};

use crate::limits::Limits;
use crate::tls::TlsSettings;

/// What the engine is to run.
#[derive(Clone)]
pub struct Plan {
    /// Worker threads; the first is pinned to the first core this process may use, and so on.
    pub workers: NonZeroUsize,
    /// What one client may cost.
    pub limits: Limits,
    /// The value of `Server` where a response has none (RFC 9110 section 10.2.4).
    pub server_field: Option<Arc<str>>,
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

impl Network {
    /// Whether `peer` belongs to it.
    pub fn contains(&self, peer: &Peer) -> bool {
        match (self, peer) {
            (Self::Unix, Peer::Unix) => true,
            (Self::Ip { address, bits }, Peer::Ip(peer)) => {
                match (address.to_canonical(), peer.ip().to_canonical()) {
                    (IpAddr::V4(network), IpAddr::V4(peer)) => {
                        let differing = network.to_bits() ^ peer.to_bits();
                        differing.leading_zeros() >= u32::from(*bits)
                    }
                    (IpAddr::V6(network), IpAddr::V6(peer)) => {
                        let differing = network.to_bits() ^ peer.to_bits();
                        differing.leading_zeros() >= u32::from(*bits)
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        if text == "unix:" {
            return Ok(Self::Unix);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| InvalidNetwork)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        match bits.unwrap_or(whole) {
            bits if bits <= whole => Ok(Self::Ip { address, bits }),
            _ => Err(InvalidNetwork),
        }
    }
}

/// The text is not `address`, `address/bits` or `unix:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidNetwork;

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network is an address, address/bits such as 10.0.0.0/8, or unix:")
    }
}

impl std::error::Error for InvalidNetwork {}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, peer: &str) -> bool {
        let peer = Peer::Ip(SocketAddr::new(peer.parse().unwrap(), 1));
        network.parse::<Network>().unwrap().contains(&peer)
    }

    #[test]
    fn networks_hold_the_addresses_that_share_their_first_bits() {
        assert!(contains("10.0.0.0/8", "10.255.0.1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("0.0.0.0/0", "1.2.3.4"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(contains("fd00::/8", "fd12::1") && !contains("fd00::/8", "fe80::1"));
        assert!(contains("::1", "::1") && !contains("::1", "::2"));
        assert!(!contains("::/0", "127.0.0.1"));
        for text in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/"] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text:?}");
        }
    }
}
