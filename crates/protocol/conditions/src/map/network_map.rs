//! Networks with a value each, of which the longest prefix decides about an address.

use std::net::IpAddr;

use apus_http::Network;

use crate::network_set::{AddressRanges, range};

/// A network as the first and the last of its addresses, which is the same value however the network is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NetworkKey {
    Unix,
    V4(u128, u128),
    V6(u128, u128),
}

impl From<Network> for NetworkKey {
    fn from(network: Network) -> Self {
        match network {
            Network::Unix => Self::Unix,
            Network::Ip { address, bits } => match address.to_canonical() {
                IpAddr::V4(ip) => {
                    let (first, last) = range(u128::from(ip.to_bits()), 32, bits);
                    Self::V4(first, last)
                }
                IpAddr::V6(ip) => {
                    let (first, last) = range(ip.to_bits(), 128, bits);
                    Self::V6(first, last)
                }
            },
        }
    }
}

/// Networks with the position of a value each.
#[derive(Debug, Default)]
pub(super) struct NetworkMap {
    v4: ValueRanges,
    v6: ValueRanges,
    of_unix: Option<u32>,
}

/// Disjoint ranges of addresses, and the value of each.
#[derive(Debug, Default)]
struct ValueRanges {
    ranges: AddressRanges,
    values: Vec<u32>,
}

/// The first and the last address of a network, and its value.
type NetworkRange = (u128, u128, u32);

impl NetworkMap {
    /// The map of these networks, each of which is there once.
    pub(super) fn new(networks: impl IntoIterator<Item = (NetworkKey, u32)>) -> Self {
        let (mut v4, mut v6, mut of_unix) = (Vec::new(), Vec::new(), None);
        for (network, value) in networks {
            match network {
                NetworkKey::Unix => of_unix = Some(value),
                NetworkKey::V4(first, last) => v4.push((first, last, value)),
                NetworkKey::V6(first, last) => v6.push((first, last, value)),
            }
        }
        Self {
            v4: ValueRanges::new(v4, 32),
            v6: ValueRanges::new(v6, 128),
            of_unix,
        }
    }

    /// The value of a client, which has no address behind a Unix socket.
    pub(super) fn find(&self, client: Option<IpAddr>) -> Option<u32> {
        match client.map(|address| address.to_canonical()) {
            None => self.of_unix,
            Some(IpAddr::V4(ip)) => self.v4.find(u128::from(ip.to_bits()), 32),
            Some(IpAddr::V6(ip)) => self.v6.find(ip.to_bits(), 128),
        }
    }
}

impl ValueRanges {
    fn new(mut networks: Vec<NetworkRange>, whole: u32) -> Self {
        // A network that holds others stands before them. Two networks are disjoint, or one holds the other.
        networks.sort_unstable_by_key(|(first, last, _)| (*first, std::cmp::Reverse(*last)));
        let mut flat = FlatRanges::default();
        // The networks that hold the one at hand, the smallest last.
        let mut around: Vec<NetworkRange> = Vec::new();
        for network in networks {
            while let Some(outer) = around.pop_if(|outer| outer.1 < network.0) {
                flat.push_until(outer.1, outer.2);
            }
            if let (Some(outer), Some(before)) = (around.last(), network.0.checked_sub(1)) {
                flat.push_until(before, outer.2);
            }
            flat.next = Some(network.0);
            around.push(network);
        }
        while let Some(outer) = around.pop() {
            flat.push_until(outer.1, outer.2);
        }
        Self {
            ranges: AddressRanges::of_disjoint(flat.ranges, whole),
            values: flat.values,
        }
    }

    fn find(&self, address: u128, whole: u32) -> Option<u32> {
        let at = self.ranges.find(address, whole)?;
        self.values.get(at).copied()
    }
}

/// Ranges that are made of networks within one another.
#[derive(Default)]
struct FlatRanges {
    ranges: Vec<(u128, u128)>,
    values: Vec<u32>,
    /// The first address that has no range yet; `None` behind the last address of all.
    next: Option<u128>,
}

impl FlatRanges {
    /// Adds the range from the next address to the last one, if there is any.
    fn push_until(&mut self, last: u128, value: u32) {
        if let Some(first) = self.next.filter(|first| *first <= last) {
            self.ranges.push((first, last));
            self.values.push(value);
            self.next = last.checked_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_as_in_a_search_of_all_networks() {
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for count in [0, 1, 5, 40, 700] {
            let mut networks: Vec<(Network, u32)> = Vec::new();
            for value in 0..count {
                // A few bits, so that networks hold one another, also at both ends of all addresses.
                let bits = next() % 33;
                let address = ((next() as u32) & 0xc300_0003) | (0xff00_0000 * (next() % 2) as u32);
                let text = match next() % 3 {
                    0 => {
                        let bits = (bits * 4).min(128);
                        let part = 0xffff * (next() % 2);
                        format!("{part:x}:{part:x}::{:x}/{bits}", next() % 4)
                    }
                    _ => format!("{}/{bits}", std::net::Ipv4Addr::from_bits(address)),
                };
                let Ok(network) = text.parse::<Network>() else {
                    continue;
                };
                if networks
                    .iter()
                    .all(|(other, _)| NetworkKey::from(*other) != network.into())
                {
                    networks.push((network, value));
                }
            }
            let map = NetworkMap::new(
                networks
                    .iter()
                    .map(|(network, value)| ((*network).into(), *value)),
            );
            for _ in 0..3000 {
                let address: IpAddr = match next() % 3 {
                    0 => {
                        let part = 0xffff * (next() % 2);
                        format!("{part:x}:{part:x}::{:x}", next() % 5)
                            .parse()
                            .unwrap()
                    }
                    1 => std::net::Ipv4Addr::from_bits(next() as u32).into(),
                    _ => std::net::Ipv4Addr::from_bits(
                        ((next() as u32) & 0xc300_0003) | (0xff00_0000 * (next() % 2) as u32),
                    )
                    .into(),
                };
                let expected = networks
                    .iter()
                    .filter(|(network, _)| network.contains_ip(address))
                    .max_by_key(|(network, _)| match network {
                        Network::Ip { bits, .. } => *bits,
                        Network::Unix => 0,
                    })
                    .map(|(_, value)| *value);
                assert_eq!(map.find(Some(address)), expected, "{address}");
            }
        }
    }
}
