//! The packets of a packet number space that were received, and their acknowledgement (RFC 9000 section 13.2).

use std::time::{Duration, Instant};

use crate::datagram::EcnCodepoint;
use crate::range_set::RangeSet;
use crate::recovery::EcnCounts;

/// Ranges that are remembered (section 13.2.3). What is below the lowest of them counts as received.
// 64 ranges are about 130 bytes of an ACK frame at most, if gaps are short, and bound what a peer that sends every
// second number makes this end hold.
const MAX_RANGES: usize = 64;
/// Packets to acknowledge after which an ACK is sent (section 13.2.2).
const PACKETS_BEFORE_ACK: u32 = 2;

/// The received packets of a packet number space.
#[derive(Debug, Default)]
pub(crate) struct ReceivedPackets {
    ranges: RangeSet,
    /// All packets below count as received.
    floor: u64,
    /// When the largest one came.
    largest_time: Option<Instant>,
    /// Packets since the last ACK that have to be acknowledged.
    to_acknowledge: u32,
    /// Whether an ACK is due although there are few of them.
    is_immediate: bool,
    counts: EcnCounts,
}

impl ReceivedPackets {
    /// The next packet number, if none is lost.
    #[inline]
    pub(crate) fn expected(&self) -> u64 {
        self.ranges.last().map_or(self.floor, |range| range.end)
    }

    /// Whether the packet was received before.
    #[inline]
    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.floor || number < self.expected() && self.ranges.contains(number)
    }

    /// Adds a packet that is not [contained](Self::contains).
    #[inline]
    pub(crate) fn insert(&mut self, number: u64, now: Instant, ecn: Option<EcnCodepoint>) {
        // The delay of an ACK is that of its largest packet alone (RFC 9000 section 13.2.5).
        if number >= self.expected() {
            self.largest_time = Some(now);
        }
        self.ranges.insert(number..number + 1);
        if self.ranges.len() > MAX_RANGES
            && let Some(lowest) = self.ranges.pop_first()
        {
            // A packet below that comes late is taken for a duplicate and dropped; its data is sent again. To forget
            // which numbers were received would let an attacker replay their packets (RFC 9000 section 12.3).
            self.floor = lowest.end;
        }
        match ecn {
            None => {}
            // Duplicates are not counted: the caller has dropped them (RFC 9000 section 13.4.1).
            Some(EcnCodepoint::Ect0) => self.counts.ect0 += 1,
            Some(EcnCodepoint::Ect1) => self.counts.ect1 += 1,
            Some(EcnCodepoint::Ce) => self.counts.ce += 1,
        }
    }

    /// The packet with this number has to be acknowledged. `next` was expected before it came.
    #[inline]
    pub(crate) fn on_ack_eliciting(&mut self, number: u64, next: u64, ecn: Option<EcnCodepoint>) {
        self.to_acknowledge += 1;
        // One that is out of order, or after which there is a gap, or that congestion has marked (section 13.2.1).
        self.is_immediate |= number != next || ecn == Some(EcnCodepoint::Ce);
    }

    /// An ACK is due now.
    pub(crate) fn set_immediate(&mut self) {
        self.is_immediate |= self.to_acknowledge > 0;
    }

    /// Whether there are packets to acknowledge.
    #[inline]
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.to_acknowledge > 0
    }

    /// Whether an ACK is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.to_acknowledge >= PACKETS_BEFORE_ACK || self.is_immediate && self.to_acknowledge > 0
    }

    /// What an ACK frame has: the ranges, the delay since the largest one came, and the counts.
    pub(crate) fn to_send(&self, now: Instant) -> (&RangeSet, Duration, Option<EcnCounts>) {
        let delay = self
            .largest_time
            .map_or(Duration::ZERO, |time| now.saturating_duration_since(time));
        let counts = (self.counts != EcnCounts::default()).then_some(self.counts);
        (&self.ranges, delay, counts)
    }

    /// An ACK was sent.
    pub(crate) fn on_ack_sent(&mut self) {
        self.to_acknowledge = 0;
        self.is_immediate = false;
    }

    /// The largest packet that was received.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.end - 1)
    }

    /// The peer has received an ACK for all packets up to this one: they need not be acknowledged again.
    #[inline]
    pub(crate) fn on_ack_acknowledged(&mut self, largest: u64) {
        // The range of the largest is kept, so that there is always one.
        let end = self
            .ranges
            .last()
            .map_or(0, |last| last.start)
            .min(largest + 1);
        if end > self.floor {
            self.floor = end;
            self.ranges.remove_below(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_received_once() {
        let now = Instant::now();
        let mut received = ReceivedPackets::default();
        for number in [0, 1, 5, 3] {
            assert!(!received.contains(number));
            received.insert(number, now, None);
            assert!(received.contains(number));
        }
        assert!(!received.contains(2) && !received.contains(4) && !received.contains(6));
        assert_eq!((received.expected(), received.largest()), (6, Some(5)));
        received.on_ack_acknowledged(3);
        assert!(received.contains(2) && !received.contains(4) && received.contains(5));
        assert_eq!(received.to_send(now).0.len(), 1);
        received.on_ack_acknowledged(5);
        assert_eq!(received.to_send(now).0.len(), 1);
        assert!(received.contains(4));
    }

    #[test]
    fn the_ranges_are_bounded() {
        let mut received = ReceivedPackets::default();
        for number in 0..1_000 {
            received.insert(number * 2, Instant::now(), None);
            assert!(received.ranges.len() <= MAX_RANGES);
        }
        assert!(received.contains(1));
        assert!(!received.contains(1_999 - 2));
    }

    #[test]
    fn an_ack_is_due_after_two_packets_or_one_out_of_order() {
        let mut received = ReceivedPackets::default();
        received.on_ack_eliciting(0, 0, None);
        assert!(!received.is_due() && received.has_unacknowledged());
        received.on_ack_eliciting(1, 1, None);
        assert!(received.is_due());
        received.on_ack_sent();
        assert!(!received.is_due() && !received.has_unacknowledged());
        received.on_ack_eliciting(3, 2, None);
        assert!(received.is_due());
        received.on_ack_sent();
        received.on_ack_eliciting(4, 4, Some(EcnCodepoint::Ce));
        assert!(received.is_due());
    }
}
