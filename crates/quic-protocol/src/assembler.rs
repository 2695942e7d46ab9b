//! Data of a stream or of CRYPTO frames that arrives in any order (RFC 9000 section 2.2).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// What a chunk takes beside its data, in bytes.
const OVERHEAD: usize = 64;
/// Bytes that chunks may take beside their data, in addition to as many as they have data.
const MOST_OVERHEAD: usize = 64 * 1024;
/// Chunks of less data are joined when there are too many, up to this.
const SMALL: usize = 4_096;

/// Data that arrives in any order and is read in order.
///
/// It takes at most [`MOST_OVERHEAD`] bytes and twice the data that it holds, so flow control bounds it.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// In ascending order, without overlaps; none is empty.
    chunks: VecDeque<Chunk>,
    /// What has been read.
    read: u64,
    /// The bytes of all chunks.
    buffered: usize,
}

#[derive(Debug)]
struct Chunk {
    start: u64,
    data: Bytes,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }
}

/// The data has too many gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyGaps;

impl Assembler {
    /// What has been read, in bytes.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Whether there is data to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.chunks
            .front()
            .is_some_and(|chunk| chunk.start == self.read)
    }

    /// Adds data, of which it copies what is new.
    pub(crate) fn insert(&mut self, offset: u64, data: &[u8]) -> Result<(), TooManyGaps> {
        let known = usize::try_from(self.read.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(data) = data.get(known..).filter(|data| !data.is_empty()) else {
            return Ok(());
        };
        let start = offset.max(self.read);
        if self.chunks.back().is_none_or(|last| last.end() <= start) {
            self.buffered += data.len();
            let data = Bytes::copy_from_slice(data);
            self.chunks.push_back(Chunk { start, data });
        } else {
            self.fill_gaps(start, data);
        }
        if self.has_too_many_chunks() {
            self.join_chunks();
            if self.has_too_many_chunks() {
                return Err(TooManyGaps);
            }
        }
        Ok(())
    }

    fn fill_gaps(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut start = offset;
        while start < end {
            let index = self.chunks.partition_point(|chunk| chunk.end() <= start);
            let gap_end = match self.chunks.get(index) {
                Some(chunk) if chunk.start <= start => {
                    start = chunk.end();
                    continue;
                }
                Some(chunk) => chunk.start.min(end),
                None => end,
            };
            let range = (start - offset) as usize..(gap_end - offset) as usize;
            let data = Bytes::copy_from_slice(data.get(range).unwrap_or_default());
            self.buffered += data.len();
            self.chunks.insert(index, Chunk { start, data });
            start = gap_end;
        }
    }

    fn has_too_many_chunks(&self) -> bool {
        self.chunks.len() * OVERHEAD > MOST_OVERHEAD + self.buffered
    }

    /// Joins small chunks without gaps between them.
    fn join_chunks(&mut self) {
        let mut joined = VecDeque::new();
        let mut run = BytesMut::new();
        let mut run_start = 0;
        for chunk in std::mem::take(&mut self.chunks) {
            let run_end = run_start + run.len() as u64;
            if !run.is_empty() && (run_end != chunk.start || run.len() >= SMALL) {
                let data = run.split().freeze();
                joined.push_back(Chunk {
                    start: run_start,
                    data,
                });
            }
            if run.is_empty() && chunk.data.len() >= SMALL {
                joined.push_back(chunk);
                continue;
            }
            if run.is_empty() {
                run_start = chunk.start;
            }
            run.extend_from_slice(&chunk.data);
        }
        if !run.is_empty() {
            let data = run.freeze();
            joined.push_back(Chunk {
                start: run_start,
                data,
            });
        }
        self.chunks = joined;
    }

    /// The next data in order, at most `most` bytes.
    pub(crate) fn read(&mut self, most: usize) -> Option<Bytes> {
        let chunk = self
            .chunks
            .front_mut()
            .filter(|chunk| chunk.start == self.read && most > 0)?;
        let data = if chunk.data.len() <= most {
            self.chunks.pop_front()?.data
        } else {
            chunk.start += most as u64;
            chunk.data.split_to(most)
        };
        self.read += data.len() as u64;
        self.buffered -= data.len();
        if self.chunks.is_empty() {
            self.chunks.shrink_to(4);
        }
        Some(data)
    }

    /// Discards all data.
    pub(crate) fn clear(&mut self) {
        self.chunks = VecDeque::new();
        self.buffered = 0;
    }

    /// The ranges that it holds.
    #[cfg(test)]
    fn ranges(&self) -> Vec<std::ops::Range<u64>> {
        self.chunks
            .iter()
            .map(|chunk| chunk.start..chunk.end())
            .collect()
    }
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

    proptest! {
        #[test]
        fn data_in_any_order_is_read_in_order(
            parts in proptest::collection::vec((0u64..500, 0u64..60, 0usize..80), 0..100)
        ) {
            let mut assembler = Assembler::default();
            let mut received = Vec::new();
            for (start, length, most) in parts {
                assembler.insert(start, &data(start..start + length)).unwrap();
                for pair in assembler.ranges().windows(2) {
                    prop_assert!(pair[0].end <= pair[1].start);
                }
                if let Some(read) = assembler.read(most) {
                    prop_assert!(read.len() <= most);
                    received.extend(read);
                }
                if length % 7 == 0 {
                    assembler.join_chunks();
                }
            }
            assembler.insert(0, &data(0..600)).unwrap();
            while let Some(read) = assembler.read(1_000) {
                received.extend(read);
            }
            prop_assert_eq!(received, data(0..600));
            prop_assert_eq!(assembler.buffered, 0);
        }
    }

    #[test]
    fn small_data_without_gaps_is_joined() {
        let mut assembler = Assembler::default();
        for at in 0..1 << 20 {
            assembler.insert(at, &[byte(at)]).unwrap();
            assert!(!assembler.has_too_many_chunks());
        }
        let mut read = Vec::new();
        while let Some(part) = assembler.read(usize::MAX) {
            read.extend(part);
        }
        assert!(read == data(0..1 << 20));
    }

    #[test]
    fn gaps_are_bounded_by_the_data() {
        let mut assembler = Assembler::default();
        let most = (1..).find(|at| assembler.insert(2 * at, &[0]).is_err());
        // 64 bytes for each of less than 65 KiB, with a byte of data each.
        assert!((1_024..1_100).contains(&most.unwrap()), "{most:?}");
        // Full packets can have as many gaps as flow control allows.
        let mut assembler = Assembler::default();
        for at in 1..10_000 {
            assembler.insert(at * 2_400, &[0; 1_200]).unwrap();
        }
    }
}
