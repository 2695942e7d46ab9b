//! Inputs of the differential test that follow from seeds. The fuzz target `quic_differential` runs others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::differential::run;
use crate::harness::network::Random;

fn input(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let length = 24 + random.next() % 200;
    (0..length).map(|_| random.next() as u8).collect()
}

/// More with `DIFFERENTIAL_SEEDS=1000..3000`.
#[test]
fn our_end_and_that_of_quinn_agree_on_streams_and_closes() {
    let range = std::env::var("DIFFERENTIAL_SEEDS").ok();
    let (first, end) = range
        .as_deref()
        .and_then(|range| range.split_once(".."))
        .map_or((0, 100), |(first, end)| {
            (first.parse().unwrap(), end.parse().unwrap())
        });
    let mut failed = Vec::new();
    for seed in first..end {
        let input = input(seed);
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            eprintln!("seed {seed} fails");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
