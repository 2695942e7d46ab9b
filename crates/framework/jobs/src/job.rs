//! `Job`: a type of work, and how it is retried.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Work that a queue keeps, as JSON, until a runner does it.
pub trait Job: Serialize + DeserializeOwned + 'static {
    /// The name in the queue, which must stay the same as long as jobs wait there.
    const NAME: &'static str;

    /// How it is retried, and how long it may take.
    fn settings() -> JobSettings {
        JobSettings::default()
    }
}

/// How jobs of a type are retried, and how long one may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSettings {
    pub(crate) attempts: u32,
    pub(crate) first_delay: Duration,
    pub(crate) longest_delay: Duration,
    pub(crate) time_limit: Duration,
}

impl JobSettings {
    /// How often a job is tried, at least once; after that it is dead, see
    /// [`Jobs::dead`](crate::Jobs::dead). Default: 10.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// The delay after the first failure, which doubles with each further one up to a longest delay. A job waits between
    /// half and all of it, so that jobs which failed together do not come back together. Default: from 5 seconds to an hour.
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.first_delay = first;
        self.longest_delay = longest;
        self
    }

    /// How long one attempt may take; after that it has failed. Default: 5 minutes.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The delay before the next attempt, after this number of them. `part` is from 0 to 1.
    pub(crate) fn delay(&self, attempts: u32, part: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1).min(31));
        let delay = self.first_delay.saturating_mul(doubled);
        let delay = delay.min(self.longest_delay);
        delay.mul_f64(0.5 + part.clamp(0.0, 1.0) / 2.0)
    }
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            attempts: 10,
            first_delay: Duration::from_secs(5),
            longest_delay: Duration::from_secs(3600),
            time_limit: Duration::from_secs(300),
        }
    }
}

/// When a job is due, and whether it is the only one of its kind.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    pub(crate) due: Option<Due>,
    pub(crate) unique: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    After(Duration),
    At(SystemTime),
}

impl PushOptions {
    /// A job that is due at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The job is due after this time.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Some(Due::After(delay));
        self
    }

    /// The job is due at this time.
    #[must_use]
    pub fn at(mut self, time: SystemTime) -> Self {
        self.due = Some(Due::At(time));
        self
    }

    /// The job is not added if the queue has one with this key that waits or runs.
    #[must_use]
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.unique = Some(key.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let settings =
            JobSettings::default().backoff(Duration::from_secs(2), Duration::from_secs(60));
        for (attempts, part, seconds) in [
            (1, 1.0, 2.0),
            (1, 0.0, 1.0),
            (2, 1.0, 4.0),
            (5, 1.0, 32.0),
            (6, 1.0, 60.0),
            (6, 0.5, 45.0),
            (u32::MAX, 0.0, 30.0),
        ] {
            let delay = settings.delay(attempts, part).as_secs_f64();
            assert!(
                (delay - seconds).abs() < 0.001,
                "{attempts} {part}: {delay}"
            );
        }
    }

    #[test]
    fn a_job_is_tried_at_least_once() {
        for (attempts, expected) in [(0, 1), (1, 1), (2, 2)] {
            let settings = JobSettings::default().attempts(attempts);
            assert_eq!(settings.attempts, expected);
        }
    }
}
