//! Bytes that wait to be sent: short ones gather for one write, long payloads are not copied.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes to be sent, in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// What goes before `tail`.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

/// The room that is kept for the next message when all was sent.
const KEPT: usize = 512;

impl Output {
    /// The longest payload that is copied next to its head.
    const COPIED: usize = 16 * 1024;
    /// So much of a longer one is, so that the head is no packet of its own.
    const BEGINNING: usize = 4096;

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The next bytes to send; empty only if there are none.
    pub(super) fn front(&self) -> &[u8] {
        self.pieces.front().map_or(&self.tail, |piece| &**piece)
    }

    /// Writes to the end of what waits.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        let added = self.tail.len().saturating_sub(before);
        self.len = self.len.saturating_add(added);
    }

    /// Adds bytes, without a copy of most of them if they are long.
    pub(super) fn push(&mut self, mut bytes: Bytes) {
        if bytes.len() <= Self::COPIED {
            self.append(|out| out.extend_from_slice(&bytes));
            return;
        }
        if !self.tail.is_empty() {
            let beginning = bytes.split_to(Self::BEGINNING);
            self.append(|out| out.extend_from_slice(&beginning));
            self.pieces.push_back(self.tail.split().freeze());
        }
        self.len = self.len.saturating_add(bytes.len());
        self.pieces.push_back(bytes);
    }

    /// Drops bytes of [`Output::front`] that were sent.
    pub(super) fn consume(&mut self, sent: usize) {
        self.len = self.len.saturating_sub(sent);
        if let Some(piece) = self.pieces.front_mut() {
            piece.advance(sent.min(piece.len()));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            return;
        }
        self.tail.advance(sent.min(self.tail.len()));
        if self.tail.is_empty() && self.tail.capacity() > KEPT {
            self.tail = BytesMut::new();
        }
    }

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
