//! Dates in fields (RFC 9110 section 5.6.7).
//!
//! This is the one way to the crate httpdate. Logs and certificates use the crate time, because rcgen, x509-parser and cookie
//! have its types in their interfaces. Schedules of jobs need time zones, which time does not have: they use jiff.

use std::time::SystemTime;

/// Reads a date in one of the three formats. The names of days, months and the zone may be in any case: caches should
/// take them so (RFC 9111 section 4.2).
pub fn http_date(value: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(value).ok()?;
    let parsed = httpdate::parse_http_date(text);
    parsed
        .or_else(|_| httpdate::parse_http_date(&with_usual_case(text)))
        .ok()
}

/// The date of a time in the preferred format: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http_date_text(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

/// Each word with a capital letter in front, and `GMT`.
fn with_usual_case(text: &str) -> String {
    let mut usual = String::with_capacity(text.len());
    let mut is_inside = false;
    for letter in text.chars() {
        usual.push(if is_inside {
            letter.to_ascii_lowercase()
        } else {
            letter.to_ascii_uppercase()
        });
        is_inside = letter.is_ascii_alphabetic();
    }
    match usual.strip_suffix("Gmt") {
        Some(rest) => format!("{rest}GMT"),
        None => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_dates_may_be_in_any_case() {
        for usual in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            let date = http_date(usual.as_bytes()).unwrap();
            for other in [usual.to_lowercase(), usual.to_uppercase()] {
                assert_eq!(http_date(other.as_bytes()), Some(date), "{other}");
            }
        }
        for wrong in [
            "",
            "0",
            "sun, 06 nov 1994 08:49:37 utc",
            "Sun, 06 Nov 1994 08:49:37 GMTGMT",
            "06 nov 1994",
        ] {
            assert_eq!(http_date(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
