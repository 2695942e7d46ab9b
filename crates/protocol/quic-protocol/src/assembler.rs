//! Data of a stream or of CRYPTO frames that arrives in any order (RFC 9000 section 2.2).

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

/// What a piece takes beside its data, in bytes: its entry, and what the allocator adds.
const OVERHEAD: usize = 96;
/// Bytes that pieces may take beside their data, in addition to as many as they have data.
const MAX_OVERHEAD: usize = 4 * 1024;
/// Pieces of less data are joined with those beside them, so that they cost little more than their data.
// A piece costs 96 bytes beside its data, which is much for a small one and little for a large one.
const SMALL: usize = 256;
/// A piece of this size is not extended: joining would copy it again and again.
const LARGE: usize = 4_096;

/// Data that arrives in any order and is read in order.
///
/// It takes at most [`MAX_OVERHEAD`] bytes and twice the data that it holds, so flow control bounds it. Adding a piece
/// takes time for its bytes, those of less than [`SMALL`] beside it, and the logarithm of the number of gaps.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// What can be read.
    ready: VecDeque<BytesMut>,
    /// Where that ends.
    ready_end: u64,
    /// What is behind a gap, by its offset: without overlaps, and none is empty.
    ahead: BTreeMap<u64, BytesMut>,
    /// What has been read.
    read: u64,
    /// The bytes that all pieces have room for.
    capacity: usize,
}

/// The data has too many gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyGaps;

impl Assembler {
    /// What has been read, in bytes.
    #[inline]
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Whether there is data to read.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether it holds no data, neither to read nor behind a gap.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.ahead.is_empty()
    }

    /// The memory that it takes for data, in bytes.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.capacity + OVERHEAD * (self.ready.len() + self.ahead.len())
    }

    /// Adds data, of which it copies what is new.
    pub(crate) fn insert(&mut self, offset: u64, data: &[u8]) -> Result<(), TooManyGaps> {
        // The first data wins: what was delivered cannot be changed by a peer that sends other bytes for the same
        // offsets (RFC 9000 section 2.2 allows to treat that as an error, but does not demand it).
        let known = self.ready_end.saturating_sub(offset);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(data) = data.get(known..).filter(|data| !data.is_empty()) else {
            return Ok(());
        };
        let start = offset.max(self.ready_end);
        if start > self.ready_end {
            self.fill_gaps(start, data);
            // Gaps are bounded by the memory that they cost, not by their number. A limit of their number ended
            // uploads that lost many packets in a full queue, and a client that sends every second byte made 12 MB
            // of entries of 1.9 MB of data (RUSTSEC-2026-0185).
            let is_too_much = self.ahead.len() * OVERHEAD > MAX_OVERHEAD + self.capacity;
            return if is_too_much {
                Err(TooManyGaps)
            } else {
                Ok(())
            };
        }
        // Nearly all data arrives in order, which then never touches the tree.
        if self.ahead.is_empty() {
            self.push_ready(data);
        } else {
            self.fill_gaps(start, data);
            self.move_ready();
        }
        Ok(())
    }

    /// Adds the data behind what can be read.
    fn push_ready(&mut self, data: &[u8]) {
        self.ready_end += data.len() as u64;
        match self.ready.back_mut() {
            // Many tiny frames in order, as of an application that writes byte by byte, become one piece.
            Some(last) if is_joined(last, data.len()) => {
                self.capacity += extend(last, data);
            }
            _ => {
                self.capacity += data.len();
                self.ready.push_back(BytesMut::from(data));
            }
        }
    }

    /// Moves what has no gap before it any more to what can be read.
    fn move_ready(&mut self) {
        while let Some(first) = self.ahead.first_entry()
            && *first.key() == self.ready_end
        {
            let piece = first.remove();
            match self.ready.back() {
                Some(last) if is_joined(last, piece.len()) => {
                    self.capacity -= piece.capacity();
                    self.push_ready(&piece);
                }
                _ => {
                    self.ready_end += piece.len() as u64;
                    self.ready.push_back(piece);
                }
            }
        }
    }

    /// Adds the parts of the data that are not known behind the first gap.
    fn fill_gaps(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut start = offset;
        while start < end {
            let before = self.ahead.range(..=start).next_back();
            if let Some(known_until) = before.map(|(at, piece)| at + piece.len() as u64)
                && known_until > start
            {
                start = known_until;
                continue;
            }
            let behind = self.ahead.range(start..end).next();
            let gap_end = behind.map_or(end, |(at, _)| *at);
            let range = (start - offset) as usize..(gap_end - offset) as usize;
            self.put(start, data.get(range).unwrap_or_default());
            start = gap_end;
        }
    }

    /// Puts data into a gap. Of two pieces without a gap between them, one is not small or the first is large.
    fn put(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let before = self.ahead.range_mut(..offset).next_back();
        let mut start = offset;
        match before {
            Some((at, piece))
                if at + piece.len() as u64 == offset && is_joined(piece, data.len()) =>
            {
                start = *at;
                self.capacity += extend(piece, data);
            }
            _ => {
                self.capacity += data.len();
                self.ahead.insert(offset, BytesMut::from(data));
            }
        }
        let Some(length) = self.ahead.get(&end).map(BytesMut::len) else {
            return;
        };
        let is_joined = self
            .ahead
            .get(&start)
            .is_some_and(|piece| is_joined(piece, length));
        if is_joined
            && let Some(behind) = self.ahead.remove(&end)
            && let Some(piece) = self.ahead.get_mut(&start)
        {
            self.capacity -= behind.capacity();
            self.capacity += extend(piece, &behind);
        }
    }

    /// The next data in order, at most `most` bytes.
    pub(crate) fn read(&mut self, most: usize) -> Option<Bytes> {
        let piece = self.ready.front_mut().filter(|_| most > 0)?;
        let data = if piece.len() <= most {
            let piece = self.ready.pop_front()?;
            self.capacity -= piece.capacity();
            piece
        } else {
            let before = piece.capacity();
            let part = piece.split_to(most);
            self.capacity -= before - piece.capacity();
            part
        };
        self.read += data.len() as u64;
        if self.ready.is_empty() {
            // An idle stream must not keep the room of its busiest moment: a server has many of them.
            self.ready.shrink_to(4);
        }
        Some(data.freeze())
    }

    /// Discards all data.
    pub(crate) fn clear(&mut self) {
        self.ready = VecDeque::new();
        self.ahead = BTreeMap::new();
        self.capacity = 0;
    }
}

/// Whether so much data is joined with the piece before it.
fn is_joined(piece: &BytesMut, length: usize) -> bool {
    length < SMALL && piece.len() < LARGE
}

/// Extends a piece. Returns by how much its room has grown.
fn extend(piece: &mut BytesMut, data: &[u8]) -> usize {
    let before = piece.capacity();
    piece.extend_from_slice(data);
    piece.capacity().saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    fn byte(at: u64) -> u8 {
        (at ^ (at >> 8)) as u8
    }

    fn data(range: Range<u64>) -> Vec<u8> {
        range.map(byte).collect()
    }

    fn read_all(assembler: &mut Assembler) -> Vec<u8> {
        let mut read = Vec::new();
        while let Some(part) = assembler.read(usize::MAX) {
            read.extend(part);
        }
        read
    }

    /// What the pieces have room for, counted anew.
    fn capacity(assembler: &Assembler) -> usize {
        let ready = assembler.ready.iter();
        ready
            .chain(assembler.ahead.values())
            .map(BytesMut::capacity)
            .sum()
    }

    proptest! {
        #[test]
        fn data_in_any_order_is_read_in_order(
            parts in proptest::collection::vec((0u64..1500, 0u64..400, 0usize..800), 0..100)
        ) {
            let mut assembler = Assembler::default();
            let mut received = Vec::new();
            for (start, length, most) in parts {
                assembler.insert(start, &data(start..start + length)).unwrap();
                let mut end = assembler.ready_end;
                for (at, piece) in &assembler.ahead {
                    prop_assert!(*at > assembler.ready_end && *at >= end && !piece.is_empty());
                    end = at + piece.len() as u64;
                }
                prop_assert_eq!(assembler.capacity, capacity(&assembler));
                if let Some(read) = assembler.read(most) {
                    prop_assert!(read.len() <= most);
                    received.extend(read);
                }
            }
            assembler.insert(0, &data(0..2_000)).unwrap();
            while let Some(read) = assembler.read(1_000) {
                received.extend(read);
            }
            prop_assert_eq!(received, data(0..2_000));
            prop_assert_eq!(assembler.memory(), 0);
        }
    }

    #[test]
    fn small_data_without_gaps_is_joined() {
        const END: u64 = 1 << 18;
        // In order, in order behind a gap, backwards, and every second byte first.
        let ascending: Vec<u64> = (0..END).collect();
        let behind_a_gap: Vec<u64> = (1..END).chain([0]).collect();
        let descending: Vec<u64> = (0..END).rev().collect();
        let interleaved: Vec<u64> = (0..END)
            .step_by(64)
            .flat_map(|at| (at..at + 64).step_by(2).chain((at + 1..at + 64).step_by(2)))
            .collect();
        for order in [ascending, behind_a_gap, descending, interleaved] {
            let mut assembler = Assembler::default();
            for (count, at) in (1..).zip(order) {
                assembler.insert(at, &[byte(at)]).unwrap();
                assert!(assembler.memory() <= MAX_OVERHEAD + 3 * count, "{count}");
            }
            assert!(read_all(&mut assembler) == data(0..END));
            assert_eq!(assembler.memory(), 0);
        }
    }

    #[test]
    fn gaps_are_bounded_by_the_data() {
        let mut assembler = Assembler::default();
        let most = (1..).find(|at| assembler.insert(2 * at, &[0]).is_err());
        // 96 bytes for each of 4 KiB, with a byte of data each.
        assert_eq!(most, Some(44));
        // Full packets can have as many gaps as flow control allows.
        let mut assembler = Assembler::default();
        for at in 1..10_000 {
            assembler.insert(at * 2_400, &[0; 1_200]).unwrap();
        }
    }

    /// Each byte between others moved all that was behind it, or joined everything anew: 0.2 ms for a packet of them.
    #[test]
    fn bytes_between_others_cost_no_more_than_bytes_at_the_end() {
        let mut assembler = Assembler::default();
        for at in 1..10_000 {
            assembler.insert(at * 1_300, &[0; 1_200]).unwrap();
        }
        let before = assembler.memory();
        let started = std::time::Instant::now();
        for round in 0..20 {
            for at in 1..10_000 {
                let offset = at * 1_300 + 1_200 + round;
                assembler.insert(offset, &[byte(offset)]).unwrap();
            }
        }
        // 200,000 bytes take a fraction of a second, and took minutes.
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        assert!(assembler.memory() <= 2 * before);
    }
}
