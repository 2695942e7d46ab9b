//! The input of a connection that was read and not consumed yet.

use std::ops::Range;

use bytes::Bytes;

use crate::buffers::{BUFFER, BufferPool, freeze};

/// A part of at least this size is passed on without a copy.
// Without a copy, a part keeps its whole buffer: one of 64 KiB, for a small part.
const WITHOUT_COPY: usize = 16 * 1024;

/// Bytes that were read and not consumed yet; an empty one holds no buffer.
#[derive(Default)]
pub struct InputBuffer {
    buffer: Vec<u8>,
    start: usize,
}

impl InputBuffer {
    /// An input that begins with these bytes.
    pub fn new(early: Vec<u8>) -> Self {
        Self {
            buffer: early,
            start: 0,
        }
    }

    /// The bytes that were not consumed yet.
    pub fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Whether every byte was consumed.
    pub fn is_empty(&self) -> bool {
        self.start >= self.buffer.len()
    }

    /// Whether no memory is held.
    pub fn holds_nothing(&self) -> bool {
        self.buffer.capacity() == 0
    }

    /// Consumes the first of the unread bytes, this many.
    pub fn consume(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes);
    }

    /// Adds the bytes that were just read into `read`.
    pub fn add(&mut self, read: Vec<u8>, buffers: &BufferPool) {
        if self.is_empty() {
            buffers.put(std::mem::replace(&mut self.buffer, read));
            self.start = 0;
        } else {
            self.drop_consumed();
            self.buffer.extend_from_slice(&read);
            buffers.put(read);
        }
    }

    /// A buffer to read into, behind the unread bytes.
    pub fn room(&mut self, buffers: &BufferPool) -> &mut Vec<u8> {
        if self.is_empty() {
            self.start = 0;
            // It may be the small copy that `release` has left.
            if self.buffer.capacity() < BUFFER {
                self.buffer = buffers.take();
            } else {
                self.buffer.clear();
            }
        } else {
            self.drop_consumed();
            if self.buffer.capacity() < BUFFER {
                let unread = std::mem::replace(&mut self.buffer, buffers.take());
                self.buffer.extend_from_slice(&unread);
            }
            // With less room than for a TLS record, each read would take few bytes.
            if self.buffer.capacity() - self.buffer.len() < BUFFER / 4 {
                self.buffer.reserve(BUFFER);
            }
        }
        &mut self.buffer
    }

    /// Returns the buffer to the pool for the time of a wait, and keeps a small copy of its unread bytes.
    pub fn release(&mut self, buffers: &BufferPool) {
        // This is such a copy already, or empty.
        if self.start == 0 && self.buffer.capacity() == self.buffer.len() {
            return;
        }
        let kept = if self.is_empty() {
            Vec::new()
        } else {
            self.unread().to_vec()
        };
        self.start = 0;
        buffers.put(std::mem::replace(&mut self.buffer, kept));
    }

    /// Takes a part of the unread bytes, which ends at `consumed` or before.
    pub fn take(&mut self, part: Range<usize>, consumed: usize) -> Bytes {
        let unread = self.unread();
        if part.len() < WITHOUT_COPY {
            let bytes = Bytes::copy_from_slice(unread.get(part).unwrap_or_default());
            self.consume(consumed);
            return bytes;
        }
        // What is behind the part is mostly nothing, or the beginning of the next message: it is copied, and the
        // buffer goes with the part.
        let rest = unread.get(consumed..).unwrap_or_default().to_vec();
        let start = self.start;
        let whole = freeze(std::mem::replace(&mut self.buffer, rest));
        self.start = 0;
        whole.slice(start.saturating_add(part.start)..start.saturating_add(part.end))
    }

    /// Takes parts of the unread bytes, joined; they end at `consumed` or before. A single large part is not
    /// copied; of several, all but the first are moved.
    pub fn take_joined(&mut self, parts: &[Range<usize>], consumed: usize) -> Bytes {
        let unread = self.unread();
        let len: usize = parts.iter().map(Range::len).sum();
        if len < WITHOUT_COPY {
            let mut joined = Vec::with_capacity(len);
            for part in parts {
                joined.extend_from_slice(unread.get(part.clone()).unwrap_or_default());
            }
            self.consume(consumed);
            return joined.into();
        }
        let rest = unread.get(consumed..).unwrap_or_default().to_vec();
        let offset = std::mem::take(&mut self.start);
        let mut whole = std::mem::replace(&mut self.buffer, rest);
        let start = offset + parts.first().map_or(0, |first| first.start);
        let mut end = start;
        for part in parts {
            let from = offset + part.start;
            if from != end {
                whole.copy_within(from..from + part.len(), end);
            }
            end += part.len();
        }
        freeze(whole).slice(start..end)
    }

    fn drop_consumed(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start.min(self.buffer.len()));
            self.start = 0;
        }
    }
}
