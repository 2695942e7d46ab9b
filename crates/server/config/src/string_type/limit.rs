//! Types of values of limits.

use std::time::Duration;

use apus_layers::LimitKey;
use http::StatusCode;

use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode};
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
    pub(crate) requests: u32,
    pub(crate) period: Duration,
}

impl StringType for RateText {
    const EXPECTED: &'static str =
        "requests in a time as \"100/s\", \"10/5s\", \"600/m\" or \"1000/h\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let (requests, period) = text.split_once('/').ok_or(ValueError::Unexpected)?;
        // nginx writes `10r/s`.
        let requests = requests.strip_suffix('r').unwrap_or(requests);
        let requests: u32 = match requests.parse() {
            Ok(0) => return Err("a limit of no requests refuses all; write return = 403".into()),
            Ok(requests) if requests <= 1_000_000_000 => requests,
            _ => return Err(ValueError::Unexpected),
        };
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
            Some(seconds) => Ok(Self {
                requests,
                period: Duration::from_secs(seconds),
            }),
            None => Err("expected a time from 1 second to 365 days".into()),
        }
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
            let rate = rate.map(|rate| (rate.requests, rate.period.as_secs()));
            assert_eq!(rate, expected, "{text}");
        }
    }
}
