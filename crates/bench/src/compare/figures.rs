//! The figures of a table: all that is known of a server, what others have published, and goals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::result::{RoundSample, ServerSamples};

/// A figure of a server.
pub(super) struct TableFigure {
    /// Its name in files and reports for programs.
    pub(super) key: &'static str,
    /// Its name in tables, with its unit.
    pub(super) title: &'static str,
    pub(super) value: fn(&RoundSample) -> Option<f64>,
    /// Whether it is shown although it is 0 for all servers.
    pub(super) is_always_shown: bool,
}

macro_rules! figures {
    ($($key:literal, $title:literal, $shown:literal, $value:expr;)*) => {
        /// All figures, in the order of tables.
        pub(super) const FIGURES: &[TableFigure] = &[$(TableFigure {
            key: $key,
            title: $title,
            value: $value,
            is_always_shown: $shown,
        },)*];
    };
}

figures! {
    "rate", "responses/s", true, |one| Some(one.responses_per_second);
    "transfer", "MB/s of bodies", false, |one| Some(one.body_bytes_per_second / 1e6);
    "cpu", "CPU, us", true, |one| one.cpu_per_response_us;
    "per-core", "responses/s of a core", false, |one| one.cpu_per_response_us.map(|cpu| 1e6 / cpu);
    "cpu-behind", "CPU behind it, us", true, |one| one.behind_per_response_us;
    "mean", "mean, ms", false, |one| Some(one.mean_ms);
    "deviation", "deviation, ms", false, |one| Some(one.deviation_ms);
    "p50", "p50, ms", true, |one| Some(one.p50_ms);
    "p90", "p90, ms", true, |one| Some(one.p90_ms);
    "p99", "p99, ms", true, |one| Some(one.p99_ms);
    "max", "longest, ms", false, |one| Some(one.max_ms);
    "memory", "memory, MB", true, |one| one.memory_bytes.map(|bytes| bytes / 1e6);
    "energy", "energy, uJ", true, |one| one.energy_per_response_uj;
    "idle", "machine idle, %", false, |one| one.idle_share.map(|share| share * 100.0);
    "disk", "disks, MB/s", false, |one| one.disk_bytes_per_second.map(|bytes| bytes / 1e6);
    "failed", "failed", true, |one| Some(one.failed as f64);
    "goaways", "GOAWAYs", false, |one| Some(one.goaways as f64);
    "reconnects", "reconnects", false, |one| one.reconnects.map(|count| count as f64);
}

/// The figure with this name.
pub(super) fn figure(key: &str) -> Result<&'static TableFigure, String> {
    FIGURES
        .iter()
        .find(|figure| figure.key == key)
        .ok_or_else(|| {
            let keys: Vec<_> = FIGURES.iter().map(|figure| figure.key).collect();
            format!("`{key}` is no figure; there are {}", keys.join(", "))
        })
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
pub(super) struct RawPublished {
    server: String,
    note: Option<String>,
    #[serde(flatten)]
    figures: BTreeMap<String, f64>,
}

impl RawPublished {
    pub(super) fn parse(self) -> Result<PublishedFigures, String> {
        for key in self.figures.keys() {
            figure(key).map_err(|error| format!("published of `{}`: {error}", self.server))?;
        }
        Ok(PublishedFigures {
            server: self.server,
            note: self.note,
            figures: self.figures,
        })
    }
}

/// The table `goal` of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGoal {
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
pub(super) enum RawNames {
    One(String),
    Several(Vec<String>),
}

impl RawNames {
    pub(super) fn all(names: Option<Self>) -> Vec<String> {
        match names {
            None => Vec::new(),
            Some(Self::One(name)) => vec![name],
            Some(Self::Several(names)) => names,
        }
    }
}

/// What is to be reached.
#[derive(Clone)]
pub(super) struct ComparisonGoal {
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
    /// What was to be reached, in words.
    pub goal: String,
    /// What was reached.
    pub value: f64,
    /// Whether that is enough.
    pub is_reached: bool,
    /// Why it is not, as the file says.
    pub reason: Option<String>,
}

impl std::fmt::Debug for ComparisonGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} {:?}", self.figure.key, self.server, self.bound)
    }
}

impl RawGoal {
    /// The goal, for servers with these names.
    pub(super) fn parse(self, servers: &[&str]) -> Result<ComparisonGoal, String> {
        let of = RawNames::all(self.of);
        let unknown = of
            .iter()
            .chain([&self.server])
            .find(|name| !servers.contains(&name.as_str()));
        if let Some(name) = unknown {
            return Err(format!(
                "a goal names `{name}`, which is none of the servers"
            ));
        }
        Ok(ComparisonGoal {
            figure: figure(&self.figure).map_err(|error| format!("a goal: {error}"))?,
            server: self.server,
            of,
            bound: match (self.most, self.least) {
                (Some(most), None) => GoalBound::Most(most),
                (None, Some(least)) => GoalBound::Least(least),
                _ => return Err("a goal has either `most` or `least`".to_owned()),
            },
            reason: self.reason,
        })
    }
}

impl ComparisonGoal {
    /// Whether it was reached; `None` if a value is unknown, as of a server that was left out.
    pub(super) fn evaluate(&self, servers: &[ServerSamples]) -> Option<ReachedGoal> {
        let value_of = |name: &String| {
            let server = servers.iter().find(|server| server.name == *name)?;
            (self.figure.value)(&server.median)
        };
        let own = value_of(&self.server)?;
        let known = self
            .of
            .iter()
            .filter_map(|name| Some((name, value_of(name)?)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, rate: f64, cpu: f64) -> ServerSamples {
        ServerSamples {
            name: name.to_owned(),
            url: String::new(),
            command: Vec::new(),
            version: None,
            rounds: Vec::new(),
            median: RoundSample {
                responses_per_second: rate,
                cpu_per_response_us: Some(cpu),
                ..RoundSample::default()
            },
        }
    }

    fn reached(text: &str) -> Option<ReachedGoal> {
        let raw: RawGoal = toml::from_str(text).unwrap();
        let goal = raw.parse(&["a", "b", "c"]).unwrap();
        goal.evaluate(&[server("a", 100.0, 6.0), server("b", 50.0, 10.0)])
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
        let of_missing = "figure = \"rate\"\nserver = \"a\"\nof = \"c\"\nleast = 1";
        assert!(reached(of_missing).is_none());
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
            let error = raw.parse(&["a"]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let raw: RawPublished = toml::from_str("server = \"a\"\nrate = 1\nspeed = 2").unwrap();
        assert!(raw.parse().unwrap_err().contains("`speed` is no figure"));
    }
}
