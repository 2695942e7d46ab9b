//! Load balancing: the strategies that pick a node from the candidates, without I/O, clocks or health.

mod hash_ring;
mod latency;
mod load;
mod rng;
mod sticky;
mod weighted;

pub(crate) use hash_ring::HashRing;
pub use hash_ring::hash_key;
pub(crate) use latency::Latency;
pub(crate) use rng::FastRng;
pub(crate) use sticky::{route, set_cookie};
pub(crate) use weighted::RoundRobin;

use crate::plan::Strategy;

/// A node that may be picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeCandidate {
    /// Its index in the group.
    pub(crate) index: usize,
    /// Its share, in a unit that all candidates have in common; not 0.
    pub(crate) weight: u32,
    /// Its requests in flight.
    pub(crate) load: u32,
    /// The mean time to its response heads, in seconds.
    pub(crate) latency: Option<f64>,
}

/// The balancer of one worker.
#[derive(Debug)]
pub(crate) struct Balancer {
    round_robin: RoundRobin,
    rng: FastRng,
}

impl Balancer {
    /// Creates a balancer.
    pub(crate) fn new(rng: FastRng) -> Self {
        Self {
            round_robin: RoundRobin::default(),
            rng,
        }
    }

    /// Starts round robin with other nodes, at a random one. If all workers started with the first node, it
    /// would get more requests than its share.
    pub(crate) fn reset(&mut self, candidates: &[NodeCandidate]) {
        self.round_robin = RoundRobin::default();
        // One step per node at most, and few enough to cost nothing.
        for _ in 0..self.rng.below(candidates.len().min(64) as u64) {
            self.round_robin.pick(candidates);
        }
    }

    /// Picks a node and returns its index in the group; `None` without candidates. The candidates are in the
    /// order of their indices. Only consistent hashing uses the key; without one, the pick is random.
    pub(crate) fn pick(
        &mut self,
        strategy: &Strategy,
        candidates: &[NodeCandidate],
        key: Option<(&HashRing, u64)>,
    ) -> Option<usize> {
        if let [only] = candidates {
            return Some(only.index);
        }
        match strategy {
            Strategy::RoundRobin => self.round_robin.pick(candidates),
            Strategy::LeastConnections => load::least_connections(candidates, &self.rng),
            Strategy::LeastTime => load::least_time(candidates, &self.rng),
            Strategy::BestOfTwo => load::best_of_two(candidates, &self.rng),
            Strategy::Random => load::random(candidates, &self.rng),
            Strategy::ConsistentHash(_) => match key {
                Some((ring, key)) => ring.pick(key, |index| {
                    candidates
                        .binary_search_by_key(&index, |candidate| candidate.index)
                        .is_ok()
                }),
                None => load::random(candidates, &self.rng),
            },
        }
    }
}

#[cfg(test)]
impl NodeCandidate {
    /// Creates a candidate with a weight only.
    pub(crate) fn of_weight(index: usize, weight: u32) -> Self {
        Self {
            index,
            weight,
            load: 0,
            latency: None,
        }
    }
}
