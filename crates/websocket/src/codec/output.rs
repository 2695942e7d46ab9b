//! The output buffer, which collects short frames for one write and does not copy long payloads.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes to write, in order.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    /// The bytes before `tail`.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

/// The maximum capacity of `tail` that is kept when everything was written.
const KEPT_CAPACITY: usize = 512;

impl OutputBuffer {
    /// The maximum length of a payload that is copied behind its head.
    const MAX_COPIED: usize = 16 * 1024;
    /// The length of the copied part of a longer payload, so that the head is not sent as a packet by itself.
    const COPIED_PREFIX: usize = 4096;

    /// The number of bytes to write.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The next bytes to write; empty only if there are none.
    pub(super) fn front(&self) -> &[u8] {
        self.pieces.front().map_or(&self.tail, |piece| &**piece)
    }

    /// Appends what `write` writes.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        let added = self.tail.len().saturating_sub(before);
        self.len = self.len.saturating_add(added);
    }

    /// Appends bytes; of long ones it copies only the first part.
    pub(super) fn push(&mut self, mut bytes: Bytes) {
        if bytes.len() <= Self::MAX_COPIED {
            self.append(|out| out.extend_from_slice(&bytes));
            return;
        }
        if !self.tail.is_empty() {
            let prefix = bytes.split_to(Self::COPIED_PREFIX);
            self.append(|out| out.extend_from_slice(&prefix));
            self.pieces.push_back(self.tail.split().freeze());
        }
        self.len = self.len.saturating_add(bytes.len());
        self.pieces.push_back(bytes);
    }

    /// Removes bytes of [`OutputBuffer::front`] that were written.
    pub(super) fn consume(&mut self, written: usize) {
        self.len = self.len.saturating_sub(written);
        if let Some(piece) = self.pieces.front_mut() {
            piece.advance(written.min(piece.len()));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            return;
        }
        self.tail.advance(written.min(self.tail.len()));
        if self.tail.is_empty() && self.tail.capacity() > KEPT_CAPACITY {
            self.tail = BytesMut::new();
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
