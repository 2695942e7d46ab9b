//! The result of a comparison: what each round measured, and the ratios with how sure they are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ComparisonPlan;
use super::environment::ComparisonEnvironment;
use super::figures::{PublishedFigures, ReachedGoal};
use super::statistics::{CONFIDENCE, ROUNDS_LEAST, RatioEstimate, median};
use crate::BenchReport;

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// What was compared.
    pub title: String,
    /// The name of the case, if the file has several.
    pub case: Option<String>,
    /// What the reader should know.
    pub note: Option<String>,
    /// The machine.
    pub environment: ComparisonEnvironment,
    /// The file of the comparison, by which it can be repeated.
    pub configuration: String,
    /// The folder of that file.
    pub folder: String,
    /// Values of the file that were replaced.
    pub values: BTreeMap<String, String>,
    /// The seconds of load in a round; 0 if a number of requests ends it.
    pub seconds_of_load: f64,
    /// The server that the others are compared to.
    pub reference: String,
    /// Complete rounds.
    pub rounds: usize,
    /// How long all of it took, in seconds.
    pub seconds: f64,
    /// Why there are no more rounds.
    pub ended_by: String,
    /// Whether a server failed after the first round.
    pub has_failed: bool,
    /// The share of intervals that contain the true ratio.
    pub confidence: f64,
    /// What was measured of each server.
    pub servers: Vec<ServerSamples>,
    /// Each server beside the reference.
    pub ratios: Vec<ComparedRatio>,
    /// What others have published.
    pub published: Vec<PublishedFigures>,
    /// What was to be reached.
    pub goals: Vec<ReachedGoal>,
    /// What the figures do not show.
    pub notes: Vec<String>,
}

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
}

/// What a round measured of one server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RoundSample {
    /// Which server of the round it was.
    pub position: usize,
    /// Good responses per second.
    pub responses_per_second: f64,
    /// CPU time of the server for each response, in microseconds.
    pub cpu_per_response_us: Option<f64>,
    /// CPU time of the programs behind the server for each response, in microseconds.
    pub behind_per_response_us: Option<f64>,
    /// Bytes of bodies per second.
    pub body_bytes_per_second: f64,
    /// The mean latency in milliseconds.
    pub mean_ms: f64,
    /// The standard deviation of the latencies in milliseconds.
    pub deviation_ms: f64,
    /// Milliseconds below which half of the latencies were.
    pub p50_ms: f64,
    /// Milliseconds below which 90% of the latencies were.
    pub p90_ms: f64,
    /// Milliseconds below which 99% of the latencies were.
    pub p99_ms: f64,
    /// The longest latency in milliseconds.
    pub max_ms: f64,
    /// The most resident memory.
    pub memory_bytes: Option<f64>,
    /// Energy of the processors of the whole machine for each response, in microjoules, where the kernel tells.
    pub energy_per_response_uj: Option<f64>,
    /// Failed requests.
    pub failed: u64,
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
    pub(super) fn new(report: &BenchReport, position: usize) -> Self {
        let server = report.server.as_ref();
        let behind = report.behind.as_ref();
        let further = report
            .connections_opened
            .saturating_sub(report.connections as u64);
        Self {
            position,
            responses_per_second: report.responses_per_second,
            cpu_per_response_us: server.map(|server| server.cpu_per_response_us),
            behind_per_response_us: behind.map(|behind| behind.cpu_per_response_us),
            body_bytes_per_second: report.body_bytes_per_second,
            mean_ms: report.latency.mean_ms,
            deviation_ms: report.latency.deviation_ms,
            p50_ms: report.latency.p50_ms,
            p90_ms: report.latency.p90_ms,
            p99_ms: report.latency.p99_ms,
            max_ms: report.latency.max_ms,
            memory_bytes: server.map(|server| server.memory_bytes as f64),
            energy_per_response_uj: report.energy_per_response_uj,
            failed: report.failed,
            goaways: report.goaways,
            reconnects: report.keep_alive.then_some(further),
            connections_opened: report.connections_opened,
            handshakes_resumed: report.handshakes_resumed,
            idle_share: report.machine.map(|machine| machine.idle_share),
            disk_bytes_per_second: report
                .machine
                .map(|machine| machine.disk_read_per_second + machine.disk_written_per_second),
            is_limited_by_generator: report.generator.bottleneck.is_some(),
        }
    }
}

/// A value of a server beside that of the reference.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedRatio {
    /// The server.
    pub server: String,
    /// What is compared.
    pub metric: &'static str,
    /// The value of the server by that of the reference.
    pub ratio: f64,
    /// The interval that contains the true ratio; `None` if there are too few rounds.
    pub interval: Option<(f64, f64)>,
    /// How probable a ratio as far from 1 as this is, if there is no difference.
    pub noise: f64,
    /// Whether there is a difference.
    pub is_certain: bool,
    /// The same in words.
    pub verdict: String,
}

/// A value that is compared.
pub(super) struct ComparedMetric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: fn(&RoundSample) -> Option<f64>,
    /// What it means if the ratio is more than 1, and less.
    words: (&'static str, &'static str),
    /// Whether the comparison goes on until its ratio is known.
    is_primary: bool,
}

pub(super) const METRICS: [ComparedMetric; 7] = [
    ComparedMetric {
        name: "rate",
        unit: "/s",
        value: |sample| Some(sample.responses_per_second),
        words: ("faster", "slower"),
        is_primary: true,
    },
    ComparedMetric {
        name: "CPU per response",
        unit: "us",
        value: |sample| sample.cpu_per_response_us,
        words: ("more CPU", "less CPU"),
        is_primary: true,
    },
    ComparedMetric {
        name: "CPU behind it per response",
        unit: "us",
        value: |sample| sample.behind_per_response_us,
        words: ("more CPU", "less CPU"),
        is_primary: false,
    },
    ComparedMetric {
        name: "median latency",
        unit: "ms",
        value: |sample| Some(sample.p50_ms),
        words: ("later", "sooner"),
        is_primary: false,
    },
    ComparedMetric {
        name: "99% latency",
        unit: "ms",
        value: |sample| Some(sample.p99_ms),
        words: ("later", "sooner"),
        is_primary: false,
    },
    ComparedMetric {
        name: "memory",
        unit: "MB",
        value: |sample| sample.memory_bytes.map(|bytes| bytes / 1e6),
        words: ("more memory", "less memory"),
        is_primary: false,
    },
    ComparedMetric {
        name: "energy per response",
        unit: "uJ",
        value: |sample| sample.energy_per_response_uj,
        words: ("more energy", "less energy"),
        is_primary: false,
    },
];

impl ComparisonReport {
    pub(super) fn new(plan: &ComparisonPlan, environment: ComparisonEnvironment) -> Self {
        let reference = plan.servers.get(plan.reference);
        Self {
            title: plan.title.clone(),
            case: plan.case.clone(),
            note: plan.note.clone(),
            environment,
            configuration: plan.text.to_string(),
            folder: plan.folder.display().to_string(),
            values: plan.values.clone(),
            seconds_of_load: plan.seconds_of_load(),
            reference: reference.map_or(String::new(), |server| server.name.clone()),
            rounds: 0,
            seconds: 0.0,
            ended_by: "all rounds were made".to_owned(),
            has_failed: false,
            confidence: CONFIDENCE,
            servers: plan
                .servers
                .iter()
                .map(|server| ServerSamples {
                    name: server.name.clone(),
                    url: server.url.to_string(),
                    command: server.command.clone(),
                    version: server.version(),
                    rounds: Vec::new(),
                    median: RoundSample::default(),
                })
                .collect(),
            ratios: Vec::new(),
            published: plan.published.clone(),
            goals: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn add_round(&mut self, samples: Vec<RoundSample>) {
        for (server, sample) in self.servers.iter_mut().zip(samples) {
            server.rounds.push(sample);
        }
        self.rounds += 1;
    }

    /// Computes the medians and ratios.
    pub(super) fn evaluate(&mut self, plan: &ComparisonPlan) {
        for server in &mut self.servers {
            server.median = median_of(&server.rounds);
        }
        self.ratios.clear();
        let Some(reference) = self.servers.get(plan.reference) else {
            return;
        };
        for (index, server) in self.servers.iter().enumerate() {
            if index == plan.reference {
                continue;
            }
            let ratios = METRICS
                .iter()
                .filter_map(|metric| metric.compare(server, reference));
            self.ratios.extend(ratios);
        }
        self.goals = plan
            .goals
            .iter()
            .filter_map(|goal| goal.evaluate(&self.servers))
            .collect();
        self.notes = self.notes();
        self.notes.extend(plan.left_out.iter().cloned());
    }

    /// Whether the bounds of the primary ratios are this close to them.
    pub(super) fn is_precise(&self, precision: f64) -> bool {
        let primary = METRICS.iter().filter(|metric| metric.is_primary);
        let names: Vec<_> = primary.map(|metric| metric.name).collect();
        let mut ratios = self
            .ratios
            .iter()
            .filter(|ratio| names.contains(&ratio.metric));
        ratios.all(|ratio| {
            ratio.interval.is_some_and(|(low, high)| {
                high / ratio.ratio - 1.0 <= precision && 1.0 - low / ratio.ratio <= precision
            })
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.rounds < ROUNDS_LEAST {
            notes.push(format!(
                "With fewer than {ROUNDS_LEAST} rounds no difference is certain."
            ));
        }
        for server in &self.servers {
            let limited = server.rounds.iter();
            let limited = limited
                .filter(|round| round.is_limited_by_generator)
                .count();
            if limited > 0 {
                notes.push(format!(
                    "The generator was the bottleneck in {limited} of {} rounds of {}: its rate and latencies are not the server's, \
                     its CPU per response is.",
                    server.rounds.len(),
                    server.name
                ));
            }
            let failed: u64 = server.rounds.iter().map(|round| round.failed).sum();
            if failed > 0 {
                notes.push(format!("{failed} requests to {} failed.", server.name));
            }
        }
        notes
    }
}

impl ComparedMetric {
    fn compare(&self, server: &ServerSamples, reference: &ServerSamples) -> Option<ComparedRatio> {
        let rounds = server.rounds.iter().zip(&reference.rounds);
        let ratios: Option<Vec<f64>> = rounds
            .map(|(one, other)| Some((self.value)(one)? / (self.value)(other)?))
            .collect();
        let estimate = RatioEstimate::of(&ratios?)?;
        Some(ComparedRatio {
            server: server.name.clone(),
            metric: self.name,
            ratio: estimate.ratio,
            interval: estimate.interval,
            noise: estimate.noise,
            is_certain: estimate.is_certain(),
            verdict: self.verdict(&estimate, &reference.name),
        })
    }

    fn verdict(&self, estimate: &RatioEstimate, reference: &str) -> String {
        let Some((low, high)) = estimate.interval else {
            return format!("not certain: fewer than {ROUNDS_LEAST} rounds");
        };
        let percent = (estimate.ratio - 1.0) * 100.0;
        let words = match percent > 0.0 {
            true => self.words.0,
            false => self.words.1,
        };
        match estimate.is_certain() {
            true => format!("{:.1}% {words} than {reference}", percent.abs()),
            false => format!(
                "no certain difference from {reference}: between {:+.1}% and {:+.1}%",
                (low - 1.0) * 100.0,
                (high - 1.0) * 100.0
            ),
        }
    }
}

fn median_of(rounds: &[RoundSample]) -> RoundSample {
    let middle = |value: &dyn Fn(&RoundSample) -> Option<f64>| {
        let mut values: Vec<f64> = rounds.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        median(&values)
    };
    let whole = |value: fn(&RoundSample) -> u64| rounds.iter().map(value).sum();
    RoundSample {
        position: 0,
        responses_per_second: middle(&|one| Some(one.responses_per_second)).unwrap_or(0.0),
        cpu_per_response_us: middle(&|one| one.cpu_per_response_us),
        behind_per_response_us: middle(&|one| one.behind_per_response_us),
        body_bytes_per_second: middle(&|one| Some(one.body_bytes_per_second)).unwrap_or(0.0),
        mean_ms: middle(&|one| Some(one.mean_ms)).unwrap_or(0.0),
        deviation_ms: middle(&|one| Some(one.deviation_ms)).unwrap_or(0.0),
        p50_ms: middle(&|one| Some(one.p50_ms)).unwrap_or(0.0),
        p90_ms: middle(&|one| Some(one.p90_ms)).unwrap_or(0.0),
        p99_ms: middle(&|one| Some(one.p99_ms)).unwrap_or(0.0),
        max_ms: middle(&|one| Some(one.max_ms)).unwrap_or(0.0),
        memory_bytes: middle(&|one| one.memory_bytes),
        energy_per_response_uj: middle(&|one| one.energy_per_response_uj),
        failed: whole(|one| one.failed),
        goaways: whole(|one| one.goaways),
        reconnects: rounds.iter().map(|one| one.reconnects).sum(),
        connections_opened: whole(|one| one.connections_opened),
        handshakes_resumed: whole(|one| one.handshakes_resumed),
        idle_share: middle(&|one| one.idle_share),
        disk_bytes_per_second: middle(&|one| one.disk_bytes_per_second),
        is_limited_by_generator: rounds.iter().any(|round| round.is_limited_by_generator),
    }
}
