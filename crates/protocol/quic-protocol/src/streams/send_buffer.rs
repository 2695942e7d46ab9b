//! Data that is sent until it is acknowledged (RFC 9000 sections 3.1 and 13.3).

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::range_set::RangeSet;

/// Data of a stream or of CRYPTO frames from its writing to its acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct RetransmitBuffer {
    /// What is not acknowledged, beginning with the chunk in which the first such byte is. None is empty.
    chunks: VecDeque<Bytes>,
    /// The offset of the first chunk.
    chunks_start: u64,
    /// All data before is acknowledged.
    acknowledged_to: u64,
    /// What is acknowledged after that.
    acknowledged: RangeSet,
    /// What has to be sent again.
    lost: RangeSet,
    /// The first offset that was not sent.
    unsent: u64,
    end: u64,
    /// The chunk in which `unsent` is, and its offset.
    cursor: (usize, u64),
}

impl RetransmitBuffer {
    /// Adds data at the end.
    pub(crate) fn write(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.end += data.len() as u64;
            self.chunks.push_back(data);
        }
    }

    /// The offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The offset of the first byte that was not sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Whether there is data to send.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.unsent < self.end || !self.lost.is_empty()
    }

    /// Whether there is data to send again.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether all data is acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged_to == self.end
    }

    /// The bytes from the first that is not acknowledged to the end, which are held in memory.
    pub(crate) fn held(&self) -> u64 {
        self.end - self.acknowledged_to
    }

    /// The bytes that are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        let acknowledged: u64 = self
            .acknowledged
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        self.held() - acknowledged
    }

    /// The offset of the data that is sent next.
    #[inline]
    pub(crate) fn next_offset(&self) -> u64 {
        self.lost.first().map_or(self.unsent, |range| range.start)
    }

    /// The data to send next, at most `most` bytes; [`RetransmitBuffer::copy`] has to follow.
    #[inline]
    pub(crate) fn take_next(&mut self, most: u64) -> Range<u64> {
        if let Some(lost) = self.lost.take_first(most) {
            return lost;
        }
        let range = self.unsent..self.end.min(self.unsent + most);
        self.unsent = range.end;
        range
    }

    /// Copies data to the end of a buffer.
    #[inline]
    pub(crate) fn copy(&mut self, range: Range<u64>, buffer: &mut Vec<u8>) {
        // New data begins where the last copy ended. Without the cursor, a long response of many chunks would be
        // searched from its start for each packet.
        let (mut index, mut chunk_start) = if range.start >= self.cursor.1 {
            self.cursor
        } else {
            (0, self.chunks_start)
        };
        let mut start = range.start;
        while start < range.end
            && let Some(chunk) = self.chunks.get(index)
        {
            let chunk_end = chunk_start + chunk.len() as u64;
            if start < chunk_end {
                let from = (start - chunk_start) as usize;
                let to = (range.end.min(chunk_end) - chunk_start) as usize;
                buffer.extend_from_slice(chunk.get(from..to).unwrap_or_default());
                start = chunk_start + to as u64;
            }
            if start < range.end {
                index += 1;
                chunk_start = chunk_end;
            }
        }
        if range.end == self.unsent {
            self.cursor = (index, chunk_start);
        }
    }

    /// Sent data is lost.
    pub(crate) fn on_lost(&mut self, range: Range<u64>) {
        let start = range.start.max(self.acknowledged_to);
        if start >= range.end {
            return;
        }
        self.lost.insert(start..range.end);
        for acknowledged in self.acknowledged.iter() {
            self.lost.remove(acknowledged.clone());
        }
    }

    /// Sent data is acknowledged. Returns how many bytes were not before.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, range: Range<u64>) -> u64 {
        // The usual case, in order and without losses: no set of ranges is touched.
        if range.start == self.acknowledged_to
            && self.acknowledged.is_empty()
            && self.lost.is_empty()
        {
            self.acknowledged_to = range.end;
            self.free();
            return range.end - range.start;
        }
        let before = self.unacknowledged();
        if range.end > self.acknowledged_to {
            self.lost.remove(range.clone());
            self.acknowledged
                .insert(range.start.max(self.acknowledged_to)..range.end);
            if let Some(first) = self.acknowledged.first()
                && first.start <= self.acknowledged_to
            {
                self.acknowledged_to = first.end;
                self.acknowledged.pop_first();
            }
            self.free();
        }
        before - self.unacknowledged()
    }

    /// Drops chunks that are acknowledged.
    #[inline]
    fn free(&mut self) {
        while let Some(first) = self.chunks.front() {
            let end = self.chunks_start + first.len() as u64;
            if end > self.acknowledged_to {
                break;
            }
            self.chunks.pop_front();
            self.chunks_start = end;
            self.cursor = match self.cursor.0.checked_sub(1) {
                Some(index) => (index, self.cursor.1),
                None => (0, end),
            };
        }
    }

    /// All that was sent has to be sent again.
    pub(crate) fn send_all_again(&mut self) {
        self.on_lost(self.acknowledged_to..self.unsent);
    }

    /// Drops all data: nothing is sent any more.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            chunks_start: self.end,
            acknowledged_to: self.end,
            unsent: self.end,
            end: self.end,
            cursor: (0, self.end),
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn byte(at: u64) -> u8 {
        (at ^ (at >> 8)) as u8
    }

    proptest! {
        /// Writes, sends, acknowledges and loses parts in any order.
        #[test]
        fn all_data_is_sent_until_it_is_acknowledged(
            steps in proptest::collection::vec((0u8..4, 1u64..50, any::<usize>()), 0..200)
        ) {
            let mut buffer = RetransmitBuffer::default();
            let mut in_flight: Vec<Range<u64>> = Vec::new();
            let mut delivered = RangeSet::default();
            let mut written = 0;
            let send = |buffer: &mut RetransmitBuffer, in_flight: &mut Vec<Range<u64>>, most| {
                let range = buffer.take_next(most);
                let mut copied = Vec::new();
                buffer.copy(range.clone(), &mut copied);
                assert_eq!(copied, range.clone().map(byte).collect::<Vec<_>>());
                if !range.is_empty() {
                    in_flight.push(range);
                }
            };
            for (step, size, pick) in steps {
                match step {
                    0 => {
                        buffer.write((written..written + size).map(byte).collect());
                        written += size;
                    }
                    1 => send(&mut buffer, &mut in_flight, size),
                    _ if in_flight.is_empty() => {}
                    2 => {
                        let range = in_flight.swap_remove(pick % in_flight.len());
                        let before = delivered.iter().map(|range| range.end - range.start).sum::<u64>();
                        delivered.insert(range.clone());
                        let after = delivered.iter().map(|range| range.end - range.start).sum::<u64>();
                        prop_assert_eq!(buffer.on_acknowledged(range), after - before);
                        prop_assert_eq!(buffer.unacknowledged(), written - after);
                    }
                    _ => buffer.on_lost(in_flight.swap_remove(pick % in_flight.len())),
                }
            }
            for range in std::mem::take(&mut in_flight) {
                buffer.on_lost(range);
            }
            while buffer.has_pending() {
                send(&mut buffer, &mut in_flight, 30);
                for range in in_flight.drain(..) {
                    buffer.on_acknowledged(range);
                }
            }
            prop_assert!(buffer.is_acknowledged());
            prop_assert_eq!(buffer.end(), written);
            prop_assert_eq!(buffer.held(), 0);
            prop_assert!(buffer.chunks.is_empty());
        }
    }

    #[test]
    fn data_that_is_sent_again_comes_first() {
        let mut buffer = RetransmitBuffer::default();
        buffer.write(vec![0; 100].into());
        assert_eq!(buffer.take_next(60), 0..60);
        buffer.on_lost(10..30);
        assert!(buffer.has_lost());
        assert_eq!(buffer.take_next(15), 10..25);
        assert_eq!(buffer.take_next(15), 25..30);
        assert_eq!(buffer.take_next(15), 60..75);
    }
}
