//! Networks: sets of client addresses that a configuration trusts, allows or limits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::Peer;

/// A set of addresses: `10.0.0.0/8`, `::1`, or `unix:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The addresses that have the first `bits` bits in common with `address`.
    Ip {
        /// Any address of the network.
        address: IpAddr,
        /// How many bits count.
        bits: u8,
    },
    /// All clients of Unix sockets.
    Unix,
}

impl Network {
    /// Whether `peer` belongs to it.
    pub fn contains(&self, peer: &Peer) -> bool {
        match (self, peer) {
            (Self::Unix, Peer::Unix) => true,
            (Self::Ip { .. }, Peer::Ip(peer)) => self.contains_ip(peer.ip()),
            _ => false,
        }
    }

    /// Whether an IP address belongs to it.
    pub fn contains_ip(&self, ip: IpAddr) -> bool {
        let Self::Ip { address, bits } = self else {
            return false;
        };
        let differing_from = match (address.to_canonical(), ip.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                (network.to_bits() ^ ip.to_bits()).leading_zeros()
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                (network.to_bits() ^ ip.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differing_from >= u32::from(*bits)
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
        let bits: u8 = bits.unwrap_or(whole);
        if bits > whole {
            return Err(InvalidNetwork);
        }
        // IPv4 addresses within IPv6 are IPv4 addresses, and so are their networks: `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
        let canonical = address.to_canonical();
        let bits = if canonical == address {
            bits
        } else {
            bits.checked_sub(96).ok_or(InvalidNetwork)?
        };
        Ok(Self::Ip {
            address: canonical,
            bits,
        })
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
    use std::net::SocketAddr;

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
        for network in ["::ffff:10.0.0.0/104", "::ffff:0:0/96", "::ffff:10.1.2.3"] {
            assert!(contains(network, "10.1.2.3"), "{network}");
            assert!(contains(network, "::ffff:10.1.2.3"), "{network}");
            assert_eq!(contains(network, "11.0.0.1"), network == "::ffff:0:0/96");
        }
        for text in [
            "",
            "x",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/-1",
            "10.0.0.0/",
            "::ffff:10.0.0.0/95",
        ] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text:?}");
        }
    }
}
