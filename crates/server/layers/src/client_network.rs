//! The network that limits take for one client.

use std::net::IpAddr;

/// The number of the network that counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
pub(crate) fn client_network(ip: IpAddr) -> u128 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        // All networks but the unspecified one are greater than the number of any IPv4 address.
        IpAddr::V6(ip) => ip.to_bits() & !u128::from(u64::MAX),
    }
}
