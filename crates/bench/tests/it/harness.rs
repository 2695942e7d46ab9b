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
