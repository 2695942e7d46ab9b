//! Smooth weighted round robin.
//!
//! In every run of as many requests as the weights add up to, each node has its share, spread over
//! the run.

use super::Candidate;

/// The turns of one worker.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// What each node is owed, by its index.
    owed: Vec<i64>,
}

impl RoundRobin {
    /// The node whose turn it is. Nodes that are no candidates are owed nothing meanwhile.
    pub(crate) fn pick(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let last = candidates.iter().map(|candidate| candidate.index).max()?;
        if self.owed.len() <= last {
            self.owed.resize(last + 1, 0);
        }
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for candidate in candidates {
            let weight = i64::from(candidate.weight);
            total += weight;
            let Some(owed) = self.owed.get_mut(candidate.index) else {
                continue;
            };
            *owed += weight;
            if best.is_none_or(|(_, most)| *owed > most) {
                best = Some((candidate.index, *owed));
            }
        }
        let (index, _) = best?;
        if let Some(owed) = self.owed.get_mut(index) {
            *owed -= total;
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        weights
            .iter()
            .enumerate()
            .map(|(index, &weight)| Candidate::of_weight(index, weight))
            .collect()
    }

    #[test]
    fn interleaves_by_weight_as_nginx_does() {
        let mut turns = RoundRobin::default();
        let nodes = candidates(&[5, 1, 1]);
        let picked: Vec<usize> = (0..7).filter_map(|_| turns.pick(&nodes)).collect();
        assert_eq!(picked, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn picks_nothing_from_nothing() {
        assert_eq!(RoundRobin::default().pick(&[]), None);
    }

    #[test]
    fn goes_on_with_those_that_are_left() {
        let mut turns = RoundRobin::default();
        let nodes = candidates(&[1, 1, 1]);
        turns.pick(&nodes);
        let picked: Vec<usize> = (0..4).filter_map(|_| turns.pick(&nodes[1..])).collect();
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
            let mut turns = RoundRobin::default();
            let mut counts = vec![0; weights.len()];
            for _ in 0..total as usize * runs {
                counts[turns.pick(&nodes).unwrap()] += 1;
            }
            for (count, weight) in counts.iter().zip(&weights) {
                prop_assert_eq!(*count, *weight as usize * runs);
            }
        }
    }
}
