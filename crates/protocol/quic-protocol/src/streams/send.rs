//! The sending half of a stream (RFC 9000 section 3.1).

use crate::streams::send_buffer::RetransmitBuffer;

/// The state of a half that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendHalfState {
    /// Data can be written.
    Open,
    /// The end is written. `is_pending`: it has to be sent with the last data; `is_acknowledged`: the peer has it.
    Finished {
        is_pending: bool,
        is_acknowledged: bool,
    },
    /// RESET_STREAM was or will be sent, at this size.
    Reset { code: u64, final_size: u64 },
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) buffer: RetransmitBuffer,
    pub(crate) state: SendHalfState,
    /// The limit of the peer.
    pub(crate) max_data: u64,
    pub(crate) priority: i32,
    /// The error code of STOP_SENDING.
    pub(crate) stopped: Option<u64>,
    /// Whether it is in the queue of streams to send.
    pub(crate) is_queued: bool,
    /// The end of the data that is sent in its turn; `None` before the turn begins.
    pub(crate) turn_end: Option<u64>,
    /// Whether the application waits for the limit of the peer.
    pub(crate) is_blocked: bool,
    /// Whether STREAM_DATA_BLOCKED waits to be sent.
    pub(crate) is_blocked_pending: bool,
    /// Whether the application waits for the limits of the connection.
    pub(crate) is_connection_blocked: bool,
}

impl SendHalf {
    pub(crate) fn new(max_data: u64) -> Self {
        Self {
            buffer: RetransmitBuffer::default(),
            state: SendHalfState::Open,
            max_data,
            priority: 0,
            stopped: None,
            is_queued: false,
            turn_end: None,
            is_blocked: false,
            is_blocked_pending: false,
            is_connection_blocked: false,
        }
    }

    /// Whether STREAM frames have to be sent.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        match self.state {
            SendHalfState::Open => self.buffer.has_pending(),
            SendHalfState::Finished { is_pending, .. } => is_pending || self.buffer.has_pending(),
            SendHalfState::Reset { .. } => false,
        }
    }

    /// Whether there is more to write than the limit of the peer allows.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.state == SendHalfState::Open && self.is_blocked && self.buffer.end() == self.max_data
    }

    /// Whether the peer has everything.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(
            self.state,
            SendHalfState::Finished {
                is_acknowledged: true,
                ..
            }
        ) && self.buffer.is_acknowledged()
    }

    /// Ends the data at what was sent: RESET_STREAM has to be sent. Returns the bytes that are dropped without an
    /// acknowledgement, and those of them that were not sent and do not count for flow control.
    pub(crate) fn reset(&mut self, code: u64) -> (u64, u64) {
        let unacknowledged = self.buffer.unacknowledged();
        let final_size = self.buffer.unsent();
        let unsent = self.buffer.end() - final_size;
        self.buffer.clear();
        self.state = SendHalfState::Reset { code, final_size };
        (unacknowledged, unsent)
    }
}
