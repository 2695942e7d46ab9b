//! Sets of byte positions as sorted ranges that do not touch (RFC 9110 section 14).

use std::ops::Range;

/// A set of byte positions as sorted ranges, with at least one byte between two ranges.
///
/// A complete representation is one range; the results of a few range requests are a few ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    ranges: Vec<Range<u64>>,
}

impl Intervals {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `range`, and joins it with the ranges that it touches. An empty range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self
            .ranges
            .partition_point(|existing| existing.end < range.start);
        let to = self
            .ranges
            .partition_point(|existing| existing.start <= range.end);
        let mut joined = range;
        if let Some(first) = self.ranges.get(from..to).and_then(<[_]>::first) {
            joined.start = joined.start.min(first.start);
        }
        if let Some(last) = self.ranges.get(from..to).and_then(<[_]>::last) {
            joined.end = joined.end.max(last.end);
        }
        self.ranges.splice(from..to, [joined]);
    }

    /// Removes `range`.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self
            .ranges
            .partition_point(|existing| existing.end <= range.start);
        let to = self
            .ranges
            .partition_point(|existing| existing.start < range.end);
        let Some(touched) = self.ranges.get(from..to) else {
            return;
        };
        let before = touched.first().map(|first| first.start..range.start);
        let after = touched.last().map(|last| range.end..last.end);
        let rest: Vec<_> = [before, after]
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect();
        self.ranges.splice(from..to, rest);
    }

    /// The range that holds `position`.
    pub fn at(&self, position: u64) -> Option<Range<u64>> {
        let next = self
            .ranges
            .partition_point(|existing| existing.end <= position);
        self.ranges
            .get(next)
            .filter(|existing| existing.start <= position)
            .cloned()
    }

    /// Whether it contains every byte of `range`.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .at(range.start)
                .is_some_and(|existing| existing.end >= range.end)
    }

    /// The parts of `range` that it does not contain, in order.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut position = range.start;
        let from = self
            .ranges
            .partition_point(|existing| existing.end <= range.start);
        for existing in self.ranges.iter().skip(from) {
            if existing.start >= range.end {
                break;
            }
            if existing.start > position {
                gaps.push(position..existing.start);
            }
            position = existing.end;
        }
        if position < range.end {
            gaps.push(position..range.end);
        }
        gaps
    }

    /// The first contained position at or after `position`.
    pub fn next_held(&self, position: u64) -> Option<u64> {
        let next = self
            .ranges
            .partition_point(|existing| existing.end <= position);
        self.ranges
            .get(next)
            .map(|existing| existing.start.max(position))
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.ranges
            .iter()
            .map(|existing| existing.end - existing.start)
            .sum()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }
}

impl FromIterator<Range<u64>> for Intervals {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut intervals = Self::new();
        for range in ranges {
            intervals.insert(range);
        }
        intervals
    }
}
