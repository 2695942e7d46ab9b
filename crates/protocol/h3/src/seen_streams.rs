//! Which streams of the peer were seen, as the gaps between them, of which there are few because streams open in order
//! (RFC 9000 section 2.1).

use std::collections::BTreeMap;

/// The request streams that were seen, by their position: the first one is 0.
///
/// It keeps what is missing, not what was seen: a stream that was never used stays open in the transport, so that there
/// are at most as many gaps as it allows open streams. The streams after a gap have no such limit.
#[derive(Debug, Default)]
pub(crate) struct SeenStreams {
    /// One more than the highest position.
    end: u64,
    /// The positions below `end` that are not in the set: the start of each gap, and its end.
    gaps: BTreeMap<u64, u64>,
}

impl SeenStreams {
    /// Adds a position; returns whether it is new.
    pub(crate) fn insert(&mut self, position: u64) -> bool {
        let after = position.saturating_add(1);
        // QUIC opens the streams below implicitly, so that they are a gap until they are used (RFC 9000 section 2.1).
        if position >= self.end {
            self.add_gap(self.end, position);
            self.end = after;
            return true;
        }
        let Some((start, end)) = self.gap(position) else {
            return false;
        };
        self.gaps.remove(&start);
        self.add_gap(start, position);
        self.add_gap(after, end);
        true
    }

    /// Whether a position is in the set.
    pub(crate) fn contains(&self, position: u64) -> bool {
        position < self.end && self.gap(position).is_none()
    }

    /// One more than the highest position, or 0.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether a position below the highest one is not in the set.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// The gap that a position is in.
    fn gap(&self, position: u64) -> Option<(u64, u64)> {
        let (start, end) = self.gaps.range(..=position).next_back()?;
        (position < *end).then_some((*start, *end))
    }

    fn add_gap(&mut self, start: u64, end: u64) {
        if start < end {
            self.gaps.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_positions_in_any_order() {
        let mut seen = SeenStreams::default();
        assert_eq!(seen.end(), 0);
        assert!(seen.insert(2) && !seen.insert(2));
        assert_eq!(seen.end(), 3);
        assert!(seen.insert(0) && seen.contains(0) && !seen.contains(1) && seen.has_gaps());
        assert!(seen.insert(1) && !seen.insert(0));
        assert!(!seen.has_gaps() && seen.end() == 3);
        assert!(!seen.contains(3) && seen.insert(3));
    }

    #[test]
    fn fills_a_gap_from_the_middle() {
        let mut seen = SeenStreams::default();
        assert!(seen.insert(9) && seen.insert(4));
        for position in 0..=10 {
            assert_eq!(seen.contains(position), matches!(position, 4 | 9));
        }
        for position in [3, 5, 0, 8, 1, 2, 7, 6] {
            assert!(seen.insert(position) && !seen.insert(position));
        }
        assert!(seen.gaps.is_empty() && seen.end() == 10);
    }

    /// A client that never uses its first stream, but millions of others.
    #[test]
    fn takes_no_memory_for_streams_after_a_gap() {
        let mut seen = SeenStreams::default();
        for position in 1..10_000 {
            assert!(seen.insert(position));
        }
        assert_eq!(seen.gaps.len(), 1);
        assert!(seen.insert(0) && seen.gaps.is_empty());
    }
}
