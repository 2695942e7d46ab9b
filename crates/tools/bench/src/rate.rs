//! The rate of an open loop: when each request is due.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::parse_duration;
use crate::target::InvalidDuration;

/// The rate at which requests are due, over the time of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivalRate {
    /// Never empty. The last one lasts until the end of the load.
    stages: Vec<RateStage>,
}

/// A part of the time: the rate goes evenly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RateStage {
    from: f64,
    to: f64,
    /// Seconds; infinite for the last stage.
    seconds: f64,
}

/// How the requests of a rate are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArrivalOrder {
    /// At equal distances.
    #[default]
    Even,
    /// As independent users: the distances are random (a Poisson process).
    Poisson,
}

impl ArrivalRate {
    /// A constant rate in requests per second.
    ///
    /// # Errors
    /// The rate is not positive.
    pub fn constant(rate: f64) -> Result<Self, InvalidRate> {
        Ok(Self {
            stages: vec![RateStage {
                from: positive(rate)?,
                to: rate,
                seconds: f64::INFINITY,
            }],
        })
    }

    /// The highest rate of the plan.
    pub fn highest(&self) -> f64 {
        self.stages
            .iter()
            .fold(0.0, |most, stage| most.max(stage.from).max(stage.to))
    }

    /// Whether the rate never changes.
    pub fn is_constant(&self) -> bool {
        self.stages.len() == 1 && self.stages.iter().all(|stage| stage.from == stage.to)
    }

    /// The share of one of several workers: every `count`th request, beginning with the request `index`.
    pub(crate) fn arrivals(&self, share: WorkerShare, order: ArrivalOrder) -> ArrivalTimes {
        ArrivalTimes {
            stages: self.stages.clone(),
            passed: 0.0,
            stage: 0,
            count: share.count as f64,
            // Requests of the whole rate until the next one of this worker.
            left: match order {
                ArrivalOrder::Even => share.index as f64,
                ArrivalOrder::Poisson => 0.0,
            },
            random: match order {
                ArrivalOrder::Even => None,
                ArrivalOrder::Poisson => Some(fastrand::Rng::with_seed(share.seed())),
            },
            is_first: true,
        }
    }
}

/// Which of the workers this is, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerShare {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl WorkerShare {
    /// The part of a number that this worker gets; all parts together are the number.
    pub(crate) fn of(self, number: usize) -> usize {
        let rest = number % self.count.max(1);
        number / self.count.max(1) + usize::from(self.index < rest)
    }

    /// As [`Self::of`].
    pub(crate) fn of_requests(self, number: u64) -> u64 {
        let (index, count) = (self.index as u64, self.count.max(1) as u64);
        number / count + u64::from(index < number % count)
    }

    /// The seed of random numbers, so that a load can be repeated.
    pub(crate) fn seed(self) -> u64 {
        0x9e37_79b9_7f4a_7c15 ^ (self.index as u64)
    }
}

/// The times at which the requests of a worker are due, from the start of the load.
pub(crate) struct ArrivalTimes {
    stages: Vec<RateStage>,
    /// Seconds of the current stage that have passed.
    passed: f64,
    stage: usize,
    count: f64,
    left: f64,
    random: Option<fastrand::Rng>,
    is_first: bool,
}

impl ArrivalTimes {
    /// How many requests of the whole rate pass until the next one of this worker.
    fn distance(&mut self) -> f64 {
        let is_first = std::mem::take(&mut self.is_first);
        match &mut self.random {
            Some(random) => -self.count * (1.0 - random.f64()).ln(),
            None if is_first => self.left,
            None => self.count,
        }
    }
}

impl Iterator for ArrivalTimes {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let mut requests = self.distance();
        loop {
            let stage = *self.stages.get(self.stage)?;
            let slope = if stage.seconds.is_finite() {
                (stage.to - stage.from) / stage.seconds
            } else {
                0.0
            };
            let now = stage.from + slope * self.passed;
            // requests = now * t + slope / 2 * t^2
            let time = if slope == 0.0 {
                requests / now
            } else {
                let root = (now * now + 2.0 * slope * requests).max(0.0).sqrt();
                2.0 * requests / (now + root)
            };
            let rest = stage.seconds - self.passed;
            let whole = (now + slope / 2.0 * rest) * rest;
            if requests <= whole || !stage.seconds.is_finite() {
                self.passed += time;
                let before: f64 = self
                    .stages
                    .iter()
                    .take(self.stage)
                    .map(|one| one.seconds)
                    .sum();
                return Duration::try_from_secs_f64(before + self.passed).ok();
            }
            requests -= whole;
            self.passed = 0.0;
            self.stage += 1;
        }
    }
}

impl FromStr for ArrivalRate {
    type Err = InvalidRate;

    /// Parses stages, separated by commas: `RATE`, `RATE:TIME` for a step, `FROM..TO:TIME` for a ramp. A rate is
    /// a number, with `k` for thousands. Only the last may be without a time.
    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let mut stages: Vec<RateStage> = Vec::new();
        let parts: Vec<_> = text.split(',').collect();
        for (index, part) in parts.iter().enumerate() {
            let (rates, time) = match part.split_once(':') {
                Some((rates, time)) => (
                    rates,
                    Some(parse_duration(time).map_err(InvalidRate::Time)?),
                ),
                None => (*part, None),
            };
            let (from, to) = match rates.split_once("..") {
                Some((from, to)) => (parse_rate(from)?, parse_rate(to)?),
                None => (parse_rate(rates)?, parse_rate(rates)?),
            };
            let is_last = index + 1 == parts.len();
            let seconds = match time {
                Some(time) if time.is_zero() => {
                    return Err(InvalidRate::EmptyStage((*part).to_owned()));
                }
                Some(time) => time.as_secs_f64(),
                None if is_last && from == to => f64::INFINITY,
                None => {
                    return Err(InvalidRate::EndlessStage((*part).to_owned()));
                }
            };
            stages.push(RateStage { from, to, seconds });
        }
        // The last rate lasts.
        if let Some(last) = stages.last().filter(|last| last.seconds.is_finite()) {
            let to = last.to;
            stages.push(RateStage {
                from: to,
                to,
                seconds: f64::INFINITY,
            });
        }
        Ok(Self { stages })
    }
}

impl fmt::Display for ArrivalRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, stage) in self.stages.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", then " };
            if stage.from == stage.to {
                write!(f, "{comma}{}/s", stage.from)?
            } else {
                write!(f, "{comma}{}/s to {}/s", stage.from, stage.to)?
            }
            if stage.seconds.is_finite() {
                write!(f, " for {} s", stage.seconds)?;
            }
        }
        Ok(())
    }
}

fn parse_rate(text: &str) -> Result<f64, InvalidRate> {
    let text = text.trim().trim_end_matches("/s");
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000.0),
        None => (text, 1.0),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| InvalidRate::NoNumber(text.to_owned()))?;
    positive(number * factor)
}

fn positive(rate: f64) -> Result<f64, InvalidRate> {
    if rate.is_finite() && rate > 0.0 {
        Ok(rate)
    } else {
        Err(InvalidRate::NotPositive)
    }
}

/// Why a text is no rate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRate {
    /// A rate is 0, or less.
    NotPositive,
    /// This is no number.
    NoNumber(String),
    /// The time of a stage.
    Time(InvalidDuration),
    /// This stage takes no time.
    EmptyStage(String),
    /// This stage has no time, and is not the last one or leads to another rate.
    EndlessStage(String),
}

impl fmt::Display for InvalidRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPositive => f.write_str("a rate must be more than 0"),
            Self::NoNumber(text) => write!(
                f,
                "`{text}` is no rate; expected a number of requests per second, such as 500 or 2k"
            ),
            Self::Time(error) => error.fmt(f),
            Self::EmptyStage(stage) => write!(f, "the stage `{stage}` has no time"),
            Self::EndlessStage(stage) => {
                write!(f, "the stage `{stage}` needs a time, such as {stage}:10s")
            }
        }
    }
}

impl std::error::Error for InvalidRate {}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(plan: &str, share: (usize, usize), most: usize) -> Vec<f64> {
        let plan: ArrivalRate = plan.parse().unwrap();
        let share = WorkerShare {
            index: share.0,
            count: share.1,
        };
        let arrivals = plan.arrivals(share, ArrivalOrder::Even);
        arrivals.take(most).map(|time| time.as_secs_f64()).collect()
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn a_constant_rate_is_shared_by_workers() {
        assert_near(&times("10", (0, 2), 3), &[0.0, 0.2, 0.4]);
        assert_near(&times("10", (1, 2), 3), &[0.1, 0.3, 0.5]);
    }

    #[test]
    fn steps_and_ramps_have_the_requests_of_their_area() {
        assert_near(
            &times("2:1s,4", (0, 1), 6),
            &[0.0, 0.5, 1.0, 1.25, 1.5, 1.75],
        );
        // From 0.001/s to 100/s in 10 s: 500 requests; then 100/s.
        let ramp = times("0.001..100:10s", (0, 1), 700);
        let within = ramp.iter().filter(|time| **time <= 10.0).count();
        assert!((499..=502).contains(&within), "{within}");
        let half = ramp.iter().filter(|time| **time <= 5.0).count();
        assert!((124..=127).contains(&half), "{half}");
        assert!((ramp[699] - ramp[698] - 0.01).abs() < 1e-9);
        let falling = times("100..1:10s", (0, 1), 600);
        let within = falling.iter().filter(|time| **time <= 10.0).count();
        assert!((504..=506).contains(&within), "{within}");
    }

    #[test]
    fn a_poisson_process_has_its_rate_and_random_distances() {
        let plan = ArrivalRate::constant(1000.0).unwrap();
        let share = WorkerShare { index: 0, count: 4 };
        let times: Vec<f64> = plan
            .arrivals(share, ArrivalOrder::Poisson)
            .take(100_000)
            .map(|time| time.as_secs_f64())
            .collect();
        let mean = times.last().unwrap() / 100_000.0;
        assert!((mean - 0.004).abs() < 0.000_05, "{mean}");
        let long = times
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > 0.004)
            .count();
        // exp(-1) of the distances are longer than the mean.
        assert!((long as f64 / 100_000.0 - 0.368).abs() < 0.01, "{long}");
    }

    #[test]
    fn rejects_rates_that_mean_nothing() {
        for wrong in ["", "0", "-1", "x", "1..2", "5,10", "10:0s", "1..:3s", "nan"] {
            assert!(wrong.parse::<ArrivalRate>().is_err(), "{wrong}");
        }
        let plan: ArrivalRate = "1k:5s, 2k..4k:10s".parse().unwrap();
        assert_eq!(plan.highest(), 4000.0);
        assert!(!plan.is_constant());
    }

    #[test]
    fn the_parts_of_all_workers_are_the_whole() {
        for number in [0, 1, 7, 100] {
            let parts = (0..3).map(|index| WorkerShare { index, count: 3 }.of(number));
            assert_eq!(parts.sum::<usize>(), number);
        }
    }
}
