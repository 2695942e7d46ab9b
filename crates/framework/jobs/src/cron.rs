//! `CronExpression`: the times of a schedule, in a time zone.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The times of a schedule: `0 3 * * *` is three o'clock every day.
///
/// The fields are minute, hour, day of the month, month and day of the week; with six, the first one is the second.
/// Names (`MON-FRI`, `JAN`), steps (`*/15`), lists, the last day (`L`) and nicknames (`@daily`) are understood as in crontab(5).
/// If both days are restricted, either of them is enough.
///
/// Times are UTC, unless the text begins with a time zone: `CRON_TZ=Europe/Berlin 0 3 * * *`. Where the clock of the zone
/// goes forward, a time that does not exist comes when the clock has gone forward; where it goes back, a time that comes twice is met once.
///
/// ```
/// use apus_jobs::CronExpression;
///
/// let nightly: CronExpression = "CRON_TZ=Europe/Berlin 0 3 * * *".parse()?;
/// assert!("61 * * * *".parse::<CronExpression>().is_err());
/// # Ok::<(), apus_jobs::CronError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CronExpression {
    text: Box<str>,
    cron: Cron,
    zone: TimeZone,
}

/// The prefix with the time zone.
const ZONE: &str = "CRON_TZ=";

impl FromStr for CronExpression {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let refuse = |problem: String| CronError {
            text: text.into(),
            problem,
        };
        let (zone, fields) = match text.trim().strip_prefix(ZONE) {
            Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
            None => ("UTC", text.trim()),
        };
        let zone = match zone {
            "UTC" => TimeZone::UTC,
            name => TimeZone::get(name)
                .map_err(|_| refuse(format!("the system has no time zone `{name}`")))?,
        };
        let cron = Cron::from_str(fields).map_err(|error| refuse(error.to_string()))?;
        let expression = Self {
            text: text.trim().into(),
            cron,
            zone,
        };
        match expression.next_after(SystemTime::now()) {
            Some(_) => Ok(expression),
            None => Err(refuse("there is no such time".to_owned())),
        }
    }
}

impl CronExpression {
    /// The first time after this one.
    pub fn next_after(&self, time: SystemTime) -> Option<SystemTime> {
        let next = self.cron.find_next_occurrence(&self.zoned(time)?, false);
        next.ok().map(|next| next.timestamp().into())
    }

    /// The last time that is not after this one.
    pub fn last_until(&self, time: SystemTime) -> Option<SystemTime> {
        let last = self.cron.find_previous_occurrence(&self.zoned(time)?, true);
        last.ok().map(|last| last.timestamp().into())
    }

    fn zoned(&self, time: SystemTime) -> Option<Zoned> {
        let time = Timestamp::try_from(time).ok()?;
        Some(time.to_zoned(self.zone.clone()))
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A text that names no times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    text: Box<str>,
    problem: String,
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a schedule: {}", self.text, self.problem)
    }
}

impl Error for CronError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> SystemTime {
        text.parse::<Timestamp>().unwrap().into()
    }

    #[test]
    fn times_follow_one_another() {
        for (text, from, expected) in [
            ("0 3 * * *", "2026-01-31T03:00:00Z", "2026-02-01T03:00:00Z"),
            (
                "0 3 * * *",
                "2026-01-31T02:59:59.5Z",
                "2026-01-31T03:00:00Z",
            ),
            (
                "*/15 * * * *",
                "2026-01-01T00:14:59Z",
                "2026-01-01T00:15:00Z",
            ),
            ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            (
                "0 12 * * MON-FRI",
                "2026-11-27T12:00:00Z",
                "2026-11-30T12:00:00Z",
            ),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            (
                "30 * * * * *",
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:00:30Z",
            ),
            (
                "CRON_TZ=Europe/Berlin 0 3 * * *",
                "2026-07-01T00:00:00Z",
                "2026-07-01T01:00:00Z",
            ),
            (
                "CRON_TZ=Asia/Tokyo 0 3 * * *",
                "2026-07-01T00:00:00Z",
                "2026-07-01T18:00:00Z",
            ),
            // The clock of Berlin goes from 02:00 to 03:00 on that day.
            (
                "CRON_TZ=Europe/Berlin 30 2 * * *",
                "2026-03-28T23:30:00Z",
                "2026-03-29T01:00:00Z",
            ),
        ] {
            let cron: CronExpression = text.parse().unwrap();
            let next = cron.next_after(time(from)).unwrap();
            assert_eq!(
                Timestamp::try_from(next).unwrap().to_string(),
                expected,
                "{text} {from}"
            );
        }
    }

    #[test]
    fn a_time_that_comes_twice_is_met_once() {
        // The clock of Berlin goes from 03:00 to 02:00 on 25 October 2026.
        let cron: CronExpression = "CRON_TZ=Europe/Berlin 30 2 * * *".parse().unwrap();
        let mut at = time("2026-10-24T12:00:00Z");
        let times = std::iter::from_fn(|| {
            at = cron.next_after(at)?;
            Some(Timestamp::try_from(at).unwrap().to_string())
        });
        let times: Vec<String> = times.take(2).collect();
        assert_eq!(times, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn the_last_time_may_be_now() {
        let cron: CronExpression = "0 3 * * *".parse().unwrap();
        for (until, expected) in [
            ("2026-01-02T03:00:00Z", "2026-01-02T03:00:00Z"),
            ("2026-01-02T02:59:59Z", "2026-01-01T03:00:00Z"),
        ] {
            assert_eq!(cron.last_until(time(until)), Some(time(expected)));
        }
    }

    #[test]
    fn a_text_that_names_no_times_is_told() {
        for (text, problem) in [
            ("", ""),
            ("* * *", ""),
            ("60 * * * *", ""),
            ("0 0 30 2 *", ""),
            (
                "CRON_TZ=Europe/Atlantis 0 3 * * *",
                "the system has no time zone `Europe/Atlantis`",
            ),
            ("CRON_TZ=Europe/Berlin", ""),
        ] {
            let error = text.parse::<CronExpression>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(problem), "{error}");
        }
    }
}
