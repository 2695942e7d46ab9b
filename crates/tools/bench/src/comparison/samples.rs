//! What rounds measured of a server.

use std::collections::BTreeMap;

use crate::{BenchReport, FailureCount};
use serde::Serialize;

use crate::comparison::statistics::median;

/// What was measured of one server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerSamples {
    /// Its name.
    pub name: String,
    /// What was requested.
    pub url: String,
    /// How it was started.
    pub command: Vec<String>,
    /// What its version command printed.
    pub version: Option<String>,
    /// The rounds, in their order.
    pub rounds: Vec<RoundSample>,
    /// The median of each value; what is counted, such as failures, is the sum of all rounds.
    pub median: RoundSample,
    /// The same as the figures of tables and goals, by their names, if they are known.
    pub figures: BTreeMap<&'static str, f64>,
}

/// What a round measured of one server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RoundSample {
    /// Which server of the round it was.
    pub position: usize,
    /// Good responses per second; `None` if connections were left alone.
    pub responses_per_second: Option<f64>,
    /// The same as a share of what the origin can do, if the file says how much that is.
    pub share_of_limit: Option<f64>,
    /// CPU time of the server for each response, in microseconds.
    pub cpu_per_response_us: Option<f64>,
    /// CPU time of the programs behind the server for each response, in microseconds.
    pub behind_per_response_us: Option<f64>,
    /// Bytes of bodies per second.
    pub body_bytes_per_second: Option<f64>,
    /// The mean latency in milliseconds; as the others, `None` if there was no good response.
    pub mean_ms: Option<f64>,
    /// The standard deviation of the latencies in milliseconds.
    pub deviation_ms: Option<f64>,
    /// Milliseconds below which half of the latencies were.
    pub p50_ms: Option<f64>,
    /// Milliseconds below which 90% of the latencies were.
    pub p90_ms: Option<f64>,
    /// Milliseconds below which 99% of the latencies were.
    pub p99_ms: Option<f64>,
    /// The longest latency in milliseconds.
    pub max_ms: Option<f64>,
    /// The most resident memory.
    pub memory_bytes: Option<f64>,
    /// By how much the most resident memory grew in the load.
    pub growth_bytes: Option<f64>,
    /// The proportional set size at the end, with connections open: pages that processes share count once.
    pub pss_bytes: Option<f64>,
    /// Of that, what a connection costs that is left alone.
    pub bytes_per_connection: Option<f64>,
    /// Energy of the processors of the whole machine for each response, in microjoules, where the kernel tells.
    pub energy_per_response_uj: Option<f64>,
    /// Failed requests.
    pub failed: u64,
    /// Failed requests by what happened.
    pub failures: Vec<FailureCount>,
    /// GOAWAY frames of the server.
    pub goaways: u64,
    /// Connections that were opened in place of others, if connections are kept.
    pub reconnects: Option<u64>,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// TLS handshakes that resumed a session.
    pub handshakes_resumed: u64,
    /// The share of the time in which the processors of the machine had nothing to do.
    pub idle_share: Option<f64>,
    /// Bytes per second that disks read and wrote.
    pub disk_bytes_per_second: Option<f64>,
    /// Whether the generator was the bottleneck.
    pub is_limited_by_generator: bool,
}

impl RoundSample {
    /// What a load measured of a server, with the responses per second that the origin can do, if that is known.
    pub(crate) fn new(report: &BenchReport, limit: Option<f64>) -> Self {
        let server = report.server.as_ref();
        let behind = report.behind.as_ref();
        let further = report
            .connections_opened
            .saturating_sub(report.connections as u64);
        // Those that were due in the measurement may end after it.
        let latency = (report.responses > 0).then_some(&report.latency);
        let has_responses = report.responses_per_second > 0.0;
        Self {
            responses_per_second: Some(report.responses_per_second),
            share_of_limit: limit.map(|limit| report.responses_per_second / limit),
            cpu_per_response_us: server
                .filter(|_| has_responses)
                .map(|server| server.cpu_per_response_us),
            behind_per_response_us: behind
                .filter(|_| has_responses)
                .map(|behind| behind.cpu_per_response_us),
            body_bytes_per_second: Some(report.body_bytes_per_second),
            mean_ms: latency.map(|latency| latency.mean_ms),
            deviation_ms: latency.map(|latency| latency.deviation_ms),
            p50_ms: latency.map(|latency| latency.p50_ms),
            p90_ms: latency.map(|latency| latency.p90_ms),
            p99_ms: latency.map(|latency| latency.p99_ms),
            max_ms: latency.map(|latency| latency.max_ms),
            energy_per_response_uj: report.energy_per_response_uj.filter(|_| has_responses),
            reconnects: report.keep_alive.then_some(further),
            ..Self::of_idle(report)
        }
    }

    /// What is known of a server whose connections were left alone.
    pub(crate) fn of_idle(report: &BenchReport) -> Self {
        let server = report.server.as_ref();
        Self {
            memory_bytes: server.map(|server| server.memory_bytes as f64),
            growth_bytes: server.and_then(|server| Some(server.growth_bytes? as f64)),
            pss_bytes: server.and_then(|server| Some(server.pss_bytes? as f64)),
            failed: report.failed,
            failures: report.failures.clone(),
            goaways: report.goaways,
            connections_opened: report.connections_opened,
            handshakes_resumed: report.handshakes_resumed,
            idle_share: report.machine.map(|machine| machine.idle_share),
            disk_bytes_per_second: report
                .machine
                .map(|machine| machine.disk_read_per_second + machine.disk_written_per_second),
            is_limited_by_generator: report.generator.bottleneck.is_some(),
            ..Self::default()
        }
    }

    /// Whether there was a load, and no good response ended in it.
    pub(crate) fn is_silent(&self) -> bool {
        self.responses_per_second == Some(0.0)
    }
}

/// The median of each value; what is counted is the sum.
pub(crate) fn median_of(rounds: &[RoundSample]) -> RoundSample {
    let middle = |value: &dyn Fn(&RoundSample) -> Option<f64>| {
        let mut values: Vec<f64> = rounds.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        median(&values)
    };
    let whole = |value: fn(&RoundSample) -> u64| rounds.iter().map(value).sum();
    RoundSample {
        position: 0,
        responses_per_second: middle(&|one| one.responses_per_second),
        share_of_limit: middle(&|one| one.share_of_limit),
        cpu_per_response_us: middle(&|one| one.cpu_per_response_us),
        behind_per_response_us: middle(&|one| one.behind_per_response_us),
        body_bytes_per_second: middle(&|one| one.body_bytes_per_second),
        mean_ms: middle(&|one| one.mean_ms),
        deviation_ms: middle(&|one| one.deviation_ms),
        p50_ms: middle(&|one| one.p50_ms),
        p90_ms: middle(&|one| one.p90_ms),
        p99_ms: middle(&|one| one.p99_ms),
        max_ms: middle(&|one| one.max_ms),
        memory_bytes: middle(&|one| one.memory_bytes),
        growth_bytes: middle(&|one| one.growth_bytes),
        pss_bytes: middle(&|one| one.pss_bytes),
        bytes_per_connection: middle(&|one| one.bytes_per_connection),
        energy_per_response_uj: middle(&|one| one.energy_per_response_uj),
        failed: whole(|one| one.failed),
        failures: all_failures(rounds),
        goaways: whole(|one| one.goaways),
        reconnects: rounds.iter().map(|one| one.reconnects).sum(),
        connections_opened: whole(|one| one.connections_opened),
        handshakes_resumed: whole(|one| one.handshakes_resumed),
        idle_share: middle(&|one| one.idle_share),
        disk_bytes_per_second: middle(&|one| one.disk_bytes_per_second),
        is_limited_by_generator: rounds.iter().any(|round| round.is_limited_by_generator),
    }
}

/// The failures of all rounds by what happened.
fn all_failures(rounds: &[RoundSample]) -> Vec<FailureCount> {
    let mut all: Vec<FailureCount> = Vec::new();
    for failure in rounds.iter().flat_map(|round| &round.failures) {
        match all.iter_mut().find(|known| known.kind == failure.kind) {
            Some(known) => known.count += failure.count,
            None => all.push(failure.clone()),
        }
    }
    all
}
