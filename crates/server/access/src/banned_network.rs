//! Networks that bans are for.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use apus_http::{InvalidNetwork, Network};

/// The bits of a network of IPv6 that one client usually has (RFC 6177).
const CLIENT_BITS: u8 = 64;

/// A network, without the bits of its hosts. IPv4 within IPv6 is IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BannedNetwork {
    address: IpAddr,
    bits: u8,
}

impl BannedNetwork {
    /// The addresses that have the first `bits` bits in common with an address.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) => {
                let mapped = if address.is_ipv6() { 96 } else { 0 };
                let bits = bits.saturating_sub(mapped).min(32);
                let mask = u32::MAX.checked_shl(u32::from(32 - bits)).unwrap_or(0);
                Self {
                    address: IpAddr::V4((ip.to_bits() & mask).into()),
                    bits,
                }
            }
            IpAddr::V6(ip) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(u32::from(128 - bits)).unwrap_or(0);
                Self {
                    address: IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask)),
                    bits,
                }
            }
        }
    }

    /// What one client has: an address of IPv4, or 64 bits of an address of IPv6.
    pub fn of_client(address: IpAddr) -> Self {
        match address.to_canonical() {
            address @ IpAddr::V4(_) => Self::new(address, 32),
            address @ IpAddr::V6(_) => Self::new(address, CLIENT_BITS),
        }
    }

    /// Any address of the network, if it is what one client has.
    pub fn client(&self) -> Option<IpAddr> {
        let of_client = if self.address.is_ipv4() {
            32
        } else {
            CLIENT_BITS
        };
        (self.bits == of_client).then_some(self.address)
    }

    /// How many bits count.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether the networks have an address in common.
    pub fn overlaps(&self, other: Network) -> bool {
        let Network::Ip { address, bits } = other else {
            return false;
        };
        let other = Self::new(address, bits);
        Network::from(*self).contains_ip(other.address)
            || Network::from(other).contains_ip(self.address)
    }
}

impl From<BannedNetwork> for Network {
    fn from(network: BannedNetwork) -> Self {
        Self::Ip {
            address: network.address,
            bits: network.bits,
        }
    }
}

impl fmt::Display for BannedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address of IPv6 alone would be read as what its client has.
        if self.address.is_ipv4() && self.bits == 32 {
            self.address.fmt(f)
        } else {
            write!(f, "{}/{}", self.address, self.bits)
        }
    }
}

/// An address, or an address and a number of bits. An address of IPv6 alone stands for what its client has.
impl FromStr for BannedNetwork {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        match text.parse()? {
            Network::Unix => Err(InvalidNetwork),
            Network::Ip { address, .. } if !text.contains('/') => Ok(Self::of_client(address)),
            Network::Ip { address, bits } => Ok(Self::new(address, bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> BannedNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_one_form() {
        for (text, form) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1/32", "192.0.2.1"),
            ("192.0.2.1/24", "192.0.2.0/24"),
            ("192.0.2.1/0", "0.0.0.0/0"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1/120", "192.0.2.0/24"),
            ("2001:db8::1", "2001:db8::/64"),
            ("2001:db8::1/128", "2001:db8::1/128"),
            ("2001:db8:1::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(network(text).to_string(), form, "{text}");
            assert_eq!(network(&network(text).to_string()), network(text), "{text}");
        }
        for text in ["unix:", "", "192.0.2.1/33", "x", "2001:db8::/129"] {
            assert!(text.parse::<BannedNetwork>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_overlap_if_one_is_in_the_other() {
        for (one, other, expected) in [
            ("192.0.2.0/24", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.0/24", true),
            ("192.0.3.7", "192.0.2.0/24", false),
            ("0.0.0.0/0", "127.0.0.0/8", true),
            ("::/0", "127.0.0.0/8", false),
            ("::1", "::1", true),
            ("192.0.2.7", "unix:", false),
        ] {
            let overlaps = network(one).overlaps(other.parse().unwrap());
            assert_eq!(overlaps, expected, "{one} {other}");
        }
    }
}
