//! The result of a load, for people and for programs.

mod csv;
pub mod html;
mod server;
mod text;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::usage::MachineReport;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::WebSocketMode;
use crate::failure::FailureCount;
use crate::generator::{ThreadUse, bottleneck};
use crate::plan::{HttpVersion, LoadPlan};
use crate::recorder::{BANDS, IntervalCounts, LoadCounts, band_start};

pub use csv::to_csv;
pub use html::to_html;
pub(crate) use server::{LoadWindow, ReadingSource, ServerReadings};
pub use server::{ServerPoint, ServerReport};
pub use text::{format_rate, to_text};

/// The result of a load.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// What was requested.
    pub urls: Vec<UrlReport>,
    /// The address of the server.
    pub address: String,
    /// The version of HTTP.
    pub protocol: &'static str,
    /// `closed` or `open`.
    pub load: &'static str,
    /// The rate of an open loop, in words.
    pub rate_plan: Option<String>,
    /// Connections at once.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Requests in flight over each connection.
    pub in_flight: usize,
    /// Whether connections are used for more than one request.
    pub keep_alive: bool,
    /// Seconds of load before the measurement.
    pub warm_up: f64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Whether the user ended the load early.
    pub interrupted: bool,
    /// Good responses to requests that were due in the measurement. These make the latencies.
    pub responses: u64,
    /// Good responses per second of the measurement.
    pub responses_per_second: f64,
    /// Bytes of their bodies per second.
    pub body_bytes_per_second: f64,
    /// From the time at which a request was due to the end of its response.
    pub latency: LatencyReport,
    /// From the time at which a request was sent to the end of its response. The same as `latency` in a closed loop.
    pub service_time: LatencyReport,
    /// The time until a connection was open, with TLS, since the start of the generator.
    pub connect_time: LatencyReport,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed requests.
    pub failed: u64,
    /// Failed requests by what happened.
    pub failures: Vec<FailureCount>,
    /// Connections opened since the start of the generator.
    pub connections_opened: u64,
    /// TLS handshakes that resumed a session.
    pub handshakes_resumed: u64,
    /// GOAWAY frames of the server (HTTP/2).
    pub goaways: u64,
    /// What the generator consumed.
    pub generator: GeneratorReport,
    /// What the server consumed, if it is of this machine or has a status endpoint.
    pub server: Option<ServerReport>,
    /// What programs behind the server consumed, such as PHP, in a comparison.
    pub behind: Option<ServerReport>,
    /// What the whole machine did.
    pub machine: Option<MachineReport>,
    /// Energy of all processors of this machine for each response, in microjoules, where the kernel tells (RAPL): also that of
    /// the generator if the server is on this machine.
    pub energy_per_response_uj: Option<f64>,
    /// The length of an interval in seconds.
    pub interval: f64,
    /// What happened in each interval of the measurement.
    pub intervals: Vec<IntervalReport>,
    /// Where the bands of latencies begin, in milliseconds: `bands` of the intervals counts the responses of each.
    pub band_starts_ms: Vec<f64>,
}

/// What was requested of one URL, and what came.
#[derive(Clone, Debug, Serialize)]
pub struct UrlReport {
    /// The step of a scenario.
    pub name: Option<String>,
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// How often it was requested, relative to the others.
    pub weight: u32,
    /// Good responses.
    pub responses: u64,
    /// Failed requests.
    pub failed: u64,
    /// Its latencies, if there are several URLs.
    pub latency: Option<LatencyReport>,
}

/// A distribution of times, in milliseconds, with three digits.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyReport {
    /// How many there are.
    pub count: u64,
    /// The shortest.
    pub min_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// The standard deviation.
    pub deviation_ms: f64,
    /// Half are below.
    pub p50_ms: f64,
    /// 90% are below.
    pub p90_ms: f64,
    /// 99% are below.
    pub p99_ms: f64,
    /// 99.9% are below.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// The curve of percentiles: each with its time.
    pub percentiles: Vec<(f64, f64)>,
}

/// What the generator consumed, and whether that limited the load.
#[derive(Clone, Debug, Serialize)]
pub struct GeneratorReport {
    /// CPU time of all its threads for each response, in microseconds.
    pub cpu_per_response_us: f64,
    /// The share of the time in which its busiest thread ran or waited for a CPU.
    pub busiest_thread: f64,
    /// By how much the schedule of an open loop was missed.
    pub lag: Option<LatencyReport>,
    /// Why the generator was the bottleneck, if it was. Then the figures are not the server's.
    pub bottleneck: Option<String>,
}

/// An interval of the measurement, by when requests ended.
#[derive(Clone, Debug, Serialize)]
pub struct IntervalReport {
    /// Good responses.
    pub responses: u64,
    /// Failed requests.
    pub failed: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Milliseconds below which half of the latencies are, to a fifth.
    pub p50_ms: f64,
    /// Milliseconds below which 99% of the latencies are, to a fifth.
    pub p99_ms: f64,
    /// Responses in each band of latencies.
    pub bands: Vec<u32>,
}

/// What a load measured.
pub(crate) struct LoadOutcome {
    pub(crate) address: SocketAddr,
    pub(crate) counts: LoadCounts,
    pub(crate) lag: Option<Histogram<u64>>,
    pub(crate) used: Vec<ThreadUse>,
    pub(crate) window: LoadWindow,
    pub(crate) interval: Duration,
    pub(crate) series: Vec<IntervalCounts>,
    pub(crate) is_interrupted: bool,
    pub(crate) readings: ServerReadings,
    /// Of the programs behind the server.
    pub(crate) behind: ServerReadings,
}

impl BenchReport {
    pub(crate) fn new(plan: &LoadPlan, outcome: LoadOutcome) -> Self {
        let counts = outcome.counts;
        let seconds = outcome.window.time.as_secs_f64();
        let per_second = |count: u64| count as f64 / seconds.max(1e-9);
        let urls = plan.requests.iter().zip(&counts.by_request);
        let cpu: Duration = outcome.used.iter().map(|used| used.cpu).sum();
        let busiest = outcome.used.iter().map(ThreadUse::busy).fold(0.0, f64::max);
        let failed = counts.failed();
        let bands = used_bands(&outcome.series);
        Self {
            urls: urls
                .enumerate()
                .map(|(index, (request, (responses, failed)))| UrlReport {
                    name: request.name.clone(),
                    method: request.method.to_string(),
                    url: request.url.to_string(),
                    weight: request.weight,
                    responses: *responses,
                    failed: *failed,
                    latency: counts.latency_by_request.get(index).map(LatencyReport::new),
                })
                .collect(),
            address: outcome.address.to_string(),
            protocol: match (plan.websocket, plan.version) {
                (Some(WebSocketMode::Echo), HttpVersion::Http2) => "WebSocket over HTTP/2 (echo)",
                (Some(WebSocketMode::Echo), _) => "WebSocket (echo)",
                (Some(WebSocketMode::Broadcast), HttpVersion::Http2) => {
                    "WebSocket over HTTP/2 (broadcast)"
                }
                (Some(WebSocketMode::Broadcast), _) => "WebSocket (broadcast)",
                (None, _) if plan.expected.grpc => "gRPC",
                (None, version) => version.name(),
            },
            load: if plan.rate.is_some() {
                "open"
            } else {
                "closed"
            },
            rate_plan: plan.rate.as_ref().map(|rate| match plan.order {
                crate::ArrivalOrder::Even => rate.to_string(),
                crate::ArrivalOrder::Poisson => format!("{rate}, at random (Poisson)"),
            }),
            connections: plan.connections.get(),
            threads: plan.useful_threads(),
            in_flight: plan.in_flight.get(),
            keep_alive: plan.keeps_alive,
            warm_up: plan.warm_up.as_secs_f64(),
            seconds,
            interrupted: outcome.is_interrupted,
            responses: counts.latency.len(),
            responses_per_second: per_second(counts.ended),
            body_bytes_per_second: per_second(counts.body_bytes),
            latency: LatencyReport::new(&counts.latency),
            service_time: LatencyReport::new(&counts.service),
            connect_time: LatencyReport::new(&counts.connect),
            statuses: counts.statuses.iter().copied().collect(),
            failed,
            failures: counts.failed_by_kind().collect(),
            connections_opened: counts.opened,
            handshakes_resumed: counts.resumed,
            goaways: counts.go_aways,
            generator: GeneratorReport {
                cpu_per_response_us: cpu.as_secs_f64() * 1e6 / (counts.ended.max(1) as f64),
                busiest_thread: busiest.min(1.0),
                lag: outcome.lag.as_ref().map(LatencyReport::new),
                bottleneck: bottleneck(&outcome.used, outcome.lag.as_ref()),
            },
            energy_per_response_uj: outcome
                .readings
                .microjoules()
                .map(|all| all as f64 / (counts.ended.max(1) as f64)),
            machine: outcome.readings.machine(),
            server: outcome.readings.report(counts.ended, &outcome.window),
            behind: outcome.behind.report(counts.ended, &outcome.window),
            interval: outcome.interval.as_secs_f64(),
            intervals: outcome
                .series
                .iter()
                .map(|interval| IntervalReport {
                    responses: interval.good,
                    failed: interval.failed,
                    body_bytes: interval.body_bytes,
                    p50_ms: interval.quantile(0.5) * 1e3,
                    p99_ms: interval.quantile(0.99) * 1e3,
                    bands: interval
                        .bands
                        .get(bands.clone())
                        .unwrap_or_default()
                        .to_vec(),
                })
                .collect(),
            band_starts_ms: bands.map(|band| band_start(band) * 1e3).collect(),
        }
    }

    /// Whether each request got a good response, and there was one.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.responses > 0
    }
}

/// The bands from the first to the last one with responses.
fn used_bands(series: &[IntervalCounts]) -> std::ops::Range<usize> {
    let is_used = |band: &usize| {
        let count = |interval: &IntervalCounts| interval.bands.get(*band).copied().unwrap_or(0);
        series.iter().any(|interval| count(interval) > 0)
    };
    let first = (0..BANDS).find(is_used).unwrap_or(0);
    let last = (0..BANDS).rev().find(is_used);
    first..last.map_or(first, |last| last + 1)
}

impl LatencyReport {
    /// The time below which this many percent are, by the next point of the curve.
    pub(crate) fn at(&self, percentile: f64) -> f64 {
        let found = self
            .percentiles
            .iter()
            .find(|(known, _)| *known >= percentile);
        found.map_or(self.max_ms, |(_, ms)| *ms)
    }

    fn new(histogram: &Histogram<u64>) -> Self {
        let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let at = |quantile: f64| {
            if histogram.is_empty() {
                0.0
            } else {
                ms(histogram.value_at_quantile(quantile))
            }
        };
        let percentiles = if histogram.is_empty() {
            Vec::new()
        } else {
            histogram
                .iter_quantiles(5)
                .map(|value| (value.quantile() * 100.0, ms(value.value_iterated_to())))
                .collect()
        };
        Self {
            count: histogram.len(),
            min_ms: if histogram.is_empty() {
                0.0
            } else {
                ms(histogram.min())
            },
            mean_ms: histogram.mean() / 1e6,
            deviation_ms: histogram.stdev() / 1e6,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: ms(histogram.max()),
            percentiles,
        }
    }
}
