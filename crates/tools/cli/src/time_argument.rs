//! Arguments that are a time from now, or a moment.

use std::time::{Duration, SystemTime};

use apus_bench::parse_duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment that is to come.
pub(crate) fn parse_moment(text: &str) -> Result<SystemTime, String> {
    let now = SystemTime::now();
    let moment = match parse_duration(text) {
        Ok(time) if time >= Duration::from_secs(1) => now.checked_add(time),
        Ok(_) => None,
        Err(_) => match OffsetDateTime::parse(text, &Rfc3339) {
            Ok(moment) => Some(moment.into()),
            Err(_) => {
                return Err(
                    "expected a time such as 30m or 2h, or a date and time such as \
                     2026-12-01T06:00:00Z"
                        .to_owned(),
                );
            }
        },
    };
    moment
        .filter(|moment| *moment > now)
        .ok_or_else(|| "expected a moment that is to come".to_owned())
}

/// A time of a second at least, also in days.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u64>().ok());
    let time = match days {
        Some(days) => Duration::from_secs(days.saturating_mul(86_400)),
        None => parse_duration(text).map_err(|error| error.to_string())?,
    };
    if time < Duration::from_secs(1) {
        return Err("expected at least a second".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_from_now_or_a_date_and_is_to_come() {
        let left = |text: &str| parse_moment(text).map(|end| end.duration_since(SystemTime::now()));
        let two_hours = left("2h").unwrap().unwrap();
        assert!(two_hours > Duration::from_secs(7190) && two_hours <= Duration::from_secs(7200));
        assert!(left("2099-12-01T06:00:00+08:00").unwrap().is_ok());
        for text in ["0s", "2001-12-01T06:00:00Z", "tomorrow", "2099-12-01", ""] {
            assert!(left(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units_and_are_a_second_at_least() {
        assert_eq!(parse_time("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(parse_time("1h"), Ok(Duration::from_secs(3600)));
        assert!(parse_time("0s").is_err() && parse_time("x").is_err() && parse_time("").is_err());
    }
}
