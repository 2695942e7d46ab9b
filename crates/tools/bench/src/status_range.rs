//! Statuses of good responses, as users write them.

use std::fmt;
use std::ops::RangeInclusive;

/// Parses a status such as `200`, or a range such as `200-299`.
///
/// # Errors
/// The text is neither.
pub fn parse_statuses(text: &str) -> Result<RangeInclusive<u16>, InvalidStatuses> {
    let status = |text: &str| match text.parse() {
        Ok(status @ 100..=999) => Ok(status),
        _ => Err(InvalidStatuses),
    };
    match text.split_once('-') {
        Some((first, last)) => Ok(status(first)?..=status(last)?),
        None => Ok(status(text)?..=status(text)?),
    }
}

/// The error for a text that is neither a status nor a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidStatuses;

impl fmt::Display for InvalidStatuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a status such as 200, or a range such as 200-299")
    }
}

impl std::error::Error for InvalidStatuses {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ranges_of_statuses() {
        assert_eq!(parse_statuses("200"), Ok(200..=200));
        assert_eq!(parse_statuses("200-299"), Ok(200..=299));
        for wrong in ["", "20", "abc", "200-", "-200", "1000"] {
            assert!(parse_statuses(wrong).is_err(), "{wrong}");
        }
    }
}
