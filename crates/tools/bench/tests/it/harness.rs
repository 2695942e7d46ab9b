//! Loads with the settings of most tests.

use std::num::NonZeroUsize;
use std::time::Duration;

use apus_bench::{BenchReport, LoadFailure, LoadLimit, LoadPlan};

/// A closed loop of this many requests over this many connections.
pub(crate) fn plan(url: &str, connections: usize, requests: u64) -> LoadPlan {
    let mut plan = LoadPlan::new(url.parse().unwrap());
    plan.connections = NonZeroUsize::new(connections).unwrap();
    plan.threads = NonZeroUsize::new(2).unwrap();
    plan.limit = LoadLimit::Requests(requests);
    plan.warm_up = Duration::ZERO;
    plan
}

pub(crate) fn run(plan: LoadPlan) -> BenchReport {
    apus_bench::run(plan, &mut |_| {}).unwrap()
}

pub(crate) fn failures(report: &BenchReport) -> Vec<(LoadFailure, u64)> {
    let failures = report.failures.iter();
    failures
        .map(|failure| (failure.kind, failure.count))
        .collect()
}

/// Runs a check of times, which a busy machine makes longer, up to three times: one run without a disturbance shows whether they are right.
pub(crate) fn undisturbed(check: impl Fn() -> Result<(), String>) {
    let mut mistakes = Vec::new();
    for _ in 0..3 {
        match check() {
            Ok(()) => return,
            Err(mistake) => mistakes.push(mistake),
        }
    }
    panic!("{mistakes:?}");
}
