//! The state of a request stream (RFC 9114 section 4.1).

use apus_codec::messages::RequestKind;
use apus_codec::priority::Priority;

/// The state of an open request stream.
#[derive(Debug)]
pub(super) struct RequestStream {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    pub(super) frame: FrameProgress,
    /// The received part of a frame's type and length, or of a field section.
    pub(super) buffer: Vec<u8>,
    /// The rest of the body according to `content-length`.
    pub(super) body_left: Option<u64>,
    pub(super) priority: Priority,
    pub(super) request: RequestKind,
    /// Whether the rest of the stream is a tunnel, in which there are only DATA frames (section 4.4).
    pub(super) is_tunnel: bool,
    /// Whether it is in the schedule.
    pub(super) is_scheduled: bool,
}

impl RequestStream {
    /// The bytes of a field section that is incomplete or blocked.
    pub(super) fn section_bytes(&self) -> usize {
        match self.frame {
            FrameProgress::Section(_) | FrameProgress::Blocked(_) => self.buffer.len(),
            FrameProgress::Start | FrameProgress::Data(_) | FrameProgress::Skip(_) => 0,
        }
    }

    /// Whether the peer has to complete a field section.
    pub(super) fn is_inside_section(&self) -> bool {
        matches!(
            self.frame,
            FrameProgress::Section(_) | FrameProgress::Blocked(_)
        )
    }
}

/// The message that the peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A head is expected.
    Head,
    /// Data or trailers are expected.
    Body,
    /// The trailer section was received; only the end may follow.
    Complete,
    /// What arrives is discarded.
    Discarded,
    /// The peer has ended the stream.
    Ended,
}

/// The message that this end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    /// A head has to be sent.
    Head,
    /// Data or trailers may be sent.
    Body,
    /// This end has ended the stream.
    Ended,
}

/// The place in the frames of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameProgress {
    /// A type and a length are expected.
    Start,
    /// This many bytes of a DATA frame are expected.
    Data(u64),
    /// A field section of this many bytes is expected.
    Section(usize),
    /// A complete field section waits for this many inserts.
    Blocked(u64),
    /// This many bytes are skipped.
    Skip(u64),
}
