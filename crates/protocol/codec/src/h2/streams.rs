//! The states of a connection's open streams (RFC 9113 section 5.1).

use super::frame;
use crate::messages::RequestKind;
use crate::priority::Priority;

/// Identifies a stream while it is open.
pub type StreamKey = crate::stream_table::StreamKey<u32>;

/// The state of an open stream, in 64 bytes.
#[derive(Debug)]
pub(super) struct StreamState {
    /// Bytes that the peer allows this end to send.
    pub(super) send_window: i32,
    /// Bytes that this end allows the peer to send.
    pub(super) receive_window: i32,
    /// Bytes of received data that the reader has not consumed.
    pub(super) unread: u32,
    /// Bytes of consumed data that no WINDOW_UPDATE has released yet.
    pub(super) unreleased: u32,
    /// The rest of the body according to `content-length`.
    pub(super) body_left: Option<u64>,
    pub(super) priority: Priority,
    pub(super) receiving: ReceiveState,
    pub(super) sending: SendState,
    pub(super) schedule_state: ScheduleState,
    pub(super) request: RequestKind,
}

impl StreamState {
    /// Releases consumed data or padding, once there is enough for a WINDOW_UPDATE. `target` is the size
    /// of the window.
    pub(super) fn release(&mut self, id: u32, bytes: u32, target: u32, out: &mut Vec<u8>) {
        self.unreleased = self.unreleased.saturating_add(bytes);
        // No update for a stream that has ended or whose data is discarded: there is nothing to ask for.
        if self.unreleased >= target / 2 && self.receiving == ReceiveState::Body {
            let increment = std::mem::take(&mut self.unreleased);
            let bytes = i32::try_from(increment).unwrap_or(i32::MAX);
            self.receive_window = self.receive_window.saturating_add(bytes);
            frame::window_update(id, increment, out);
        }
    }
}

/// The receiving half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveState {
    /// A head is expected (at a client).
    Head,
    /// Data or trailers are expected.
    Body,
    /// Data is expected and will be discarded.
    Discarded,
    /// The peer has ended the stream.
    Ended,
}

/// The sending half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// A head has to be sent.
    Head,
    /// Data or trailers may be sent.
    Body,
    /// This end has ended the stream.
    Ended,
}

/// Whether the stream has data to send, and whether it is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleState {
    /// It has no data to send.
    Idle,
    /// It is in the schedule.
    Queued,
    /// It waits for its window.
    Stalled,
}

/// The most recently closed streams, by how they were closed (section 5.1, "closed").
#[derive(Debug, Default)]
pub(super) struct ClosedStreams {
    /// Reset by this end: frames that the peer sent before it knew are ignored.
    // Not all identifiers are remembered: for a connection that lives for days, that is a list without an end.
    reset: RecentIds<128>,
    /// Ended by both ends, or reset by the peer: further frames are a stream error.
    ended: RecentIds<8>,
}

impl ClosedStreams {
    pub(super) fn add_reset(&mut self, id: u32) {
        self.reset.add(id);
    }

    pub(super) fn add_ended(&mut self, id: u32) {
        self.ended.add(id);
    }

    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.reset.ids.contains(&id)
    }

    pub(super) fn has_ended(&self, id: u32) -> bool {
        self.ended.ids.contains(&id)
    }
}

/// The most recently added stream identifiers.
#[derive(Debug, Default)]
struct RecentIds<const CAPACITY: usize> {
    ids: Vec<u32>,
    next: usize,
}

impl<const CAPACITY: usize> RecentIds<CAPACITY> {
    fn add(&mut self, id: u32) {
        if self.ids.len() < CAPACITY {
            self.ids.push(id);
            return;
        }
        if let Some(oldest) = self.ids.get_mut(self.next) {
            *oldest = id;
        }
        self.next = match self.next.wrapping_add(1) {
            next if next < CAPACITY => next,
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_fits_one_cache_line() {
        assert!(size_of::<StreamState>() <= 64);
    }

    #[test]
    fn remembers_the_last_streams_that_were_reset() {
        let mut closed_streams = ClosedStreams::default();
        (0..200).for_each(|id| closed_streams.add_reset(id));
        assert!(
            closed_streams.was_reset(199)
                && closed_streams.was_reset(72)
                && !closed_streams.was_reset(71)
        );
    }
}
