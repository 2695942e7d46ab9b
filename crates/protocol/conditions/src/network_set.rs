//! Sets of networks, in which an address is found in the same time whether there are ten or a hundred thousand.

use std::net::IpAddr;

use apus_http::Network;

/// The bits of an address by which the first step of a search goes.
const FIRST_BITS: u32 = 16;

/// A set of networks.
#[derive(Debug, Default)]
pub struct NetworkSet {
    v4: AddressRanges,
    v6: AddressRanges,
    has_unix: bool,
}

/// Disjoint ranges of addresses in ascending order, and where those of each first 16 bits begin.
#[derive(Debug, Default)]
pub(crate) struct AddressRanges {
    ranges: Vec<(u128, u128)>,
    /// For each value of the first bits, the first range that ends there or later. Empty if there are few ranges.
    starts: Vec<u32>,
}

impl NetworkSet {
    /// The set of these networks.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        let (mut v4, mut v6, mut has_unix) = (Vec::new(), Vec::new(), false);
        for network in networks {
            match network {
                Network::Unix => has_unix = true,
                Network::Ip { address, bits } => match address.to_canonical() {
                    IpAddr::V4(ip) => v4.push(range(u128::from(ip.to_bits()), 32, bits)),
                    IpAddr::V6(ip) => v6.push(range(ip.to_bits(), 128, bits)),
                },
            }
        }
        Self {
            v4: AddressRanges::new(v4, 32),
            v6: AddressRanges::new(v6, 128),
            has_unix,
        }
    }

    /// All that belongs to one of these sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut v4, mut v6, mut has_unix) = (Vec::new(), Vec::new(), false);
        for set in sets {
            v4.extend_from_slice(&set.v4.ranges);
            v6.extend_from_slice(&set.v6.ranges);
            has_unix |= set.has_unix;
        }
        Self {
            v4: AddressRanges::new(v4, 32),
            v6: AddressRanges::new(v6, 128),
            has_unix,
        }
    }

    /// Whether an address belongs to one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(ip) => self.v4.contains(u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) => self.v6.contains(ip.to_bits(), 128),
        }
    }

    /// Whether a client belongs to it, which has no address behind a Unix socket.
    pub fn has_client(&self, address: Option<IpAddr>) -> bool {
        address.map_or(self.has_unix, |address| self.contains(address))
    }

    /// Whether clients of Unix sockets belong to it.
    pub fn contains_unix(&self) -> bool {
        self.has_unix
    }

    /// Its ranges of IPv4 addresses.
    pub(crate) fn v4_ranges(&self) -> &[(u128, u128)] {
        &self.v4.ranges
    }

    /// Its ranges of IPv6 addresses.
    pub(crate) fn v6_ranges(&self) -> &[(u128, u128)] {
        &self.v6.ranges
    }

    /// Whether no client belongs to it.
    pub fn is_empty(&self) -> bool {
        self.v4.ranges.is_empty() && self.v6.ranges.is_empty() && !self.has_unix
    }

    /// Whether no client belongs to both.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        !(self.has_unix && other.has_unix)
            && self.v4.is_disjoint(&other.v4)
            && self.v6.is_disjoint(&other.v6)
    }
}

/// The first and the last address of a network.
pub(crate) fn range(address: u128, whole: u8, bits: u8) -> (u128, u128) {
    let host_bits = u32::from(whole.saturating_sub(bits));
    let host = 1_u128
        .checked_shl(host_bits)
        .map_or(u128::MAX, |size| size - 1);
    (address & !host, address | host)
}

impl AddressRanges {
    fn new(mut found: Vec<(u128, u128)>, whole: u32) -> Self {
        found.sort_unstable();
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for (first, last) in found {
            match ranges.last_mut() {
                Some((_, end)) if end.checked_add(1).is_none_or(|next| first <= next) => {
                    *end = last.max(*end);
                }
                _ => ranges.push((first, last)),
            }
        }
        Self::of_disjoint(ranges, whole)
    }

    /// Those of disjoint ranges in ascending order.
    pub(crate) fn of_disjoint(mut ranges: Vec<(u128, u128)>, whole: u32) -> Self {
        ranges.shrink_to_fit();
        let mut starts = Vec::new();
        // Fewer are found as fast without the table, which has 256 KB.
        if ranges.len() > 64 {
            let mut next = 0;
            for bucket in 0..=u128::from(u16::MAX) {
                let begin = bucket << (whole - FIRST_BITS);
                while ranges.get(next).is_some_and(|(_, last)| *last < begin) {
                    next += 1;
                }
                starts.push(u32::try_from(next).unwrap_or(u32::MAX));
            }
        }
        Self { ranges, starts }
    }

    fn contains(&self, address: u128, whole: u32) -> bool {
        self.find(address, whole).is_some()
    }

    /// The position of the range that an address is in.
    pub(crate) fn find(&self, address: u128, whole: u32) -> Option<usize> {
        let bucket = usize::try_from(address >> (whole - FIRST_BITS)).unwrap_or(usize::MAX);
        let (from, until) = match self.starts.get(bucket) {
            Some(from) => {
                let next = bucket.checked_add(1).and_then(|next| self.starts.get(next));
                // The last range of this bucket may be the first one of the next.
                let until = next.map_or(self.ranges.len(), |next| *next as usize + 1);
                (*from as usize, until.min(self.ranges.len()))
            }
            None => (0, self.ranges.len()),
        };
        let candidates = self.ranges.get(from..until).unwrap_or_default();
        let at = candidates.partition_point(|(_, last)| *last < address);
        candidates
            .get(at)
            .filter(|(first, _)| *first <= address)
            .map(|_| from.saturating_add(at))
    }

    fn is_disjoint(&self, other: &Self) -> bool {
        let (mut own, mut others) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        while let (Some((first, last)), Some((other_first, other_last))) =
            (own.peek(), others.peek())
        {
            if last < other_first {
                own.next();
            } else if other_last < first {
                others.next();
            } else {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(networks: &[String]) -> NetworkSet {
        NetworkSet::new(networks.iter().map(|text| text.parse().unwrap()))
    }

    #[test]
    fn finds_addresses_as_a_search_of_all_networks_does() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for count in [0, 1, 10, 65, 2000] {
            let networks: Vec<Network> = (0..count)
                .map(|_| {
                    let bits = next() % 25 + 8;
                    let address = std::net::Ipv4Addr::from_bits(next() as u32);
                    match next() % 3 {
                        0 => format!("2001:db8:{:x}::/{}", next() % 0x1_0000, 20 + bits)
                            .parse()
                            .unwrap(),
                        _ => format!("{address}/{bits}").parse().unwrap(),
                    }
                })
                .collect();
            let set = NetworkSet::new(networks.iter().copied());
            for _ in 0..2000 {
                let address: IpAddr = match next() % 3 {
                    0 => format!("2001:db8:{:x}::{:x}", next() % 0x1_0000, next() % 0x1_0000)
                        .parse()
                        .unwrap(),
                    1 => std::net::Ipv4Addr::from_bits(next() as u32).into(),
                    _ => match networks.get(next() as usize % count.max(1)) {
                        Some(Network::Ip { address, .. }) => *address,
                        _ => continue,
                    },
                };
                let expected = networks.iter().any(|network| network.contains_ip(address));
                assert_eq!(set.contains(address), expected, "{address} in {networks:?}");
            }
        }
    }

    #[test]
    fn an_ipv4_address_within_ipv6_is_the_same_address() {
        let set = set(&["10.0.0.0/8".to_owned()]);
        assert!(set.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!set.contains("::ffff:11.1.2.3".parse().unwrap()));
    }

    #[test]
    fn sets_without_a_common_address_are_disjoint() {
        let of = |text: &str| set(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for (one, other, expected) in [
            ("10.0.0.0/8", "192.168.0.0/16", true),
            ("10.0.0.0/8 ::1", "192.168.0.0/16 ::1", false),
            ("10.0.0.0/8", "10.9.0.0/16", false),
            ("unix:", "unix:", false),
            ("unix:", "0.0.0.0/0", true),
        ] {
            assert_eq!(of(one).is_disjoint(&of(other)), expected, "{one}, {other}");
        }
    }
}
