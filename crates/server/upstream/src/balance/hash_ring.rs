//! Consistent hashing on a ring (ketama), by which only the keys of a node move when it comes or goes.

use aws_lc_rs::digest::{SHA256, digest};

/// The points of a node of mean weight. More points make the shares more even.
// As in ketama and nginx. The share of a node deviates from its mean by about one part in the square root of this
// number.
const POINTS: u64 = 160;

/// The points of a ring, each with the index of its node.
#[derive(Debug, Default)]
pub(crate) struct HashRing {
    points: Box<[(u64, u32)]>,
}

impl HashRing {
    /// Creates a ring of nodes, each with the name that its points are made of, and its weight.
    pub(crate) fn new<'a>(nodes: impl Iterator<Item = (&'a str, u32)> + Clone) -> Self {
        let count = nodes.clone().count() as u64;
        let weights: u64 = nodes.clone().map(|(_, weight)| u64::from(weight)).sum();
        let mut points = Vec::new();
        for (index, (name, weight)) in (0..).zip(nodes) {
            let share = POINTS * count * u64::from(weight) / weights.max(1);
            // With a small weight, too, a node has a point: without one, no key would ever reach it.
            points_of(name, share.max(1), |point| points.push((point, index)));
        }
        points.sort_unstable();
        Self {
            points: points.into(),
        }
    }

    /// Picks the node of `key`: the first candidate at or after it.
    pub(crate) fn pick(&self, key: u64, is_candidate: impl Fn(usize) -> bool) -> Option<usize> {
        let start = self.points.partition_point(|&(point, _)| point < key);
        let (before, after) = self.points.split_at(start);
        after
            .iter()
            // The next candidate on the ring: only the keys of a node that is out move, and come back with it.
            .chain(before)
            .map(|&(_, index)| index as usize)
            .find(|&index| is_candidate(index))
    }
}

/// Passes the first `count` points of a name to `add`.
fn points_of(name: &str, count: u64, mut add: impl FnMut(u64)) {
    let mut left = count;
    for block in 0_u32.. {
        let mut input = name.as_bytes().to_vec();
        input.push(0);
        input.extend_from_slice(&block.to_be_bytes());
        // A digest makes four points. It is not on the path of a request: a ring is made when the nodes change.
        let hash = digest(&SHA256, &input);
        for bytes in hash.as_ref().as_chunks::<8>().0 {
            if left == 0 {
                return;
            }
            add(u64::from_be_bytes(*bytes));
            left -= 1;
        }
    }
}

/// Hashes a key of consistent hashing, such as an address, a request target or the value of a header or a
/// cookie. The hash is the same on every worker and machine, and in every version.
pub fn hash_key(key: &[u8]) -> u64 {
    // FNV-1a, then the finaliser of MurmurHash3: FNV alone gives neighbouring hashes to keys that differ
    // only in their last byte.
    let mut hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring(nodes: &[(&str, u32)]) -> HashRing {
        HashRing::new(nodes.iter().copied())
    }

    fn key(number: u32) -> u64 {
        hash_key(format!("/page/{number}").as_bytes())
    }

    #[test]
    fn shares_keys_by_weight() {
        let ring = ring(&[("a", 1), ("b", 1), ("c", 2)]);
        let mut counts = [0; 3];
        for number in 0..40_000 {
            counts[ring.pick(key(number), |_| true).unwrap()] += 1;
        }
        for (count, expected) in counts.into_iter().zip([10_000, 10_000, 20_000]) {
            let difference = i32::abs(count - expected);
            assert!(difference < expected / 4, "{counts:?}");
        }
    }

    #[test]
    fn moves_only_the_keys_of_the_node_that_goes() {
        let ring = ring(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        for number in 0..5_000 {
            let with = ring.pick(key(number), |_| true).unwrap();
            let without = ring.pick(key(number), |index| index != 2).unwrap();
            assert!(with == without || with == 2);
            assert_ne!(without, 2);
        }
    }

    #[test]
    fn keeps_nearly_all_keys_when_a_node_comes() {
        let three = ring(&[("a", 1), ("b", 1), ("c", 1)]);
        let four = ring(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let moved = (0..10_000)
            .filter(|&number| {
                let before = three.pick(key(number), |_| true);
                let after = four.pick(key(number), |_| true);
                assert!(before == after || after == Some(3));
                before != after
            })
            .count();
        assert!((1_500..3_500).contains(&moved), "{moved}");
    }

    #[test]
    fn finds_nothing_without_candidates() {
        assert_eq!(ring(&[]).pick(1, |_| true), None);
        assert_eq!(ring(&[("a", 1)]).pick(1, |_| false), None);
    }

    #[test]
    fn hashes_keys_as_earlier_versions_did() {
        assert_eq!(hash_key(b""), 0xefd0_1f60_ba99_2926);
        assert_eq!(hash_key(b"192.0.2.1"), hash_key(b"192.0.2.1"));
    }

    proptest! {
        #[test]
        fn picks_a_candidate_if_there_is_one(key: u64, candidates in 1_u8..16) {
            let ring = ring(&[("a", 1), ("b", 7), ("c", 100), ("d", 1)]);
            let picked = ring.pick(key, |index| candidates & (1 << index) != 0).unwrap();
            prop_assert!(candidates & (1 << picked) != 0);
        }
    }
}
