//! The figures of a table: all that is known of a server, what others have published, and goals.

use std::collections::BTreeMap;
use std::fmt;

use crate::format_rate;
use serde::{Deserialize, Serialize};

use crate::comparison::samples::{RoundSample, ServerSamples};
use crate::comparison::statistics::median;

/// A figure of a server.
pub(crate) struct TableFigure {
    /// Its name in files and reports for programs.
    pub(crate) key: &'static str,
    /// Its name in tables, with its unit.
    pub(crate) title: &'static str,
    /// Its value in a round.
    value: fn(&RoundSample) -> Option<f64>,
    pub(crate) kind: FigureKind,
}

/// How rounds are summed up, and when a table has the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FigureKind {
    /// The median, which is shown if it is known.
    Usual,
    /// The median, which is shown if there is a goal for it or others have published it.
    OnDemand,
    /// The sum, which is shown always.
    Failures,
    /// The sum, which is shown if there is anything to count.
    Count,
}

macro_rules! figures {
    ($($key:literal, $title:literal, $kind:ident, $value:expr;)*) => {
        /// All figures, in the order of tables.
        pub(crate) const FIGURES: &[TableFigure] = &[$(TableFigure {
            key: $key,
            title: $title,
            value: $value,
            kind: FigureKind::$kind,
        },)*];
    };
}

figures! {
    "rate", "responses/s", Usual, |one| one.responses_per_second;
    "of-limit", "share of the origin's limit", OnDemand, |one| one.share_of_limit;
    "transfer", "MB/s of bodies", OnDemand, |one| one.body_bytes_per_second.map(|bytes| bytes / 1e6);
    "cpu", "CPU, us", Usual, |one| one.cpu_per_response_us;
    "per-core", "responses/s of a core", OnDemand, |one| one.cpu_per_response_us.map(|cpu| 1e6 / cpu);
    "cpu-behind", "CPU behind it, us", Usual, |one| one.behind_per_response_us;
    "per-core-behind", "responses/s of a core behind it", OnDemand, |one| one.behind_per_response_us.map(|cpu| 1e6 / cpu);
    "mean", "mean, ms", OnDemand, |one| one.mean_ms;
    "deviation", "deviation, ms", OnDemand, |one| one.deviation_ms;
    "p50", "p50, ms", Usual, |one| one.p50_ms;
    "p90", "p90, ms", Usual, |one| one.p90_ms;
    "p99", "p99, ms", Usual, |one| one.p99_ms;
    "p99-of-mean", "p99 by the mean", OnDemand, |one| Some(one.p99_ms? / one.mean_ms?);
    "p99-of-p50", "p99 by the median", OnDemand, |one| Some(one.p99_ms? / one.p50_ms?);
    "max", "longest, ms", OnDemand, |one| one.max_ms;
    "memory", "memory, MB", Usual, |one| one.memory_bytes.map(|bytes| bytes / 1e6);
    "growth", "growth of memory, MB", OnDemand, |one| one.growth_bytes.map(|bytes| bytes / 1e6);
    "pss", "PSS, MB", OnDemand, |one| one.pss_bytes.map(|bytes| bytes / 1e6);
    "per-connection", "memory per connection, B", Usual, |one| one.bytes_per_connection;
    "energy", "energy, uJ", Usual, |one| one.energy_per_response_uj;
    "idle", "machine idle, %", OnDemand, |one| one.idle_share.map(|share| share * 100.0);
    "disk", "disks, MB/s", OnDemand, |one| one.disk_bytes_per_second.map(|bytes| bytes / 1e6);
    "failed", "failed", Failures, |one| Some(one.failed as f64);
    "goaways", "GOAWAYs", Count, |one| Some(one.goaways as f64);
    "reconnects", "reconnects", Count, |one| one.reconnects.map(|count| count as f64);
}

impl TableFigure {
    /// A value of it as tables have it, without the unit.
    pub(crate) fn format(&self, value: f64) -> String {
        match self.key {
            "rate" | "per-core" | "per-core-behind" => format_rate(value),
            _ => number(value),
        }
    }

    /// Its value over rounds; `None` if none knows it.
    fn of(&self, rounds: &[RoundSample]) -> Option<f64> {
        let mut values: Vec<f64> = rounds.iter().filter_map(self.value).collect();
        match self.kind {
            FigureKind::Usual | FigureKind::OnDemand => {
                values.sort_by(f64::total_cmp);
                median(&values)
            }
            FigureKind::Failures | FigureKind::Count if values.is_empty() => None,
            FigureKind::Failures | FigureKind::Count => Some(values.iter().sum()),
        }
    }
}

/// All figures that are known of rounds, by their names.
pub(crate) fn figures_of(rounds: &[RoundSample]) -> BTreeMap<&'static str, f64> {
    let known = FIGURES
        .iter()
        .filter_map(|figure| Some((figure.key, figure.of(rounds)?)));
    known.filter(|(_, value)| value.is_finite()).collect()
}

/// The figure with this name.
pub(crate) fn figure(key: &str) -> Result<&'static TableFigure, UnknownFigure> {
    FIGURES
        .iter()
        .find(|figure| figure.key == key)
        .ok_or_else(|| UnknownFigure(key.to_owned()))
}

/// The error for a text that is the name of no figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownFigure(String);

impl fmt::Display for UnknownFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = FIGURES.iter().map(|figure| figure.key).collect();
        write!(
            f,
            "`{}` is no figure; there are {}",
            self.0,
            keys.join(", ")
        )
    }
}

/// What others have published about a server under such a load.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedFigures {
    /// The server, which need not be one of those that are measured.
    pub server: String,
    /// What is to be said about them.
    pub note: Option<String>,
    /// The figures by their names.
    pub figures: BTreeMap<String, f64>,
}

/// The table `published` of a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RawPublished {
    server: String,
    note: Option<String>,
    #[serde(flatten)]
    figures: BTreeMap<String, f64>,
}

impl RawPublished {
    pub(crate) fn parse(self) -> Result<PublishedFigures, InvalidPublished> {
        for key in self.figures.keys() {
            figure(key).map_err(|figure| InvalidPublished {
                server: self.server.clone(),
                figure,
            })?;
        }
        Ok(PublishedFigures {
            server: self.server,
            note: self.note,
            figures: self.figures,
        })
    }
}

/// The error for figures that others have published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidPublished {
    server: String,
    figure: UnknownFigure,
}

impl fmt::Display for InvalidPublished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "published of `{}`: {}", self.server, self.figure)
    }
}

/// The table `goal` of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGoal {
    figure: String,
    server: String,
    /// The servers by whose value that of the server is divided; of several, the best one.
    of: Option<RawNames>,
    most: Option<f64>,
    least: Option<f64>,
    reason: Option<String>,
}

/// A name, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum RawNames {
    One(String),
    Several(Vec<String>),
}

impl RawNames {
    pub(crate) fn all(names: Option<Self>) -> Vec<String> {
        match names {
            None => Vec::new(),
            Some(Self::One(name)) => vec![name],
            Some(Self::Several(names)) => names,
        }
    }
}

/// What is to be reached.
#[derive(Clone)]
pub(crate) struct ComparisonGoal {
    figure: &'static TableFigure,
    server: String,
    of: Vec<String>,
    bound: GoalBound,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum GoalBound {
    Most(f64),
    Least(f64),
}

/// Whether a goal was reached.
#[derive(Clone, Debug, Serialize)]
pub struct ReachedGoal {
    /// The name of the figure.
    pub figure: &'static str,
    /// What was to be reached, in words.
    pub goal: String,
    /// What was reached.
    pub value: f64,
    /// Whether that is enough.
    pub is_reached: bool,
    /// Why it is not, as the file says.
    pub reason: Option<String>,
}

impl fmt::Debug for ComparisonGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {:?}", self.figure.key, self.server, self.bound)
    }
}

impl RawGoal {
    /// The goal, for servers with these names.
    pub(crate) fn parse(self, servers: &[&str]) -> Result<ComparisonGoal, InvalidGoal> {
        let of = RawNames::all(self.of);
        let unknown = of
            .iter()
            .chain([&self.server])
            .find(|name| !servers.contains(&name.as_str()));
        if let Some(name) = unknown {
            return Err(InvalidGoal::UnknownServer(name.clone()));
        }
        Ok(ComparisonGoal {
            figure: figure(&self.figure).map_err(InvalidGoal::Figure)?,
            server: self.server,
            of,
            bound: match (self.most, self.least) {
                (Some(most), None) => GoalBound::Most(most),
                (None, Some(least)) => GoalBound::Least(least),
                _ => return Err(InvalidGoal::Bound),
            },
            reason: self.reason,
        })
    }
}

/// Why a goal is never reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvalidGoal {
    UnknownServer(String),
    Figure(UnknownFigure),
    /// It has no bound, or two.
    Bound,
}

impl fmt::Display for InvalidGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownServer(name) => {
                write!(f, "a goal names `{name}`, which is none of the servers")
            }
            Self::Figure(error) => write!(f, "a goal: {error}"),
            Self::Bound => f.write_str("a goal has either `most` or `least`"),
        }
    }
}

impl ComparisonGoal {
    /// Whether it is about the figure with this name.
    pub(crate) fn is_about(&self, key: &str) -> bool {
        self.figure.key == key
    }

    /// Whether it was reached; `None` if a value is unknown, as of a server that was left out.
    pub(crate) fn evaluate(&self, servers: &[ServerSamples]) -> Option<ReachedGoal> {
        let value_of = |name: &String| {
            let server = servers.iter().find(|server| server.name == *name)?;
            server.figures.get(self.figure.key).copied()
        };
        let own = value_of(&self.server)?;
        let known = self
            .of
            .iter()
            .filter_map(|name| Some((name, value_of(name)?)))
            // Nothing is a share of nothing.
            .filter(|(_, other)| *other != 0.0);
        let best = known.reduce(|best, other| {
            let is_better = match self.bound {
                GoalBound::Most(_) => other.1 < best.1,
                GoalBound::Least(_) => other.1 > best.1,
            };
            if is_better { other } else { best }
        });
        let (value, versus) = match (self.of.is_empty(), best) {
            (true, _) => (own, String::new()),
            (false, Some((name, other))) => (own / other, format!(" by that of {name}")),
            (false, None) => return None,
        };
        let (words, bound, is_reached) = match self.bound {
            GoalBound::Most(most) => ("at most", most, value <= most),
            GoalBound::Least(least) => ("at least", least, value >= least),
        };
        Some(ReachedGoal {
            figure: self.figure.key,
            goal: format!(
                "{}: {}{versus}, {words} {bound}",
                self.server, self.figure.title
            ),
            value,
            is_reached,
            reason: self.reason.clone().filter(|_| !is_reached),
        })
    }
}

/// A number with about four digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        _ if value == 0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, rate: f64, cpu: f64) -> ServerSamples {
        let round = RoundSample {
            responses_per_second: Some(rate),
            cpu_per_response_us: (rate > 0.0).then_some(cpu),
            ..RoundSample::default()
        };
        ServerSamples {
            name: name.to_owned(),
            url: String::new(),
            command: Vec::new(),
            version: None,
            figures: figures_of(std::slice::from_ref(&round)),
            median: round.clone(),
            rounds: vec![round],
        }
    }

    fn reached(text: &str) -> Option<ReachedGoal> {
        let raw: RawGoal = toml::from_str(text).unwrap();
        let goal = raw.parse(&["a", "b", "c"]).unwrap();
        let none = server("c", 0.0, 0.0);
        goal.evaluate(&[server("a", 100.0, 6.0), server("b", 50.0, 10.0), none])
    }

    #[test]
    fn rounds_are_summed_up_as_a_median_or_a_sum() {
        let round = |p99: f64, mean: f64, failed: u64| RoundSample {
            responses_per_second: Some(10.0),
            behind_per_response_us: Some(50.0),
            p99_ms: Some(p99),
            p50_ms: Some(2.0),
            mean_ms: Some(mean),
            failed,
            ..RoundSample::default()
        };
        let silent = RoundSample {
            responses_per_second: Some(0.0),
            failed: 7,
            ..RoundSample::default()
        };
        let figures = figures_of(&[
            round(6.0, 2.0, 1),
            round(20.0, 4.0, 0),
            round(4.0, 2.0, 2),
            silent.clone(),
        ]);
        // The median of the ratios is not the ratio of the medians; a round without a response has no latency.
        assert_eq!(figures["p99-of-mean"], 3.0);
        assert_eq!(figures["p99-of-p50"], 3.0);
        assert_eq!(
            (figures["failed"], figures["per-core-behind"]),
            (10.0, 20_000.0)
        );
        assert_eq!(figures["rate"], 10.0);
        assert!(!figures.contains_key("reconnects") && !figures.contains_key("cpu"));
        let figures = figures_of(&[silent]);
        assert_eq!((figures["rate"], figures.get("p99")), (0.0, None));
    }

    #[test]
    fn goals_are_ratios_to_the_best_or_values() {
        let text =
            "figure = \"cpu\"\nserver = \"a\"\nof = [\"b\", \"c\"]\nmost = 0.5\nreason = \"r\"";
        let goal = reached(text).unwrap();
        assert_eq!((goal.value, goal.is_reached), (0.6, false));
        assert_eq!(goal.reason.as_deref(), Some("r"));
        assert_eq!(goal.goal, "a: CPU, us by that of b, at most 0.5");
        let goal = reached("figure = \"rate\"\nserver = \"a\"\nleast = 100").unwrap();
        assert!(goal.is_reached && goal.reason.is_none());
        let of_silent = "figure = \"rate\"\nserver = \"a\"\nof = \"c\"\nleast = 1";
        assert!(reached(of_silent).is_none());
        let silent = reached("figure = \"rate\"\nserver = \"c\"\nof = \"b\"\nleast = 0.1").unwrap();
        assert_eq!((silent.value, silent.is_reached), (0.0, false));
    }

    #[test]
    fn mistakes_in_goals_and_published_figures_are_errors() {
        for (text, expected) in [
            ("figure = \"x\"\nserver = \"a\"\nmost = 1", "is no figure"),
            (
                "figure = \"cpu\"\nserver = \"x\"\nmost = 1",
                "none of the servers",
            ),
            (
                "figure = \"cpu\"\nserver = \"a\"",
                "either `most` or `least`",
            ),
        ] {
            let raw: RawGoal = toml::from_str(text).unwrap();
            let error = raw.parse(&["a"]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let raw: RawPublished = toml::from_str("server = \"a\"\nrate = 1\nspeed = 2").unwrap();
        let error = raw.parse().unwrap_err().to_string();
        assert!(error.contains("`speed` is no figure"), "{error}");
    }
}
