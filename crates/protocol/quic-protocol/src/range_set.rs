//! Sets of integers as ranges: packet numbers to acknowledge, and stream data that is acknowledged or lost.

use std::ops::Range;

/// A set of integers as ranges in ascending order, with gaps between them.
///
/// It is meant for few ranges: adding at the end or to the last range takes constant time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Range<u64>> {
        self.ranges.iter()
    }

    pub(crate) fn last(&self) -> Option<&Range<u64>> {
        self.ranges.last()
    }

    pub(crate) fn first(&self) -> Option<&Range<u64>> {
        self.ranges.first()
    }

    pub(crate) fn contains(&self, value: u64) -> bool {
        let index = self.ranges.partition_point(|range| range.end <= value);
        self.ranges
            .get(index)
            .is_some_and(|range| range.start <= value)
    }

    /// Adds the integers of a range. Returns whether the set had not all of them.
    pub(crate) fn insert(&mut self, added: Range<u64>) -> bool {
        if added.is_empty() {
            return false;
        }
        match self.ranges.last_mut() {
            None => {
                self.ranges.push(added);
                return true;
            }
            Some(last) if last.end == added.start => {
                last.end = added.end;
                return true;
            }
            Some(last) if last.end < added.start => {
                self.ranges.push(added);
                return true;
            }
            Some(_) => {}
        }
        // The ranges from `first` up to `end` touch the added one.
        let first = self.ranges.partition_point(|range| range.end < added.start);
        let end = self
            .ranges
            .partition_point(|range| range.start <= added.end);
        let Some(touched) = self
            .ranges
            .get(first..end)
            .filter(|touched| !touched.is_empty())
        else {
            self.ranges.insert(first, added);
            return true;
        };
        let (Some(lowest), Some(highest)) = (touched.first(), touched.last()) else {
            return false;
        };
        if touched.len() == 1 && lowest.start <= added.start && added.end <= lowest.end {
            return false;
        }
        let merged = lowest.start.min(added.start)..highest.end.max(added.end);
        self.ranges.splice(first..end, [merged]);
        true
    }

    /// Removes the integers of a range.
    pub(crate) fn remove(&mut self, removed: Range<u64>) {
        if removed.is_empty() {
            return;
        }
        let first = self
            .ranges
            .partition_point(|range| range.end <= removed.start);
        let end = self
            .ranges
            .partition_point(|range| range.start < removed.end);
        let Some(touched) = self
            .ranges
            .get(first..end)
            .filter(|touched| !touched.is_empty())
        else {
            return;
        };
        let (Some(lowest), Some(highest)) = (touched.first(), touched.last()) else {
            return;
        };
        let left = lowest.start..removed.start;
        let right = removed.end..highest.end;
        let kept = [left, right].into_iter().filter(|range| !range.is_empty());
        self.ranges.splice(first..end, kept);
    }

    /// Removes all integers below this one.
    pub(crate) fn remove_below(&mut self, end: u64) {
        if self.first().is_some_and(|range| range.start < end) {
            self.remove(0..end);
        }
    }

    /// Removes the lowest range.
    pub(crate) fn pop_first(&mut self) -> Option<Range<u64>> {
        (!self.ranges.is_empty()).then(|| self.ranges.remove(0))
    }

    /// Removes at most `most` integers from the lowest range and returns them.
    pub(crate) fn take_first(&mut self, most: u64) -> Option<Range<u64>> {
        let first = self.ranges.first_mut()?;
        let taken = first.start..first.end.min(first.start.saturating_add(most));
        first.start = taken.end;
        if first.is_empty() {
            self.ranges.remove(0);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_same_as_a_set_of_integers(
            changes in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..40)
        ) {
            let mut ranges = RangeSet::default();
            let mut integers = BTreeSet::new();
            for (is_added, start, length) in changes {
                let range = start..start + length;
                if is_added {
                    let is_new = range.clone().any(|value| !integers.contains(&value));
                    prop_assert_eq!(ranges.insert(range.clone()), is_new);
                    integers.extend(range);
                } else {
                    ranges.remove(range.clone());
                    integers.retain(|value| !range.contains(value));
                }
                let listed: Vec<u64> = ranges.iter().flat_map(Clone::clone).collect();
                prop_assert_eq!(listed, integers.iter().copied().collect::<Vec<_>>());
                for pair in ranges.ranges.windows(2) {
                    prop_assert!(pair[0].end < pair[1].start);
                }
                for value in 0..72 {
                    prop_assert_eq!(ranges.contains(value), integers.contains(&value));
                }
            }
        }
    }

    #[test]
    fn the_lowest_integers_can_be_taken() {
        let mut ranges = RangeSet::default();
        ranges.insert(0..10);
        ranges.insert(20..25);
        assert_eq!(ranges.take_first(4), Some(0..4));
        assert_eq!(ranges.take_first(100), Some(4..10));
        assert_eq!(ranges.take_first(5), Some(20..25));
        assert_eq!(ranges.take_first(5), None);
    }
}
