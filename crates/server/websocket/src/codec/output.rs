//! The output buffer, which collects short frames for one write and does not copy long payloads.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes to write, in order.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    /// The bytes before `tail`.
    pieces: VecDeque<Piece>,
    tail: BytesMut,
    len: usize,
    /// How many of these bytes are in memory that other connections share.
    shared: usize,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    is_shared: bool,
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

    /// The bytes of memory that only this buffer takes.
    pub(super) fn memory(&self) -> usize {
        self.len.saturating_sub(self.shared)
    }

    /// The next bytes to write; empty only if there are none.
    pub(super) fn front(&self) -> &[u8] {
        self.pieces
            .front()
            .map_or(&self.tail, |piece| &*piece.bytes)
    }

    /// Appends what `write` writes.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        let added = self.tail.len().saturating_sub(before);
        self.len = self.len.saturating_add(added);
    }

    /// Appends bytes; of long ones it copies only the first part.
    pub(super) fn push(&mut self, bytes: Bytes) {
        self.push_piece(bytes, false);
    }

    /// Appends bytes whose memory other connections share.
    pub(super) fn push_shared(&mut self, bytes: Bytes) {
        self.push_piece(bytes, true);
    }

    fn push_piece(&mut self, mut bytes: Bytes, is_shared: bool) {
        if bytes.len() <= Self::MAX_COPIED {
            self.append(|out| out.extend_from_slice(&bytes));
            return;
        }
        if !self.tail.is_empty() {
            let prefix = bytes.split_to(Self::COPIED_PREFIX);
            self.append(|out| out.extend_from_slice(&prefix));
            let bytes = self.tail.split().freeze();
            self.pieces.push_back(Piece {
                bytes,
                is_shared: false,
            });
        }
        self.len = self.len.saturating_add(bytes.len());
        if is_shared {
            self.shared = self.shared.saturating_add(bytes.len());
        }
        self.pieces.push_back(Piece { bytes, is_shared });
    }

    /// Removes bytes of [`OutputBuffer::front`] that were written.
    pub(super) fn consume(&mut self, written: usize) {
        self.len = self.len.saturating_sub(written);
        if let Some(piece) = self.pieces.front_mut() {
            piece.bytes.advance(written.min(piece.bytes.len()));
            if piece.is_shared {
                self.shared = self.shared.saturating_sub(written);
            }
            if piece.bytes.is_empty() {
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
