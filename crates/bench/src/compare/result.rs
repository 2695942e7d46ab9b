//! The result of a comparison: what each round measured, and the ratios with how sure they are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ComparisonPlan;
use super::environment::ComparisonEnvironment;
use super::figures::{PublishedFigures, ReachedGoal, figures_of};
use super::statistics::{CONFIDENCE, ROUNDS_LEAST, RatioEstimate, median};
use super::text::number;
use crate::{BenchReport, FailureCount, format_rate};

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
    /// Figures that a table shows although nobody has published them and there is no goal for them.
    pub shown: Vec<&'static str>,
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
    /// The same as the figures of tables and goals, by their names, as far as they are known.
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
    pub(super) fn new(report: &BenchReport, limit: Option<f64>) -> Self {
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
    pub(super) fn of_idle(report: &BenchReport) -> Self {
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
    fn is_silent(&self) -> bool {
        self.responses_per_second == Some(0.0)
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

pub(super) const METRICS: [ComparedMetric; 8] = [
    ComparedMetric {
        name: "rate",
        unit: "/s",
        value: |sample| sample.responses_per_second,
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
        value: |sample| sample.p50_ms,
        words: ("later", "sooner"),
        is_primary: false,
    },
    ComparedMetric {
        name: "99% latency",
        unit: "ms",
        value: |sample| sample.p99_ms,
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
        name: "memory per connection",
        unit: "B",
        value: |sample| sample.bytes_per_connection,
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
                    figures: BTreeMap::new(),
                })
                .collect(),
            ratios: Vec::new(),
            published: plan.published.clone(),
            shown: plan.shown.clone(),
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
            server.figures = figures_of(&server.rounds);
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
        // A server without a good response has no ratios, or none has if that is the reference.
        if self.servers.len() > 1 && self.silent_servers().next().is_some() {
            return false;
        }
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

    /// The servers that sent no good response in some rounds, with how many.
    fn silent_servers(&self) -> impl Iterator<Item = (&ServerSamples, usize)> {
        self.servers
            .iter()
            .map(|server| {
                let silent = server.rounds.iter().filter(|round| round.is_silent());
                (server, silent.count())
            })
            .filter(|(_, silent)| *silent > 0)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.rounds < ROUNDS_LEAST {
            notes.push(format!(
                "With fewer than {ROUNDS_LEAST} rounds no difference is certain."
            ));
        }
        for (server, silent) in self.silent_servers() {
            let left_out = match server.name == self.reference {
                _ if self.servers.len() == 1 => "",
                true => ", so nothing is compared to it",
                false => ", so its rate, CPU and latencies are not compared",
            };
            notes.push(format!(
                "{} sent no good response within {silent} of {} rounds{left_out}.",
                server.name,
                server.rounds.len()
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
            if server.median.failed > 0 {
                let kinds = server.median.failures.iter();
                let kinds: Vec<_> = kinds
                    .map(|failure| format!("{} ({})", failure.kind.words(), failure.count))
                    .collect();
                notes.push(format!(
                    "{} requests to {} failed: {}.",
                    server.median.failed,
                    server.name,
                    kinds.join(", ")
                ));
            }
        }
        notes
    }
}

impl ComparedMetric {
    /// A value of it without the unit.
    pub(super) fn format(&self, value: f64) -> String {
        match self.unit {
            "/s" => format_rate(value),
            _ => number(value),
        }
    }

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
