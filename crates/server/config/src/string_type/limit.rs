//! Types of values of limits.

use std::time::Duration;

use apus_access::MAX_QUOTA;
use apus_layers::{LimitKey, QuotaWindow};
use http::StatusCode;

use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, choices};
use crate::size::SizeWithUnit;
use crate::value::Int;

/// The name of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitName(pub(crate) String);

impl StringType for LimitName {
    const EXPECTED: &'static str = "a name of letters, digits, \"-\" and \"_\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_plain) {
            return Err(ValueError::Unexpected);
        }
        Ok(Self(text.to_owned()))
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// A fact that requests are counted by.
#[derive(Clone, Debug)]
pub(crate) struct LimitFact(pub(crate) String);

impl StringType for LimitFact {
    const EXPECTED: &'static str = "a fact of requests as \"client\" or \"header.x-api-key\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        LimitKey::parse([text]).map_err(ValueError::of)?;
        Ok(Self(text.to_owned()))
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// So many requests in a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateText {
    /// The requests, or the bytes of responses.
    pub(crate) units: u32,
    pub(crate) is_bytes: bool,
    pub(crate) period: Duration,
}

/// The most bytes per second of a rate: a nanosecond is a hundredth of the time of a byte then.
const MAX_BYTE_RATE: u64 = 10_000_000;

impl StringType for RateText {
    const EXPECTED: &'static str =
        "requests in a time as \"100/s\", \"10/5s\", \"600/m\" or \"1000/h\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let (requests, period) = text.split_once('/').ok_or(ValueError::Unexpected)?;
        // nginx writes `10r/s`.
        let requests = requests.strip_suffix('r').unwrap_or(requests);
        let is_bytes = !requests.bytes().all(|byte| byte.is_ascii_digit());
        let units = if is_bytes {
            let SizeWithUnit(bytes) = SizeWithUnit::parse(requests)?;
            u32::try_from(bytes).map_err(|_| "expected less than 4gb in a time")?
        } else {
            let requests = requests.parse().ok();
            let requests = requests.filter(|requests| *requests <= 1_000_000_000);
            requests.ok_or(ValueError::Unexpected)?
        };
        if units == 0 {
            return Err("a limit of no requests refuses all; write return = 403".into());
        }
        let digits = period.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let count: u64 = match digits {
            "" => 1,
            digits => digits.parse().map_err(|_| ValueError::Unexpected)?,
        };
        let seconds = match period.strip_prefix(digits) {
            Some("s") => 1,
            Some("m") => 60,
            Some("h") => 3600,
            Some("d") => 86_400,
            _ => return Err("the units are s, m, h and d".into()),
        };
        let seconds = count.checked_mul(seconds);
        match seconds.filter(|seconds| (1..=31_536_000).contains(seconds)) {
            Some(seconds) if is_bytes && u64::from(units) / seconds > MAX_BYTE_RATE => {
                Err("more than 10 million bytes per second are a matter of `bandwidth`".into())
            }
            Some(seconds) => Ok(Self {
                units,
                is_bytes,
                period: Duration::from_secs(seconds),
            }),
            None => Err("expected a time from 1 second to 365 days".into()),
        }
    }
}

/// So many requests or bytes in a window of the calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaText {
    /// The requests, or the bytes of responses.
    pub(crate) units: u64,
    pub(crate) is_bytes: bool,
    pub(crate) window: QuotaWindow,
}

impl StringType for QuotaText {
    const EXPECTED: &'static str =
        "requests or bytes in a window as \"1000/hour\", \"10000/day\" or \"100gb/month\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let (units, window) = text.split_once('/').ok_or(ValueError::Unexpected)?;
        let window = match window.trim() {
            "hour" | "h" => QuotaWindow::Hour,
            "day" | "d" => QuotaWindow::Day,
            "month" => QuotaWindow::Month,
            _ => return Err("the windows are hour, day and month".into()),
        };
        let is_bytes = !units.bytes().all(|byte| byte.is_ascii_digit());
        let units = if is_bytes {
            SizeWithUnit::parse(units)?.0
        } else {
            units.parse().map_err(|_| ValueError::Unexpected)?
        };
        match units {
            0 => Err("a quota of nothing refuses all; write return = 403".into()),
            MAX_QUOTA.. => Err("expected less than 16 TB in a window".into()),
            _ => Ok(Self {
                units,
                is_bytes,
                window,
            }),
        }
    }
}

/// The rate or the quota of a plan.
#[derive(Clone, Debug)]
pub(crate) struct TierText(pub(crate) String);

impl StringType for TierText {
    const EXPECTED: &'static str = "a rate as \"1000/s\", or a quota as \"10000/day\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match (RateText::parse(text), QuotaText::parse(text)) {
            // What was probably meant.
            (Err(_), Err(error)) if text.contains("month") || text.contains("day") => Err(error),
            (Err(error), Err(_)) => Err(error),
            _ => Ok(Self(text.to_owned())),
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// Bytes in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BandwidthText(pub(crate) u64);

impl StringType for BandwidthText {
    const EXPECTED: &'static str = "bytes per second as \"500kb/s\" or \"1mb/s\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let bytes = text.trim().strip_suffix("/s");
        let bytes = bytes.ok_or("it does not end with /s, which is per second")?;
        match SizeWithUnit::parse(bytes)? {
            SizeWithUnit(bytes) if bytes >= 64 => Ok(Self(bytes)),
            SizeWithUnit(_) => Err("the least is 64 bytes per second".into()),
        }
    }
}

choices! {
    /// Which bodies are limited.
    pub(crate) BodyDirection: "which bodies are limited" {
        /// Those that are sent.
        Response = "response",
        /// Those that are received.
        Request = "request",
    }
}

/// The status of a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusalStatus(pub(crate) StatusCode);

impl KeyType for RefusalStatus {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Int::<400, 599>::read(node, reader)
            .and_then(|status| u16::try_from(status.0).ok())
            .and_then(|status| StatusCode::from_u16(status).ok())
            .map(Self)
    }

    fn type_description() -> TypeDescription {
        Int::<400, 599>::type_description()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_bytes_per_second() {
        for (text, expected) in [
            ("1mb/s", Some(1 << 20)),
            ("1.5 M/s", Some(3 << 19)),
            ("64b/s", Some(64)),
            ("63b/s", None),
            ("1mb", None),
            ("1mb/m", None),
            ("1/s", None),
            ("/s", None),
        ] {
            let bandwidth = BandwidthText::parse(text).ok();
            assert_eq!(bandwidth.map(|bandwidth| bandwidth.0), expected, "{text}");
        }
    }

    #[test]
    fn quotas_are_requests_or_bytes_in_a_window_of_the_calendar() {
        for (text, expected) in [
            ("10000/day", Some((10_000, false, QuotaWindow::Day))),
            ("1/h", Some((1, false, QuotaWindow::Hour))),
            ("100gb/month", Some((100 << 30, true, QuotaWindow::Month))),
            ("15tb/month", Some((15 << 40, true, QuotaWindow::Month))),
            ("16tb/month", None),
            ("10000/m", None),
            ("10000/2days", None),
            ("0/day", None),
            ("-1/day", None),
            ("99999999999999999999/day", None),
            ("/day", None),
            ("5", None),
        ] {
            let quota = QuotaText::parse(text).ok();
            let quota = quota.map(|quota| (quota.units, quota.is_bytes, quota.window));
            assert_eq!(quota, expected, "{text}");
        }
    }

    #[test]
    fn rates_are_requests_in_a_time_of_at_least_a_second() {
        for (text, expected) in [
            ("100/s", Some((100, 1))),
            ("100r/s", Some((100, 1))),
            ("10/5s", Some((10, 5))),
            ("600/m", Some((600, 60))),
            ("5/15m", Some((5, 900))),
            ("1000/h", Some((1000, 3600))),
            ("1/365d", Some((1, 31_536_000))),
            ("1/366d", None),
            ("1mb/m", Some((1 << 20, 60))),
            ("3gb/h", Some((3 << 30, 3600))),
            ("4gb/h", None),
            ("9mb/s", Some((9 << 20, 1))),
            ("10mb/s", None),
            ("0kb/s", None),
            ("kb/s", None),
            ("0/s", None),
            ("1/0s", None),
            ("1", None),
            ("/s", None),
            ("1/", None),
            ("1/5", None),
            ("1/ms", None),
            ("-1/s", None),
            ("1/99999999999999999999s", None),
            ("5000000000/s", None),
        ] {
            let rate = RateText::parse(text).ok();
            let rate = rate.map(|rate| (rate.units, rate.period.as_secs()));
            assert_eq!(rate, expected, "{text}");
        }
    }
}
