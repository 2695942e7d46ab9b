//! Runs every fuzz target on its seeds and on deterministic mutations of them.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use apus_fuzz::{TARGETS, Target};

/// The number of mutations for each target.
const MUTATIONS: usize = 6000;

/// For a target that opens a connection for each of them.
const MUTATIONS_WITH_CONNECTION: usize = 1000;

/// For a target in which each of them is a whole connection of both ends.
const MUTATIONS_WITH_TWO_ENDS: usize = 100;

#[test]
fn targets_hold_for_their_seeds_and_mutations_of_them() {
    // Each thread takes the next target, which shares nothing with the others.
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while let Some((name, target)) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_mutations(name, *target);
                }
            });
        }
    });
}

fn run_mutations(name: &str, target: Target) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "no seed in corpus/{name}");
    for seed in &seeds {
        run(name, target, seed);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mutations = match name {
        "c_interface" | "quic_connection" => MUTATIONS_WITH_CONNECTION,
        "quic_differential" => MUTATIONS_WITH_TWO_ENDS,
        _ => MUTATIONS,
    };
    for round in 0..mutations {
        let mut data = seeds[round % seeds.len()].clone();
        for _ in 0..=random.below(4) {
            random.mutate(&mut data, &seeds);
        }
        run(name, target, &data);
    }
}

fn run(name: &str, target: Target, data: &[u8]) {
    if catch_unwind(|| target(data)).is_err() {
        panic!("{name} fails for b\"{}\"", data.escape_ascii());
    }
}

/// The seeds of a target, in an order that does not depend on the file system.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A xorshift generator, which gives the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`, or 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn mutate(&mut self, data: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        const SPECIAL: &[u8] = b"\0\t\n\r \"%+,-./0159:;=@AFHTXaf~\x7f\x80\xff";
        let at = self.below(data.len());
        let end = at + self.below((data.len() - at).min(16));
        match self.below(7) {
            0 if !data.is_empty() => data[at] = SPECIAL[self.below(SPECIAL.len())],
            1 if !data.is_empty() => data[at] ^= 1 << self.below(8),
            2 => data.insert(at, SPECIAL[self.below(SPECIAL.len())]),
            3 => drop(data.drain(at..end)),
            4 => {
                let again = data[at..end].to_vec();
                data.splice(at..at, again);
            }
            5 => data.truncate(at),
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
        }
    }
}
