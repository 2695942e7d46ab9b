//! The `Content-Range` field of partial responses (RFC 9111 section 3.4, RFC 9110 section 14.4).

use apus_http::Headers;
use apus_http::fields::ByteRange;

/// The range of a representation that a 206 response contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The range.
    pub range: ByteRange,
    /// The length of the complete representation.
    pub complete: u64,
}

impl ContentRange {
    /// Parses `Content-Range`. `None` if it is absent, repeated, not in bytes, without the complete
    /// length, or inconsistent with itself or with `Content-Length`.
    pub fn of(headers: &Headers) -> Option<Self> {
        let mut lines = headers.get_all("content-range");
        let value = std::str::from_utf8(lines.next()?).ok()?;
        if lines.next().is_some() {
            return None;
        }
        let (unit, rest) = value.split_once(' ')?;
        let (range, complete) = rest.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let complete = number(complete)?;
        let (first, last) = (number(first)?, number(last)?);
        if !unit.eq_ignore_ascii_case("bytes") || first > last || last >= complete {
            return None;
        }
        let len = last.checked_sub(first)?.checked_add(1)?;
        // With two lengths nobody knows which of them the body has, and bytes would be stored at a wrong place.
        let is_consistent = content_length(headers).is_none_or(|length| length == len);
        is_consistent.then_some(Self {
            range: ByteRange { start: first, len },
            complete,
        })
    }
}

/// The value of `Content-Length`, if there is one.
pub(super) fn content_length(headers: &Headers) -> Option<u64> {
    number(headers.get_str("content-length")?)
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}
