//! Sets of bytes of a representation, as sorted ranges that never touch (RFC 9110 section 14).

use std::ops::Range;

/// A set of byte positions, kept as sorted ranges with at least one byte between two of them.
///
/// A whole representation is one range; what a few range requests left behind is a few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    ranges: Vec<Range<u64>>,
}

impl Intervals {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `range`, joining it with what it touches. An empty range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|held| held.end < range.start);
        let to = self.ranges.partition_point(|held| held.start <= range.end);
        let mut joined = range;
        if let Some(first) = self.ranges.get(from..to).and_then(<[_]>::first) {
            joined.start = joined.start.min(first.start);
        }
        if let Some(last) = self.ranges.get(from..to).and_then(<[_]>::last) {
            joined.end = joined.end.max(last.end);
        }
        self.ranges.splice(from..to, [joined]);
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|held| held.end <= range.start);
        let to = self.ranges.partition_point(|held| held.start < range.end);
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
        let next = self.ranges.partition_point(|held| held.end <= position);
        self.ranges
            .get(next)
            .filter(|held| held.start <= position)
            .cloned()
    }

    /// Whether every byte of `range` is there.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .at(range.start)
                .is_some_and(|held| held.end >= range.end)
    }

    /// The parts of `range` that are not there, in order.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut position = range.start;
        let from = self.ranges.partition_point(|held| held.end <= range.start);
        for held in self.ranges.iter().skip(from) {
            if held.start >= range.end {
                break;
            }
            if held.start > position {
                gaps.push(position..held.start);
            }
            position = held.end;
        }
        if position < range.end {
            gaps.push(position..range.end);
        }
        gaps
    }

    /// The first position at or behind `position` that is there.
    pub fn next_held(&self, position: u64) -> Option<u64> {
        let next = self.ranges.partition_point(|held| held.end <= position);
        self.ranges.get(next).map(|held| held.start.max(position))
    }

    /// How many bytes are there.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|held| held.end - held.start).sum()
    }

    /// Whether nothing is there.
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
