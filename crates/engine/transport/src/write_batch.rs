//! The output of an HTTP/2 connection, which leaves in one vectored write.
//!
//! Frames and small chunks are in one buffer, large chunks stay where they are, and parts of files are in
//! pages. All of it leaves in the order in which it was added.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::buffers::{BUFFER, BufferPool, PAGE};
use crate::transport::Transport;

/// The most bytes that one write takes: eight full TLS records. A small response waits for no more than this
/// of a large one on its connection, and for less where the peer is slow.
pub const BATCH: usize = 128 * 1024;

/// The most bytes that the kernel holds while it cannot send them. A peer with a long round trip needs more
/// bytes in flight, not here: the kernel counts only those that the congestion window still holds back.
pub const MAX_UNSENT: u32 = 128 * 1024;

/// The length of a frame's header.
pub const FRAME_HEADER: usize = 9;

/// A batch with less free space than this is full, because small frames waste bytes.
pub const MIN_SPACE: usize = 1024;

/// The size of a write after which the next one may find the socket full.
pub const LARGE_WRITE: usize = 16 * 1024;

/// A chunk up to this size is copied behind its frame's header; a larger one is written from where it is.
const MAX_COPY: usize = 1024;

/// The most slices of one write; more wait for the next.
const SLICES: usize = 64;

/// The bytes of the next writes.
#[derive(Default)]
pub struct WriteBatch {
    /// Frames and small chunks.
    bytes: Vec<u8>,
    /// Large chunks, each with its position in `bytes`.
    parts: Vec<BatchPart>,
    pages: Vec<BatchPage>,
    /// Bytes of `parts` that were not written.
    apart: usize,
    /// Where the next write starts.
    start: WritePosition,
    /// Bytes that ever were written.
    written: u64,
}

/// A chunk that is written from where it is.
struct BatchPart {
    /// Its position in the batch's own bytes.
    at: usize,
    source: PartSource,
}

enum PartSource {
    Bytes(Bytes),
    Page { index: usize, range: Range<usize> },
}

/// A page with parts of files.
struct BatchPage {
    bytes: Box<[u8]>,
    filled: usize,
}

/// The progress of writing.
#[derive(Clone, Copy, Default)]
struct WritePosition {
    /// Of the batch's own bytes.
    bytes: usize,
    /// Whole parts.
    parts: usize,
    /// Bytes of the next part.
    of_part: usize,
}

impl WriteBatch {
    /// The buffer to append frames to.
    pub fn frames(&mut self, buffers: &BufferPool) -> &mut Vec<u8> {
        if self.bytes.is_empty() && self.bytes.capacity() < BUFFER {
            self.bytes = buffers.take();
        }
        &mut self.bytes
    }

    /// Adds a chunk, behind its frame's header.
    pub fn add(&mut self, chunk: Bytes, buffers: &BufferPool) {
        if chunk.len() <= MAX_COPY {
            self.frames(buffers).extend_from_slice(&chunk);
        } else {
            self.add_part(chunk.len(), PartSource::Bytes(chunk));
        }
    }

    /// A buffer of at most `most` bytes to read a file into, for [`Self::add_read`].
    pub fn room(&mut self, most: usize, buffers: &BufferPool) -> &mut [u8] {
        // What is read becomes one chunk of one frame, so that the page has to hold all of it.
        let is_full = |page: &BatchPage| PAGE - page.filled < most.min(PAGE);
        if self.pages.last().is_none_or(is_full) {
            self.pages.push(BatchPage {
                bytes: buffers.take_page(),
                filled: 0,
            });
        }
        let page = self.pages.last_mut();
        page.and_then(|page| {
            let end = page.filled.saturating_add(most).min(page.bytes.len());
            page.bytes.get_mut(page.filled..end)
        })
        .unwrap_or_default()
    }

    /// Adds the first `len` bytes of [`Self::room`] as a chunk, behind their frame's header.
    pub fn add_read(&mut self, len: usize) {
        let Some(page) = self.pages.last_mut().filter(|_| len > 0) else {
            return;
        };
        let range = page.filled..page.filled + len;
        page.filled = range.end;
        let index = self.pages.len() - 1;
        self.add_part(len, PartSource::Page { index, range });
    }

    fn add_part(&mut self, len: usize, source: PartSource) {
        self.apart += len;
        self.parts.push(BatchPart {
            at: self.bytes.len(),
            source,
        });
    }

    /// Bytes that were added and not written.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start.bytes + self.apart
    }

    /// Whether nothing was added since all was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty()
    }

    /// Whether the batch was written in part.
    pub fn is_partial(&self) -> bool {
        // A chunk stands behind the header of its frame, so that any write takes some of the batch's own bytes first.
        self.start.bytes > 0
    }

    /// Bytes that ever were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that ever were added.
    pub fn added(&self) -> u64 {
        self.written + self.len() as u64
    }

    /// Writes once; returns how many bytes. Parts that were written whole are dropped.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        let written = if self.parts.is_empty() {
            let bytes = self.bytes.get(self.start.bytes..).unwrap_or_default();
            ready!(transport.poll_write(cx, &[IoSlice::new(bytes)]))?
        } else {
            ready!(transport.poll_write(cx, &self.slices()))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written, buffers);
        Poll::Ready(Ok(written))
    }

    /// The slices of the next write.
    fn slices(&self) -> SmallVec<[IoSlice<'_>; SLICES]> {
        let mut slices = NonEmptySlices::default();
        let mut at = self.start.bytes;
        let mut of_part = self.start.of_part;
        let left = self.parts.get(self.start.parts..).unwrap_or_default();
        // Each part takes two slices, one for itself and one for the frames before it; one is left for the frames
        // behind the last.
        for part in left.iter().take(SLICES / 2 - 1) {
            slices.push(self.bytes.get(at..part.at));
            at = part.at;
            slices.push(self.part(&part.source).get(of_part..));
            of_part = 0;
        }
        if left.len() < SLICES / 2 {
            slices.push(self.bytes.get(at..));
        }
        slices.0
    }

    fn part<'a>(&'a self, source: &'a PartSource) -> &'a [u8] {
        match source {
            PartSource::Bytes(bytes) => bytes,
            PartSource::Page { index, range } => {
                let page = self.pages.get(*index);
                page.and_then(|page| page.bytes.get(range.clone()))
                    .unwrap_or_default()
            }
        }
    }

    fn advance(&mut self, written: usize, buffers: &BufferPool) {
        self.written += written as u64;
        let mut left = written;
        while left > 0 {
            let Some(part) = self.parts.get(self.start.parts) else {
                self.start.bytes += left;
                break;
            };
            let before = (part.at - self.start.bytes).min(left);
            self.start.bytes += before;
            left -= before;
            let of_part = (part.source.len() - self.start.of_part).min(left);
            self.start.of_part += of_part;
            self.apart -= of_part;
            left -= of_part;
            if self.start.of_part == part.source.len() {
                self.start.parts += 1;
                self.start.of_part = 0;
            }
        }
        if self.start.bytes == self.bytes.len() && self.apart == 0 {
            self.bytes.clear();
            self.parts.clear();
            self.start = WritePosition::default();
            for page in self.pages.drain(..) {
                buffers.put_page(page.bytes);
            }
        } else if self.start.bytes >= BUFFER {
            // Dropping moves all bytes behind, so it waits until it frees a buffer's worth.
            self.drop_written();
        }
    }

    /// Drops the written bytes, if more is added before the rest can be written.
    fn drop_written(&mut self) {
        self.bytes.drain(..self.start.bytes);
        self.parts.drain(..self.start.parts);
        for part in &mut self.parts {
            part.at -= self.start.bytes;
        }
        self.start.bytes = 0;
        self.start.parts = 0;
    }

    /// Returns the buffer to the pool for the time of a wait, and keeps a small copy of its bytes.
    pub fn release(&mut self, buffers: &BufferPool) {
        // A large rest is not copied: it is about to be written, and the buffer is in use.
        if self.bytes.capacity() >= BUFFER && self.bytes.len() <= BUFFER / 4 {
            let kept = self.bytes.as_slice().to_vec();
            buffers.put(std::mem::replace(&mut self.bytes, kept));
        }
    }

    /// Releases all memory, if nothing is to be written.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.parts = Vec::new();
            self.pages = Vec::new();
        }
    }
}

/// The slices of a write, none of them empty.
#[derive(Default)]
struct NonEmptySlices<'a>(SmallVec<[IoSlice<'a>; SLICES]>);

impl<'a> NonEmptySlices<'a> {
    fn push(&mut self, bytes: Option<&'a [u8]>) {
        if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
            self.0.push(IoSlice::new(bytes));
        }
    }
}

impl PartSource {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Page { range, .. } => range.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch with parts of all kinds, and its bytes.
    fn sample(buffers: &BufferPool) -> (WriteBatch, Vec<u8>) {
        let mut batch = WriteBatch::default();
        let mut expected = Vec::new();
        for round in 0..40_u8 {
            let header = [round; 9];
            batch.frames(buffers).extend_from_slice(&header);
            expected.extend_from_slice(&header);
            let chunk = vec![round ^ 0x80; 700 * usize::from(round % 5)];
            match round % 3 {
                0 => batch.add(chunk.clone().into(), buffers),
                _ => {
                    batch.room(chunk.len(), buffers)[..chunk.len()].copy_from_slice(&chunk);
                    batch.add_read(chunk.len());
                }
            }
            expected.extend_from_slice(&chunk);
        }
        (batch, expected)
    }

    fn joined(batch: &WriteBatch) -> Vec<u8> {
        batch
            .slices()
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect()
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_were_added_however_little_is_taken() {
        let buffers = BufferPool::default();
        for step in [1, 7, 9, 500, 16_384, usize::MAX] {
            let (mut batch, expected) = sample(&buffers);
            assert_eq!(batch.added(), expected.len() as u64);
            let mut written = Vec::new();
            while !batch.is_empty() {
                let before = batch.len();
                let mut taken = 0;
                for slice in batch.slices() {
                    let part = slice.len().min(step - taken);
                    written.extend_from_slice(&slice[..part]);
                    taken += part;
                }
                batch.advance(taken, &buffers);
                assert_eq!(batch.len(), before - taken);
            }
            assert!(written == expected, "in steps of {step}");
            assert_eq!(batch.written(), expected.len() as u64);
            assert_eq!((batch.parts.len(), batch.pages.len()), (0, 0));
        }
    }

    #[test]
    fn a_batch_that_is_never_written_whole_does_not_grow() {
        let buffers = BufferPool::default();
        let mut batch = WriteBatch::default();
        batch.frames(&buffers).extend_from_slice(&[0; 1000]);
        for round in 0..1000 {
            let frame = [u8::try_from(round % 251).unwrap(); 1000];
            batch.frames(&buffers).extend_from_slice(&frame);
            batch.advance(1000, &buffers);
            assert_eq!(joined(&batch), frame);
        }
        assert!(batch.bytes.capacity() <= 4 * BUFFER);
    }

    #[test]
    fn a_write_takes_no_more_slices_than_fit() {
        let buffers = BufferPool::default();
        let mut batch = WriteBatch::default();
        for _ in 0..200 {
            batch.frames(&buffers).push(1);
            batch.add(vec![2; MAX_COPY + 1].into(), &buffers);
        }
        assert!(batch.slices().len() <= SLICES && !batch.slices().spilled());
    }

    #[test]
    fn small_chunks_are_copied_and_large_ones_are_not() {
        let buffers = BufferPool::default();
        let mut batch = WriteBatch::default();
        batch.add(vec![0; MAX_COPY].into(), &buffers);
        assert_eq!(batch.slices().len(), 1);
        let large = Bytes::from(vec![0; MAX_COPY + 1]);
        batch.add(large.clone(), &buffers);
        assert_eq!(batch.slices()[1].as_ptr(), large.as_ptr());
    }
}
