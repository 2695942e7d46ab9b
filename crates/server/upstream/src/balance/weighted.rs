//! Smooth weighted round robin, as in nginx.

use super::NodeCandidate;

/// The round robin of one worker. In every run of as many requests as the sum of the weights, each node gets
/// its share, spread over the run.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// The current weight of each node, by its index.
    current_weights: Vec<i64>,
}

impl RoundRobin {
    /// Picks the next node. The current weight of a node that is no candidate stays as it is.
    pub(crate) fn pick(&mut self, candidates: &[NodeCandidate]) -> Option<usize> {
        let last = candidates.iter().map(|candidate| candidate.index).max()?;
        if self.current_weights.len() <= last {
            self.current_weights.resize(last + 1, 0);
        }
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for candidate in candidates {
            let weight = i64::from(candidate.weight);
            total += weight;
            let Some(current) = self.current_weights.get_mut(candidate.index) else {
                continue;
            };
            *current += weight;
            if best.is_none_or(|(_, most)| *current > most) {
                best = Some((candidate.index, *current));
            }
        }
        let (index, _) = best?;
        if let Some(current) = self.current_weights.get_mut(index) {
            // Smooth: of the weights 5, 1, 1 the order is a a b a c a a, and not a a a a a b c.
            *current -= total;
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(weights: &[u32]) -> Vec<NodeCandidate> {
        weights
            .iter()
            .enumerate()
            .map(|(index, &weight)| NodeCandidate::of_weight(index, weight))
            .collect()
    }

    #[test]
    fn interleaves_by_weight_as_nginx_does() {
        let mut round_robin = RoundRobin::default();
        let nodes = candidates(&[5, 1, 1]);
        let picked: Vec<usize> = (0..7).filter_map(|_| round_robin.pick(&nodes)).collect();
        assert_eq!(picked, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn picks_nothing_from_nothing() {
        assert_eq!(RoundRobin::default().pick(&[]), None);
    }

    #[test]
    fn goes_on_with_the_remaining_candidates() {
        let mut round_robin = RoundRobin::default();
        let nodes = candidates(&[1, 1, 1]);
        round_robin.pick(&nodes);
        let picked: Vec<usize> = (0..4)
            .filter_map(|_| round_robin.pick(&nodes[1..]))
            .collect();
        assert!(picked.iter().all(|&index| index != 0));
        assert_eq!(picked.iter().filter(|&&index| index == 1).count(), 2);
    }

    proptest! {
        #[test]
        fn gives_each_node_exactly_its_share_of_a_run(
            weights in proptest::collection::vec(1_u32..20, 1..8),
            runs in 1_usize..4,
        ) {
            let nodes = candidates(&weights);
            let total: u32 = weights.iter().sum();
            let mut round_robin = RoundRobin::default();
            let mut counts = vec![0; weights.len()];
            for _ in 0..total as usize * runs {
                counts[round_robin.pick(&nodes).unwrap()] += 1;
            }
            for (count, weight) in counts.iter().zip(&weights) {
                prop_assert_eq!(*count, *weight as usize * runs);
            }
        }
    }
}
