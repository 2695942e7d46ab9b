//! Balancing by load: least connections, least time, power of two choices, random.

use std::cmp::Ordering;

use super::{FastRng, NodeCandidate};

/// Picks the node with the fewest requests for its weight; among equals, a random one by weight.
pub(crate) fn least_connections(candidates: &[NodeCandidate], rng: &FastRng) -> Option<usize> {
    least(candidates, rng, |a, b| {
        // Multiplied crosswise: a division would round, and needs a case for a weight of zero.
        let a_load = u64::from(a.load) * u64::from(b.weight);
        let b_load = u64::from(b.load) * u64::from(a.weight);
        a_load.cmp(&b_load)
    })
}

/// Picks the node that will likely respond first: the one with the lowest product of its mean time to the
/// response head and its requests, for its weight. A node without a mean time is picked at once; while its
/// first request is in flight, it counts as slow as the slowest node.
pub(crate) fn least_time(candidates: &[NodeCandidate], rng: &FastRng) -> Option<usize> {
    let known = candidates.iter().filter_map(|candidate| candidate.latency);
    let slowest = known.fold(f64::NAN, f64::max);
    let slowest = if slowest.is_nan() { 1.0 } else { slowest };
    let cost = |candidate: &NodeCandidate| {
        let latency = match candidate.latency {
            Some(latency) => latency,
            None if candidate.load == 0 => 0.0,
            None => slowest,
        };
        // With the request that is being placed: of idle nodes, each would otherwise cost nothing, and the slow one
        // be as good as the fast one.
        latency * f64::from(candidate.load.saturating_add(1)) / f64::from(candidate.weight.max(1))
    };
    least(candidates, rng, |a, b| cost(a).total_cmp(&cost(b)))
}

/// Picks the less busy of two random nodes (Mitzenmacher, "The power of two choices").
pub(crate) fn best_of_two(candidates: &[NodeCandidate], rng: &FastRng) -> Option<usize> {
    let count = candidates.len() as u64;
    if count <= 2 {
        return least_connections(candidates, rng);
    }
    let first = rng.below(count) as usize;
    // Never the same node twice, which would be no choice.
    let second = (first + 1 + rng.below(count - 1) as usize) % candidates.len();
    let (first, second) = (candidates.get(first)?, candidates.get(second)?);
    least_connections(&[*first, *second], rng)
}

/// Picks a random node by weight.
pub(crate) fn random(candidates: &[NodeCandidate], rng: &FastRng) -> Option<usize> {
    least(candidates, rng, |_, _| Ordering::Equal)
}

/// Picks the least of the candidates; among equals, a random one by weight. It needs one pass and no
/// allocation.
fn least(
    candidates: &[NodeCandidate],
    rng: &FastRng,
    compare: impl Fn(&NodeCandidate, &NodeCandidate) -> Ordering,
) -> Option<usize> {
    let (first, rest) = candidates.split_first()?;
    let mut best = first;
    let mut equals = u64::from(best.weight);
    for candidate in rest {
        match compare(candidate, best) {
            Ordering::Less => {
                best = candidate;
                equals = u64::from(candidate.weight);
            }
            Ordering::Equal => {
                equals += u64::from(candidate.weight);
                // Reservoir sampling. With the first of equals, all workers would send to the first node of an idle
                // group.
                if rng.below(equals) < u64::from(candidate.weight) {
                    best = candidate;
                }
            }
            Ordering::Greater => {}
        }
    }
    Some(best.index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(index: usize, weight: u32, load: u32, latency: Option<f64>) -> NodeCandidate {
        NodeCandidate {
            index,
            weight,
            load,
            latency,
        }
    }

    #[test]
    fn weighs_connections() {
        let rng = FastRng::seeded(1);
        // 4 of weight 4 are fewer than 2 of weight 1.
        let nodes = [node(0, 1, 2, None), node(1, 4, 4, None)];
        assert_eq!(least_connections(&nodes, &rng), Some(1));
        let nodes = [node(0, 1, 1, None), node(1, 4, 5, None)];
        assert_eq!(least_connections(&nodes, &rng), Some(0));
        assert_eq!(least_connections(&[], &rng), None);
    }

    #[test]
    fn prefers_the_fast_node_until_it_is_busy() {
        let rng = FastRng::seeded(1);
        let nodes = |busy| [node(0, 1, busy, Some(0.010)), node(1, 1, 0, Some(0.050))];
        assert_eq!(least_time(&nodes(3), &rng), Some(0));
        assert_eq!(least_time(&nodes(5), &rng), Some(1));
    }

    #[test]
    fn tries_a_node_without_a_latency_with_one_request_at_a_time() {
        let rng = FastRng::seeded(1);
        let nodes = |load| [node(0, 1, 0, Some(0.010)), node(1, 1, load, None)];
        assert_eq!(least_time(&nodes(0), &rng), Some(1));
        assert_eq!(least_time(&nodes(1), &rng), Some(0));
    }

    #[test]
    fn shares_by_weight_among_equals() {
        let rng = FastRng::seeded(3);
        let nodes = [
            node(0, 1, 0, None),
            node(1, 3, 0, None),
            node(2, 6, 0, None),
        ];
        let mut counts = [0; 3];
        for _ in 0..100_000 {
            counts[random(&nodes, &rng).unwrap()] += 1;
        }
        for (count, expected) in counts.into_iter().zip([10_000, 30_000, 60_000]) {
            assert!(
                (expected - 1_000..expected + 1_000).contains(&count),
                "{counts:?}"
            );
        }
    }

    #[test]
    fn keeps_the_busiest_of_many_rarely_picked_by_two_choices() {
        let rng = FastRng::seeded(5);
        let mut loads = vec![0_u32; 50];
        for _ in 0..50 * 200 {
            let nodes: Vec<NodeCandidate> = (0..50).map(|i| node(i, 1, loads[i], None)).collect();
            loads[best_of_two(&nodes, &rng).unwrap()] += 1;
        }
        let (most, fewest) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
        assert!(most - fewest <= 6, "{most} and {fewest}: {loads:?}");
    }

    proptest! {
        #[test]
        fn never_picks_a_busier_node_than_another(
            nodes in proptest::collection::vec((1_u32..10, 0_u32..100), 1..10),
            seed: u64,
        ) {
            let rng = FastRng::seeded(seed);
            let nodes: Vec<NodeCandidate> = nodes
                .into_iter()
                .enumerate()
                .map(|(index, (weight, load))| node(index, weight, load, None))
                .collect();
            let picked = &nodes[least_connections(&nodes, &rng).unwrap()];
            let ratio = |node: &NodeCandidate| f64::from(node.load) / f64::from(node.weight);
            prop_assert!(nodes.iter().all(|node| ratio(picked) <= ratio(node) + 1e-9));
            let picked = best_of_two(&nodes, &rng).unwrap();
            prop_assert!(picked < nodes.len());
        }
    }
}
