//! The client of a request: the other end of its connection, or whom trusted proxies name.

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::Peer;

/// The address and port of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The address; `None` for a client of a Unix socket that names none.
    pub ip: Option<IpAddr>,
    /// The port, if it is known.
    pub port: Option<u16>,
}

impl Client {
    /// The client as the end of a connection. An unknown port is 0.
    pub fn peer(&self) -> Peer {
        match self.ip {
            Some(ip) => Peer::Ip(SocketAddr::new(ip, self.port.unwrap_or(0))),
            None => Peer::Unix,
        }
    }
}

impl From<Peer> for Client {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Ip(address) => Self {
                ip: Some(address.ip()),
                port: Some(address.port()),
            },
            Peer::Unix => Self {
                ip: None,
                port: None,
            },
        }
    }
}

/// The client of a request as trusted proxies name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardedInfo {
    pub(crate) client: Client,
    /// The trusted proxies of the request, the one next to the client first.
    pub(crate) proxies: SmallVec<[IpAddr; 2]>,
    pub(crate) is_secure: bool,
}
