//! The time between a response and the next request of a connection, as of users who read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::arrivals::Arrivals;
use crate::parse_duration;
use crate::target::InvalidDuration;

/// How long a connection waits between a response and its next request: between two durations, evenly at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkTime {
    least: Duration,
    most: Duration,
}

impl ThinkTime {
    /// A connection that had its response is left alone until the load ends.
    pub const UNTIL_THE_END: Self = Self {
        least: Duration::from_secs(86_400 * 365),
        most: Duration::from_secs(86_400 * 365),
    };

    pub(crate) fn choose(self, random: &mut fastrand::Rng) -> Duration {
        let range = (self.most - self.least).as_secs_f64();
        self.least + Duration::from_secs_f64(range * random.f64())
    }
}

impl FromStr for ThinkTime {
    type Err = InvalidThinkTime;

    /// Parses a duration, or two of them as in `1s..3s`.
    fn from_str(text: &str) -> Result<Self, InvalidThinkTime> {
        let parse_duration = |text| parse_duration(text).map_err(InvalidThinkTime::Time);
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (parse_duration(least)?, parse_duration(most)?),
            None => (parse_duration(text)?, parse_duration(text)?),
        };
        if least <= most {
            Ok(Self { least, most })
        } else {
            Err(InvalidThinkTime::Reversed(text.to_owned()))
        }
    }
}

impl fmt::Display for ThinkTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{:?}", self.least)
        } else {
            write!(f, "{:?} to {:?}", self.least, self.most)
        }
    }
}

/// Why a text is no time between requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidThinkTime {
    /// One of its times.
    Time(InvalidDuration),
    /// Its second time is shorter than its first one.
    Reversed(String),
}

impl fmt::Display for InvalidThinkTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(error) => error.fmt(f),
            Self::Reversed(text) => write!(f, "`{text}` ends before it begins"),
        }
    }
}

impl std::error::Error for InvalidThinkTime {}

/// The pause of a connection before its next request.
#[derive(Default)]
pub(crate) struct ThinkPause {
    timer: Option<Pin<Box<Sleep>>>,
}

impl ThinkPause {
    /// Begins a pause, which ends with the load at the latest.
    pub(crate) fn begin(&mut self, time: Duration, arrivals: &Arrivals) {
        let until = Instant::now() + time;
        let until = arrivals.end().map_or(until, |end| until.min(end));
        self.timer = Some(Box::pin(tokio::time::sleep_until(until.into())));
    }

    /// Whether there is a pause.
    pub(crate) fn is_going_on(&self) -> bool {
        self.timer.is_some()
    }

    /// Waits for the end of the pause of the connection `id`, or of the load.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (id, arrivals): (usize, &Arrivals),
    ) -> Poll<()> {
        let Some(timer) = &mut self.timer else {
            return Poll::Ready(());
        };
        if timer.as_mut().poll(cx).is_pending() && !arrivals.is_over() {
            arrivals.wake_at_end(id, cx.waker());
            return Poll::Pending;
        }
        self.timer = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_duration_or_two() {
        let mut random = fastrand::Rng::with_seed(7);
        let one: ThinkTime = "250ms".parse().unwrap();
        assert_eq!(one.choose(&mut random), Duration::from_millis(250));
        let two: ThinkTime = "1s..3s".parse().unwrap();
        assert_eq!(two.to_string(), "1s to 3s");
        let chosen: Vec<_> = (0..100).map(|_| two.choose(&mut random)).collect();
        let bounds = Duration::from_secs(1)..=Duration::from_secs(3);
        assert!(chosen.iter().all(|time| bounds.contains(time)));
        assert!(
            chosen
                .iter()
                .any(|time| *time > Duration::from_millis(2500))
        );
        assert!(
            chosen
                .iter()
                .any(|time| *time < Duration::from_millis(1500))
        );
        for wrong in ["", "..", "3s..1s", "1s..", "soon"] {
            assert!(wrong.parse::<ThinkTime>().is_err(), "{wrong}");
        }
    }
}
