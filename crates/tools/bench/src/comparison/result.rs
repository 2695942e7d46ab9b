//! The result of a comparison: the samples of each server, and the ratios with how sure they are.

use std::collections::BTreeMap;

use crate::format_rate;
use serde::Serialize;

use crate::comparison::environment::ComparisonEnvironment;
use crate::comparison::figures::{PublishedFigures, ReachedGoal, figures_of, number};
use crate::comparison::plan::ComparisonPlan;
use crate::comparison::samples::{RoundSample, ServerSamples, median_of};
use crate::comparison::statistics::{CONFIDENCE, MIN_ROUNDS, RatioEstimate};

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

/// The result of a file.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedCases {
    /// What was compared.
    pub title: String,
    /// What the reader should know.
    pub note: Option<String>,
    /// Whether the file has several cases.
    pub has_cases: bool,
    /// Each case.
    pub reports: Vec<ComparisonReport>,
    /// Cases of which nothing was measured.
    pub failures: Vec<FailedCase>,
    /// Whether the user ended it early.
    pub is_interrupted: bool,
}

/// A case of which nothing was measured.
#[derive(Clone, Debug, Serialize)]
pub struct FailedCase {
    /// The name of the case.
    pub case: String,
    /// Why.
    pub cause: String,
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

impl ComparedRatio {
    /// Whether the server is better than the reference; `None`: it is not certain that there is a difference.
    pub(crate) fn is_better(&self) -> Option<bool> {
        let metric = METRICS.iter().find(|metric| metric.name == self.metric);
        let more_is_better = metric.is_some_and(|metric| metric.words.0 == "faster");
        self.is_certain
            .then_some((self.ratio > 1.0) == more_is_better)
    }
}

/// A value that is compared.
pub(crate) struct ComparedMetric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: fn(&RoundSample) -> Option<f64>,
    /// What it means if the ratio is more than 1, and less.
    words: (&'static str, &'static str),
    /// Whether the comparison goes on until its ratio is known.
    is_primary: bool,
}

pub(crate) const METRICS: [ComparedMetric; 8] = [
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
    pub(crate) fn new(plan: &ComparisonPlan, environment: ComparisonEnvironment) -> Self {
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

    pub(crate) fn add_round(&mut self, samples: Vec<RoundSample>) {
        for (server, sample) in self.servers.iter_mut().zip(samples) {
            server.rounds.push(sample);
        }
        self.rounds += 1;
    }

    /// Computes the medians and ratios.
    pub(crate) fn evaluate(&mut self, plan: &ComparisonPlan) {
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
    pub(crate) fn is_precise(&self, precision: f64) -> bool {
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
        if self.rounds < MIN_ROUNDS {
            notes.push(format!(
                "With fewer than {MIN_ROUNDS} rounds no difference is certain."
            ));
        }
        for (server, silent) in self.silent_servers() {
            let left_out = if self.servers.len() == 1 {
                ""
            } else if server.name == self.reference {
                ", so nothing is compared to it"
            } else {
                ", so its rate, CPU and latencies are not compared"
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
    pub(crate) fn format(&self, value: f64) -> String {
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
            return format!("not certain: fewer than {MIN_ROUNDS} rounds");
        };
        let percent = (estimate.ratio - 1.0) * 100.0;
        let words = if percent > 0.0 {
            self.words.0
        } else {
            self.words.1
        };
        if estimate.is_certain() {
            format!("{:.1}% {words} than {reference}", percent.abs())
        } else {
            format!(
                "no certain difference from {reference}: between {:+.1}% and {:+.1}%",
                (low - 1.0) * 100.0,
                (high - 1.0) * 100.0
            )
        }
    }
}
