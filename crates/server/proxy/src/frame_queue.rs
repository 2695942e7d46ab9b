//! A queue of body frames between a writer and a reader, with their total size.

use std::collections::VecDeque;
use std::sync::Arc;

use apus_http::{FileRange, Frame};

/// Frames that were not read yet, in order.
#[derive(Default)]
pub(super) struct FrameQueue {
    frames: VecDeque<Frame>,
    in_memory: usize,
    in_file: usize,
    remaining: Option<u64>,
}

impl FrameQueue {
    /// Creates an empty queue, for a body of this length if that is known.
    pub(super) fn new(remaining: Option<u64>) -> Self {
        Self {
            remaining,
            ..Self::default()
        }
    }

    /// Adds a frame. A file range that begins where the last one ends is joined with it.
    pub(super) fn push(&mut self, frame: Frame) {
        match (self.frames.back_mut(), &frame) {
            (Some(Frame::File(last)), Frame::File(range)) if continues(last, range) => {
                last.len = last.len.saturating_add(range.len);
                return;
            }
            (_, Frame::Data(bytes)) => self.in_memory = self.in_memory.saturating_add(bytes.len()),
            (_, Frame::File(_)) => self.in_file = self.in_file.saturating_add(1),
            (_, Frame::Trailers(_)) => {}
        }
        self.frames.push_back(frame);
    }

    /// Takes the next frame.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        match &frame {
            Frame::Data(bytes) => self.in_memory = self.in_memory.saturating_sub(bytes.len()),
            Frame::File(_) => self.in_file = self.in_file.saturating_sub(1),
            Frame::Trailers(_) => {}
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(frame.len());
        }
        Some(frame)
    }

    /// Drops all frames.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.in_memory = 0;
        self.in_file = 0;
    }

    /// Whether any frame is a file range.
    pub(super) fn has_file(&self) -> bool {
        self.in_file > 0
    }

    /// Returns all frames.
    pub(super) fn into_frames(self) -> VecDeque<Frame> {
        self.frames
    }

    /// Returns the number of bytes in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.in_memory
    }

    /// Returns the number of bytes of the body that were not read yet, if its length is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}

/// Whether `range` begins where `last` ends.
fn continues(last: &FileRange, range: &FileRange) -> bool {
    Arc::ptr_eq(&last.file, &range.file) && last.offset.saturating_add(last.len) == range.offset
}
