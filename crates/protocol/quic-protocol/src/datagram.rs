//! Datagrams that an endpoint sends and receives.

use std::net::{IpAddr, SocketAddr};

/// A mark of a datagram in the IP header (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EcnCodepoint {
    /// ECT(0).
    Ect0 = 0b10,
    /// ECT(1).
    Ect1 = 0b01,
    /// Congestion experienced.
    Ce = 0b11,
}

impl EcnCodepoint {
    /// The mark with these two bits; `None` if there is none.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0b11 {
            0b10 => Some(Self::Ect0),
            0b01 => Some(Self::Ect1),
            0b11 => Some(Self::Ce),
            _ => None,
        }
    }
}

/// Where a run of datagrams goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its destination.
    pub destination: SocketAddr,
    /// The mark of each of them.
    pub ecn: Option<EcnCodepoint>,
    /// The bytes of all of them.
    pub size: usize,
    /// The bytes of each but the last, if there are several.
    pub segment_size: Option<usize>,
    /// The local address, if it is not that of the socket.
    pub src_ip: Option<IpAddr>,
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// The address of the peer.
    pub remote: SocketAddr,
    /// The local address that it was sent to, if the system reported it.
    pub local_ip: Option<IpAddr>,
    /// Its mark.
    pub ecn: Option<EcnCodepoint>,
}
