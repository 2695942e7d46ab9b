//! Frames between whoever takes content in and its reader, with what they amount to.

use std::collections::VecDeque;
use std::sync::Arc;

use apus_http::{FileRange, Frame};

/// Frames that were taken in and not read yet, in their order.
#[derive(Default)]
pub(super) struct Frames {
    waiting: VecDeque<Frame>,
    held: usize,
    in_file: usize,
    remaining: Option<u64>,
}

impl Frames {
    /// None yet, of content of this length, if that is known.
    pub(super) fn new(remaining: Option<u64>) -> Self {
        Self {
            remaining,
            ..Self::default()
        }
    }

    /// Takes one in. A part of a file that goes on where the last one ends is joined with it.
    pub(super) fn push(&mut self, frame: Frame) {
        match (self.waiting.back_mut(), &frame) {
            (Some(Frame::File(last)), Frame::File(range)) if is_behind(last, range) => {
                last.len = last.len.saturating_add(range.len);
                return;
            }
            (_, Frame::Data(bytes)) => self.held = self.held.saturating_add(bytes.len()),
            (_, Frame::File(_)) => self.in_file = self.in_file.saturating_add(1),
            (_, Frame::Trailers(_)) => {}
        }
        self.waiting.push_back(frame);
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.waiting.pop_front()?;
        match &frame {
            Frame::Data(bytes) => self.held = self.held.saturating_sub(bytes.len()),
            Frame::File(_) => self.in_file = self.in_file.saturating_sub(1),
            Frame::Trailers(_) => {}
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(frame.len());
        }
        Some(frame)
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.held = 0;
        self.in_file = 0;
    }

    /// Whether there is a part of a file among them.
    pub(super) fn has_file(&self) -> bool {
        self.in_file > 0
    }

    /// All of them.
    pub(super) fn into_waiting(self) -> VecDeque<Frame> {
        self.waiting
    }

    /// Bytes in memory.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Bytes of the content that were not read yet, where its length is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}

/// Whether `range` goes on where `last` ends.
fn is_behind(last: &FileRange, range: &FileRange) -> bool {
    Arc::ptr_eq(&last.file, &range.file) && last.offset.saturating_add(last.len) == range.offset
}
