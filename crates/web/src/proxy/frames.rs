//! Frames between whoever takes content in and its reader, with what they amount to.

use std::collections::VecDeque;

use apus_http::Frame;

/// Frames that were taken in and not read yet, in their order.
#[derive(Default)]
pub(super) struct Frames {
    waiting: VecDeque<Frame>,
    held: usize,
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

    /// Takes one in.
    pub(super) fn push(&mut self, frame: Frame) {
        if let Frame::Data(bytes) = &frame {
            self.held = self.held.saturating_add(bytes.len());
        }
        self.waiting.push_back(frame);
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.waiting.pop_front()?;
        let len = match &frame {
            Frame::Data(bytes) => {
                self.held = self.held.saturating_sub(bytes.len());
                bytes.len() as u64
            }
            Frame::File(range) => range.len,
            Frame::Trailers(_) => 0,
        };
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(len);
        }
        Some(frame)
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.held = 0;
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
