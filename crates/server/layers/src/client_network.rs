//! The network that limits take for one client.

#[cfg(feature = "rate-limit")]
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// What a table knows a client by: the network that counts as one client, and what is counted of it. It is hashed at once, as this is done for
/// each request: part by part it took twice the instructions.
#[cfg(feature = "rate-limit")]
pub(crate) struct ClientKey {
    network: u128,
    what: u8,
}

#[cfg(feature = "rate-limit")]
impl ClientKey {
    /// The key of a client, for one of several things that a table counts.
    pub(crate) fn new(what: u8, ip: IpAddr) -> Self {
        Self {
            network: client_network(ip),
            what,
        }
    }
}

#[cfg(feature = "rate-limit")]
impl Hash for ClientKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let what = u64::from(self.what);
        match u32::try_from(self.network) {
            Ok(v4) => state.write_u64(what << 32 | u64::from(v4)),
            // The lower half of a network is zero. A key of 16 bytes is none of 8 bytes.
            Err(_) => state.write_u128(self.network | u128::from(what)),
        }
    }
}

/// The number of the network that counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
pub(crate) fn client_network(ip: IpAddr) -> u128 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        // All networks but the unspecified one are greater than the number of any IPv4 address.
        IpAddr::V6(ip) => ip.to_bits() & !u128::from(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_and_an_ipv6_network_of_64_bits_are_one_client() {
        let network = |ip: &str| client_network(ip.parse().unwrap());
        for (one, other, are_same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", true),
            ("2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::", false),
            ("2001:db8:0:1::", "2001:db8:0:1:8000::", true),
            ("255.255.255.255", "0:0:0:1::", false),
        ] {
            assert_eq!(network(one) == network(other), are_same, "{one} {other}");
        }
    }
}
