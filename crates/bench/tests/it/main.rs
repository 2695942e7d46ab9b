//! Loads against servers of the test whose behaviour is known.

mod accuracy;
mod failures;
mod find_max;
mod http2;
mod page;
mod requests;
mod server;
mod tls;

use std::num::NonZeroUsize;
use std::time::Duration;

use apus_bench::{BenchReport, LoadFailure, LoadLimit, LoadPlan};

/// A closed loop of this many requests over this many connections.
fn plan(url: &str, connections: usize, requests: u64) -> LoadPlan {
    let mut plan = LoadPlan::new(url.parse().unwrap());
    plan.connections = NonZeroUsize::new(connections).unwrap();
    plan.threads = NonZeroUsize::new(2).unwrap();
    plan.limit = LoadLimit::Requests(requests);
    plan.warm_up = Duration::ZERO;
    plan
}

fn run(plan: LoadPlan) -> BenchReport {
    apus_bench::run(plan, &mut |_| {}).unwrap()
}

fn failures(report: &BenchReport) -> Vec<(LoadFailure, u64)> {
    let failures = report.failures.iter();
    failures
        .map(|failure| (failure.kind, failure.count))
        .collect()
}
