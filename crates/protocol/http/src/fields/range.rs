//! Byte ranges: `Range` and `Content-Range` (RFC 9110 section 14).

use std::fmt;

use smallvec::SmallVec;

use crate::list;

/// The most ranges of a request. A request for more gets the whole representation (CVE-2011-3192).
pub const MAX_RANGES: usize = 8;

/// A part of a representation: at least one byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The position of the first byte.
    pub start: u64,
    /// The number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// The position after the last byte.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// The value of `Content-Range` for this part of a representation of `complete` bytes.
    pub fn content_range(self, complete: u64) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let last = self.end().saturating_sub(1);
            write!(f, "bytes {}-{last}/{complete}", self.start)
        })
    }
}

/// The parts of a representation that a `Range` field requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The whole: the field is invalid, has another unit, or requests too many ranges (section 14.2).
    Whole,
    /// No part that exists. The response is 416 (section 15.5.17).
    Unsatisfiable,
    /// These parts, at least one, in the order of the request. Parts that overlap or touch are merged.
    Parts(SmallVec<[ByteRange; 1]>),
}

impl Ranges {
    /// Reads the value of `Range` for a representation of `complete` bytes.
    pub fn parse(value: &[u8], complete: u64) -> Self {
        match parts(value, complete) {
            None => Self::Whole,
            // `Content-Range` cannot name a part of an empty representation.
            Some(_) if complete == 0 => Self::Whole,
            Some(parts) if parts.is_empty() => Self::Unsatisfiable,
            Some(parts) => Self::Parts(merge(parts)),
        }
    }
}

/// The ranges that can be satisfied; `None` if the field is ignored.
fn parts(value: &[u8], complete: u64) -> Option<SmallVec<[ByteRange; 1]>> {
    let (unit, set) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut parts = SmallVec::new();
    let mut specs = 0_usize;
    for spec in list::members(set) {
        specs = specs.saturating_add(1);
        if specs > MAX_RANGES {
            return None;
        }
        let dash = memchr::memchr(b'-', spec)?;
        let (first, last) = (spec.get(..dash)?, spec.get(dash.saturating_add(1)..)?);
        let (start, end) = if first.is_empty() {
            (complete.saturating_sub(position(last)?), complete)
        } else {
            let start = position(first)?;
            let end = if last.is_empty() {
                complete
            } else {
                let last = position(last)?;
                if last < start {
                    return None;
                }
                last.saturating_add(1).min(complete)
            };
            (start, end)
        };
        if let Some(len) = end.checked_sub(start).filter(|len| *len > 0) {
            parts.push(ByteRange { start, len });
        }
    }
    (specs > 0).then_some(parts)
}

/// Parses a number. One that exceeds the type counts as the largest (CVE-2017-7529).
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit.saturating_sub(b'0')))
    }))
}

/// Merges parts that overlap or touch. Only then the order changes, to ascending (section 15.3.7.2).
fn merge(parts: SmallVec<[ByteRange; 1]>) -> SmallVec<[ByteRange; 1]> {
    let mut sorted = parts.clone();
    sorted.sort_by_key(|part| part.start);
    let mut merged: SmallVec<[ByteRange; 1]> = SmallVec::new();
    for part in sorted {
        match merged.last_mut() {
            Some(last) if part.start <= last.end() => {
                let end = last.end().max(part.end());
                last.len = end.saturating_sub(last.start);
            }
            _ => merged.push(part),
        }
    }
    if merged.len() == parts.len() {
        parts
    } else {
        merged
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts_of(value: &str) -> Vec<(u64, u64)> {
        match Ranges::parse(value.as_bytes(), 1000) {
            Ranges::Parts(parts) => parts.iter().map(|part| (part.start, part.len)).collect(),
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn reads_every_form_of_a_range() {
        for (value, part) in [
            ("bytes=0-0", (0, 1)),
            ("bytes=0-499", (0, 500)),
            ("BYTES=500-", (500, 500)),
            ("bytes=-1", (999, 1)),
            ("bytes=-1000", (0, 1000)),
            ("bytes=-5000", (0, 1000)),
            ("bytes=990-5000", (990, 10)),
            ("bytes=0-18446744073709551615", (0, 1000)),
            ("bytes=0-99999999999999999999999", (0, 1000)),
            ("bytes=-99999999999999999999999", (0, 1000)),
            ("bytes= 1-2 ,", (1, 2)),
            ("bytes=5-5,2000-", (5, 1)),
        ] {
            assert_eq!(parts_of(value), [part], "{value}");
        }
    }

    #[test]
    fn merges_overlapping_and_adjacent_ranges() {
        assert_eq!(parts_of("bytes=0-9,5-19"), [(0, 20)]);
        assert_eq!(parts_of("bytes=10-19,0-9"), [(0, 20)]);
        assert_eq!(parts_of("bytes=0-,0-,0-,-1"), [(0, 1000)]);
        assert_eq!(parts_of("bytes=500-509,0-9"), [(500, 10), (0, 10)]);
        assert_eq!(parts_of("bytes=0-9,20-29,25-30"), [(0, 10), (20, 11)]);
    }

    #[test]
    fn reports_unsatisfiable_ranges() {
        for value in [
            "bytes=1000-",
            "bytes=1000-1001",
            "bytes=-0",
            "bytes=99999999999999999999999-",
        ] {
            assert_eq!(
                Ranges::parse(value.as_bytes(), 1000),
                Ranges::Unsatisfiable,
                "{value}"
            );
        }
    }

    #[test]
    fn ignores_what_is_not_a_range() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=0x1-2",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=--1",
            "bytes=0-1,x",
            "lines=0-1",
            "0-1",
        ] {
            assert_eq!(
                Ranges::parse(value.as_bytes(), 1000),
                Ranges::Whole,
                "{value}"
            );
        }
        assert_eq!(Ranges::parse(b"bytes=0-", 0), Ranges::Whole);
    }

    #[test]
    fn sends_the_whole_for_many_ranges() {
        let many = |count: usize| {
            let specs: Vec<_> = (0..count).map(|at| format!("{0}-{0}", at * 10)).collect();
            Ranges::parse(format!("bytes={}", specs.join(",")).as_bytes(), 1000)
        };
        assert!(matches!(many(MAX_RANGES), Ranges::Parts(parts) if parts.len() == MAX_RANGES));
        assert_eq!(many(MAX_RANGES + 1), Ranges::Whole);
    }

    #[test]
    fn writes_content_range() {
        let part = ByteRange { start: 5, len: 10 };
        assert_eq!(part.content_range(1000).to_string(), "bytes 5-14/1000");
    }

    proptest! {
        #[test]
        fn parts_lie_inside_and_apart(value in "bytes=[0-9,-]{0,40}", complete in 0_u64..2000) {
            if let Ranges::Parts(mut parts) = Ranges::parse(value.as_bytes(), complete) {
                prop_assert!(!parts.is_empty() && parts.len() <= MAX_RANGES);
                parts.sort_by_key(|part| part.start);
                let mut free = 0;
                for part in parts {
                    prop_assert!(part.len > 0 && part.start >= free);
                    prop_assert!(part.end() <= complete);
                    free = part.end() + 1;
                }
            }
        }
    }
}
