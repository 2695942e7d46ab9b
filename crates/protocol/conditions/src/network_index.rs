//! `NetworkIndex`: of many sets of networks, those that a client belongs to, found in one search.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::network_set::{AddressRanges, NetworkSet};

/// Numbers by the set of networks that a client has to belong to.
#[derive(Debug)]
pub(crate) struct NetworkIndex {
    sets: Vec<NumberedSet>,
    kind: NetworkIndexKind,
}

/// A set of networks, and its numbers.
#[derive(Debug)]
struct NumberedSet {
    set: Arc<NetworkSet>,
    numbers: Vec<usize>,
}

#[derive(Debug)]
enum NetworkIndexKind {
    ByRange {
        v4: RangeIndex,
        v6: RangeIndex,
    },
    /// All networks together: the sets are asked one by one for a client of any of them.
    Union(NetworkSet),
}

/// Disjoint ranges of addresses, with the positions of the sets that each belongs to.
#[derive(Debug)]
struct RangeIndex {
    ranges: AddressRanges,
    /// The positions of all ranges one after the other, and where those of each begin.
    positions: Vec<u32>,
    starts: Vec<u32>,
}

/// How many times its ranges an index may have of positions: sets that overlap again and again would take memory without bound.
const MAX_OVERLAP: usize = 16;

impl NetworkIndex {
    /// The index of these sets.
    pub(crate) fn new(numbered: impl IntoIterator<Item = (Arc<NetworkSet>, usize)>) -> Self {
        let mut sets: Vec<NumberedSet> = Vec::new();
        // Many conditions may have the same list.
        let mut known: HashMap<*const NetworkSet, usize> = HashMap::new();
        for (set, number) in numbered {
            let at = *known.entry(Arc::as_ptr(&set)).or_insert_with(|| {
                let numbers = Vec::new();
                sets.push(NumberedSet { set, numbers });
                sets.len().saturating_sub(1)
            });
            if let Some(set) = sets.get_mut(at) {
                set.numbers.push(number);
            }
        }
        let ranges = |of: fn(&NetworkSet) -> &[(u128, u128)], whole| {
            let sets = sets.iter().zip(0_u32..);
            let ranges = sets.flat_map(|(set, at)| of(&set.set).iter().map(move |own| (*own, at)));
            RangeIndex::new(&ranges.collect::<Vec<_>>(), whole)
        };
        let v4 = ranges(NetworkSet::v4_ranges, 32);
        let v6 = ranges(NetworkSet::v6_ranges, 128);
        let kind = match (v4, v6) {
            (Some(v4), Some(v6)) => NetworkIndexKind::ByRange { v4, v6 },
            _ => {
                let sets = sets.iter().map(|set| &*set.set);
                NetworkIndexKind::Union(NetworkSet::union(sets))
            }
        };
        Self { sets, kind }
    }

    /// Adds the numbers of the sets that a client belongs to. One behind a Unix socket has no address.
    pub(crate) fn push_sets_of(&self, client: Option<IpAddr>, found: &mut Vec<usize>) {
        let positions = match (&self.kind, client.map(|client| client.to_canonical())) {
            (NetworkIndexKind::ByRange { v4, .. }, Some(IpAddr::V4(ip))) => {
                v4.find(u128::from(ip.to_bits()), 32)
            }
            (NetworkIndexKind::ByRange { v6, .. }, Some(IpAddr::V6(ip))) => {
                v6.find(ip.to_bits(), 128)
            }
            (NetworkIndexKind::Union(all), Some(_)) if !all.has_client(client) => return,
            _ => {
                let own = self.sets.iter().filter(|set| set.set.has_client(client));
                found.extend(own.flat_map(|set| &set.numbers));
                return;
            }
        };
        for position in positions.unwrap_or_default() {
            if let Some(set) = self.sets.get(*position as usize) {
                found.extend_from_slice(&set.numbers);
            }
        }
    }
}

impl RangeIndex {
    /// The index of these ranges, each with the position of its set; `None` if they overlap too much.
    fn new(found: &[((u128, u128), u32)], whole: u32) -> Option<Self> {
        // Where a range begins, and the first address behind it. Nothing is behind the last address of all.
        let mut bounds: Vec<(u128, bool, u32)> = Vec::new();
        for ((first, last), position) in found {
            bounds.push((*first, true, *position));
            if let Some(behind) = last.checked_add(1) {
                bounds.push((behind, false, *position));
            }
        }
        bounds.sort_unstable();
        let most = found.len().saturating_mul(MAX_OVERLAP);
        let (mut ranges, mut positions, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        let mut open = BTreeSet::new();
        let mut rest = &*bounds;
        while let Some((from, ..)) = rest.first() {
            let here = rest.iter().take_while(|(bound, ..)| bound == from).count();
            let (changes, behind) = rest.split_at_checked(here)?;
            rest = behind;
            for (_, begins, position) in changes {
                if *begins {
                    open.insert(*position);
                } else {
                    open.remove(position);
                }
            }
            if open.is_empty() {
                continue;
            }
            let until = behind.first().map_or(u128::MAX, |(next, ..)| next - 1);
            ranges.push((*from, until));
            starts.push(u32::try_from(positions.len()).ok()?);
            positions.extend(&open);
            if positions.len() > most {
                return None;
            }
        }
        Some(Self {
            ranges: AddressRanges::of_disjoint(ranges, whole),
            positions,
            starts,
        })
    }

    fn find(&self, address: u128, whole: u32) -> Option<&[u32]> {
        let at = self.ranges.find(address, whole)?;
        let from = *self.starts.get(at)? as usize;
        let until = self.starts.get(at.checked_add(1)?);
        let until = until.map_or(self.positions.len(), |until| *until as usize);
        self.positions.get(from..until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(texts: &[&str]) -> Vec<(Arc<NetworkSet>, usize)> {
        let sets = texts.iter().enumerate();
        sets.map(|(number, text)| {
            let networks = text.split(' ').map(|network| network.parse().unwrap());
            (Arc::new(NetworkSet::new(networks)), number)
        })
        .collect()
    }

    #[test]
    fn finds_the_sets_that_a_search_of_all_finds() {
        let sets = sets(&[
            "10.0.0.0/8 192.0.2.0/24",
            "10.1.0.0/16 10.2.0.0/16",
            "10.1.2.0/24 2001:db8::/32",
            "0.0.0.0/0",
            "::/0 unix:",
            "255.255.255.255",
            "10.2.0.0/15 unix:",
        ]);
        let index = NetworkIndex::new(sets.iter().cloned());
        assert!(matches!(index.kind, NetworkIndexKind::ByRange { .. }));
        for client in [
            "0.0.0.0",
            "9.255.255.255",
            "10.0.0.0",
            "10.1.1.255",
            "10.1.2.0",
            "10.1.3.0",
            "10.2.0.0",
            "10.3.255.255",
            "10.4.0.0",
            "11.0.0.0",
            "192.0.2.7",
            "255.255.255.255",
            "::ffff:10.1.2.3",
            "2001:db8::1",
            "2001:db9::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "unix",
        ] {
            let client = client.parse::<IpAddr>().ok();
            let mut found = Vec::new();
            index.push_sets_of(client, &mut found);
            let own = sets.iter().filter(|(set, _)| set.has_client(client));
            let expected: Vec<usize> = own.map(|(_, number)| *number).collect();
            assert_eq!(found, expected, "{client:?}");
        }
    }

    #[test]
    fn a_list_of_many_conditions_is_one_set() {
        let [(set, _)] = &*sets(&["10.0.0.0/8"]) else {
            panic!("not one set");
        };
        let index = NetworkIndex::new((0..1000).map(|number| (Arc::clone(set), number)));
        assert_eq!(index.sets.len(), 1);
        let mut found = Vec::new();
        index.push_sets_of("10.1.2.3".parse().ok(), &mut found);
        assert_eq!(found, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn has_no_more_memory_than_a_multiple_of_its_ranges() {
        let nested = |count: u32| {
            let sets = (0..count).map(|number| {
                // Each of them begins later and ends earlier than the one before.
                let networks = (number..2 * count - number)
                    .map(|part| format!("10.{}.{}.0/24", part / 256, part % 256));
                let set = NetworkSet::new(networks.map(|network| network.parse().unwrap()));
                (Arc::new(set), number as usize)
            });
            sets.collect::<Vec<_>>()
        };
        let index = NetworkIndex::new(nested(10));
        assert!(matches!(index.kind, NetworkIndexKind::ByRange { .. }));
        let index = NetworkIndex::new(nested(200));
        assert!(matches!(index.kind, NetworkIndexKind::Union(_)));
        for (client, expected) in [("10.0.3.1", &[0, 1, 2, 3][..]), ("192.0.2.1", &[])] {
            let mut found = Vec::new();
            index.push_sets_of(client.parse().ok(), &mut found);
            assert_eq!(found, expected);
        }
    }
}
