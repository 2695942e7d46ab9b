//! The search for the highest rate at which a server keeps an objective.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::target::InvalidDuration;
use crate::{
    ArrivalRate, BenchError, BenchReport, LoadLimit, LoadPlan, LoadProgress, format_rate,
    parse_duration, run,
};

/// The search ends when the highest good rate and the lowest bad one are this close.
const CLOSE: f64 = 1.03;

/// The most loads of a search.
const MAX_LOADS: usize = 24;

/// How long the closed loop at the begin takes, which finds the order of the rate.
const ESTIMATE: Duration = Duration::from_secs(1);

/// What a server has to keep: latencies at percentiles, and a share of failed requests.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadObjective {
    /// Percentiles with the longest latency of each.
    percentiles: Vec<(f64, Duration)>,
    /// The highest share of failed requests.
    errors: f64,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct MaxRateReport {
    /// The objective, in words.
    pub objective: String,
    /// The highest rate at which it was kept, in requests per second. `None` if it was kept at none.
    pub rate: Option<f64>,
    /// Why the server may be able to do more: the generator could not send more.
    pub limited_by_generator: Option<String>,
    /// The loads of the search, in their order.
    pub loads: Vec<SearchedRate>,
    /// The report of the load with the highest good rate.
    pub report: Option<Box<BenchReport>>,
}

/// A load of a search.
#[derive(Clone, Debug, Serialize)]
pub struct SearchedRate {
    /// Requests per second.
    pub rate: f64,
    /// Good responses per second.
    pub responses_per_second: f64,
    /// Milliseconds below which 99% of the latencies were.
    pub p99_ms: f64,
    /// Failed requests.
    pub failed: u64,
    /// What was not kept, if anything.
    pub missed: Option<String>,
}

impl MaxRateReport {
    /// The result as text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for load in &self.loads {
            let verdict = load.missed.as_deref().unwrap_or("kept");
            out += &format!(
                "{:>10}/s  p99 {:>9.2} ms  {:>6} failed  {verdict}\n",
                format_rate(load.rate),
                load.p99_ms,
                load.failed
            );
        }
        out += &match self.rate {
            Some(rate) => format!(
                "\nhighest rate  {}/s with {}\n",
                format_rate(rate),
                self.objective
            ),
            None => format!("\nno rate kept {}\n", self.objective),
        };
        if let Some(why) = &self.limited_by_generator {
            out += &format!(
                "\nThe generator was the bottleneck: {why}. The server may be able to do more; use more threads (-t) or \
                 another machine.\n"
            );
        }
        out
    }
}

impl LoadObjective {
    /// What a load did not keep.
    fn missed(&self, rate: f64, report: &BenchReport) -> Option<String> {
        let all = report.responses + report.failed;
        let share = report.failed as f64 / (all.max(1) as f64);
        if share > self.errors || report.responses == 0 {
            return Some(format!("{} of {all} requests failed", report.failed));
        }
        let late = self.percentiles.iter().find_map(|(percentile, most)| {
            let found = report.latency.at(*percentile);
            (found > most.as_secs_f64() * 1e3).then(|| format!("p{percentile} was {found:.2} ms"))
        });
        if late.is_some() {
            return late;
        }
        (report.responses_per_second < rate * 0.95).then(|| {
            format!(
                "only {} responses per second came",
                format_rate(report.responses_per_second)
            )
        })
    }
}

impl FromStr for LoadObjective {
    type Err = InvalidObjective;

    /// Parses `p99=20ms,p50=5ms,errors=0`; `errors` may be a number of percent, such as `0.1%`, and is 0 if it is left out.
    fn from_str(text: &str) -> Result<Self, InvalidObjective> {
        let mut found = Self {
            percentiles: Vec::new(),
            errors: 0.0,
        };
        for part in text.split(',') {
            let (name, value) = part
                .trim()
                .split_once('=')
                .ok_or(InvalidObjective::Syntax)?;
            if name == "errors" {
                let percent = value.strip_suffix('%');
                let number: f64 = percent
                    .unwrap_or(value)
                    .parse()
                    .map_err(|_| InvalidObjective::Syntax)?;
                if percent.is_none() && number != 0.0 {
                    return Err(InvalidObjective::Errors);
                }
                found.errors = number / 100.0;
                continue;
            }
            let percentile = match name {
                "max" => 100.0,
                name => name
                    .strip_prefix('p')
                    .and_then(|digits| digits.parse().ok())
                    .ok_or(InvalidObjective::Syntax)?,
            };
            if !(0.0..=100.0).contains(&percentile) {
                return Err(InvalidObjective::Percentile(name.to_owned()));
            }
            let time = parse_duration(value).map_err(InvalidObjective::Time)?;
            found.percentiles.push((percentile, time));
        }
        if found.percentiles.is_empty() {
            Err(InvalidObjective::NoPercentile)
        } else {
            Ok(found)
        }
    }
}

/// Why a text is no objective.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidObjective {
    /// It has a part that is none of an objective.
    Syntax,
    /// Its errors are a number.
    Errors,
    /// This is no percentile.
    Percentile(String),
    /// It has no percentile.
    NoPercentile,
    /// The time of a percentile.
    Time(InvalidDuration),
}

impl fmt::Display for InvalidObjective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = "expected an objective such as p99=20ms,errors=0";
        match self {
            Self::Syntax => f.write_str(expected),
            Self::Errors => f.write_str("errors must be 0, or a share such as 0.1%"),
            Self::Percentile(name) => write!(f, "`{name}` is no percentile"),
            Self::NoPercentile => write!(f, "an objective needs a percentile; {expected}"),
            Self::Time(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidObjective {}

impl fmt::Display for LoadObjective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (percentile, most) in &self.percentiles {
            write!(f, "p{percentile} of at most {most:?}, ")?;
        }
        write!(f, "at most {}% of errors", self.errors * 100.0)
    }
}

/// Searches the highest rate at which the objective is kept, by loads with the duration of the plan: first a closed loop
/// for the order of the rate, and then open loops at rates in between.
///
/// # Errors
/// As of [`run`], for the first load.
pub fn find_max(
    plan: &LoadPlan,
    objective: &LoadObjective,
    observe: &mut dyn FnMut(&LoadProgress),
) -> Result<MaxRateReport, BenchError> {
    if plan.rate.is_some() || !matches!(plan.limit, LoadLimit::Time(_)) {
        return Err(BenchError::plan(
            "the search for the highest rate needs a duration, and no rate",
        ));
    }
    let mut estimate = plan.clone();
    estimate.limit = LoadLimit::Time(ESTIMATE);
    let estimated = run(estimate, observe)?;
    let mut search = RateSearch {
        good: None,
        bad: None,
        next: (estimated.responses_per_second * 0.5).max(1.0),
    };
    let mut result = MaxRateReport {
        objective: objective.to_string(),
        rate: None,
        limited_by_generator: None,
        loads: Vec::new(),
        report: None,
    };
    while result.loads.len() < MAX_LOADS && !search.is_over() {
        let rate = search.next;
        let mut load = plan.clone();
        load.rate = Some(ArrivalRate::constant(rate).map_err(BenchError::plan)?);
        let report = run(load, observe);
        // The server may have died by the load before.
        let Ok(report) = report else {
            search.note(rate, false);
            continue;
        };
        let missed = objective.missed(rate, &report);
        result.loads.push(SearchedRate {
            rate,
            responses_per_second: report.responses_per_second,
            p99_ms: report.latency.p99_ms,
            failed: report.failed,
            missed: missed.clone(),
        });
        if report.interrupted {
            break;
        }
        if let Some(why) = &report.generator.bottleneck
            && missed.is_some()
        {
            // The objective was missed because the generator was late.
            result.limited_by_generator = Some(why.clone());
        }
        search.note(rate, missed.is_none());
        if missed.is_none() {
            result.rate = Some(rate);
            result.report = Some(Box::new(report));
        }
    }
    Ok(result)
}

/// The rates of a search.
struct RateSearch {
    good: Option<f64>,
    bad: Option<f64>,
    next: f64,
}

impl RateSearch {
    fn is_over(&self) -> bool {
        match (self.good, self.bad) {
            (Some(good), Some(bad)) => bad / good < CLOSE,
            (None, Some(bad)) => bad <= 1.0,
            _ => false,
        }
    }

    /// Notes whether a rate was good, and chooses the next one.
    fn note(&mut self, rate: f64, is_good: bool) {
        if is_good {
            self.good = Some(rate)
        } else {
            self.bad = Some(rate)
        }
        self.next = match (self.good, self.bad) {
            (Some(good), Some(bad)) => (good * bad).sqrt(),
            (Some(good), None) => good * 1.5,
            (None, Some(bad)) => (bad / 4.0).max(1.0),
            (None, None) => rate,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_objectives() {
        let objective: LoadObjective = "p99=20ms,p99.9=1s,errors=0.5%".parse().unwrap();
        assert_eq!(objective.percentiles.len(), 2);
        assert!((objective.errors - 0.005).abs() < 1e-12);
        assert!("max=1s".parse::<LoadObjective>().is_ok());
        for wrong in [
            "",
            "errors=0",
            "p99",
            "p101=1s",
            "px=1s",
            "p99=fast",
            "p99=1s,errors=5",
        ] {
            assert!(wrong.parse::<LoadObjective>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_text_has_small_rates() {
        let report = MaxRateReport {
            objective: "p99 of at most 1s".to_owned(),
            rate: Some(1.25),
            limited_by_generator: None,
            loads: vec![SearchedRate {
                rate: 1.25,
                responses_per_second: 0.4,
                p99_ms: 2.0,
                failed: 0,
                missed: None,
            }],
            report: None,
        };
        assert_eq!(
            report.to_text(),
            "      1.25/s  p99      2.00 ms       0 failed  kept\n\nhighest rate  1.25/s with p99 of at most 1s\n"
        );
    }

    #[test]
    fn a_search_closes_in_on_the_limit() {
        for limit in [3.0, 77.0, 950.0, 40_000.0] {
            let mut search = RateSearch {
                good: None,
                bad: None,
                next: 500.0,
            };
            let mut loads = 0;
            while !search.is_over() {
                search.note(search.next, search.next <= limit);
                loads += 1;
            }
            let good = search.good.unwrap();
            assert!(good <= limit && good > limit / CLOSE, "{good} {limit}");
            assert!(loads <= MAX_LOADS, "{loads}");
        }
    }
}
