//! Load balancing: which of the candidate nodes is next.
//!
//! Nothing here knows of connections, clocks or health: the same candidates and random numbers give
//! the same choice.

mod chance;
mod latency;
mod load;
mod ring;
mod sticky;
mod weighted;

pub(crate) use chance::Chance;
pub(crate) use latency::Latency;
pub(crate) use ring::Ring;
pub use ring::hash_key;
pub(crate) use sticky::{route, set_cookie};
pub(crate) use weighted::RoundRobin;

use crate::plan::Strategy;

/// A node that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Its place in the group.
    pub(crate) index: usize,
    /// Its share, in any unit that all have in common; not 0.
    pub(crate) weight: u32,
    /// Requests that it works on.
    pub(crate) load: u32,
    /// The mean time to the head of its responses, in seconds.
    pub(crate) latency: Option<f64>,
}

/// The choices of one worker.
#[derive(Debug)]
pub(crate) struct Balancer {
    turns: RoundRobin,
    chance: Chance,
}

impl Balancer {
    /// A balancer that has chosen nothing yet.
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            turns: RoundRobin::default(),
            chance,
        }
    }

    /// Begins anew with other nodes, at a random one of `count`: workers that all began with the first
    /// would make it busy.
    pub(crate) fn reset(&mut self, candidates: &[Candidate]) {
        self.turns = RoundRobin::default();
        // As many turns as there are nodes, and no more than cost nothing.
        for _ in 0..self.chance.below(candidates.len().min(64) as u64) {
            self.turns.pick(candidates);
        }
    }

    /// The node to ask, as an index of the group; `None` without candidates. They are in order of
    /// their indices. A key counts for consistent hashing only; without one, the choice is random.
    pub(crate) fn pick(
        &mut self,
        strategy: &Strategy,
        candidates: &[Candidate],
        key: Option<(&Ring, u64)>,
    ) -> Option<usize> {
        if let [only] = candidates {
            return Some(only.index);
        }
        match strategy {
            Strategy::RoundRobin => self.turns.pick(candidates),
            Strategy::LeastConnections => load::least_connections(candidates, &self.chance),
            Strategy::LeastTime => load::least_time(candidates, &self.chance),
            Strategy::BestOfTwo => load::best_of_two(candidates, &self.chance),
            Strategy::Random => load::random(candidates, &self.chance),
            Strategy::ConsistentHash(_) => match key {
                Some((ring, key)) => ring.pick(key, |index| {
                    candidates
                        .binary_search_by_key(&index, |candidate| candidate.index)
                        .is_ok()
                }),
                None => load::random(candidates, &self.chance),
            },
        }
    }
}

#[cfg(test)]
impl Candidate {
    /// A candidate of which only the weight counts.
    pub(crate) fn of_weight(index: usize, weight: u32) -> Self {
        Self {
            index,
            weight,
            load: 0,
            latency: None,
        }
    }
}
