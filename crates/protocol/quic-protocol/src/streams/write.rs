//! The frames of streams in packets (RFC 9000 sections 13.3 and 19.4 to 19.11).

use crate::frame::{self, kind};
use crate::stream_id::{Dir, StreamId};
use crate::varint;

use super::Streams;
use super::send::SendHalfState;

/// A STREAM frame whose data has fewer bytes than this is not begun, unless that is all.
// A frame of a few bytes at the end of a packet costs its header here, and another frame for the rest.
const MIN_DATA: u64 = 16;

/// A STREAM frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) stream: u64,
    pub(crate) offset: u64,
    pub(crate) length: u16,
    pub(crate) fin: bool,
}

/// A frame that was sent, other than STREAM. If it is lost, one with the current values is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamControl {
    MaxData,
    MaxStreams(Dir),
    MaxStreamData(StreamId),
    ResetStream(StreamId),
    StopSending { stream: StreamId, code: u64 },
    DataBlocked,
    StreamDataBlocked(StreamId),
    StreamsBlocked(Dir),
}

impl Streams {
    /// Whether frames have to be sent, other than STREAM.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        self.is_max_data_pending
            || self.is_max_streams_pending != [false; 2]
            || !self.pending.is_empty()
    }

    /// Whether STREAM frames have to be sent.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Writes the next frame other than STREAM, unless the buffer would be longer than `end`.
    pub(crate) fn write_control(
        &mut self,
        end: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<StreamControl> {
        if buffer.len() + frame::most_of_integers(3) > end {
            return None;
        }
        if std::mem::take(&mut self.is_max_data_pending) {
            self.announced_data = self.next_max_data().max(self.announced_data);
            frame::write_integers(kind::MAX_DATA, [self.announced_data], buffer);
            return Some(StreamControl::MaxData);
        }
        for direction in Dir::ALL {
            let index = direction as usize;
            if let (Some(is_pending), Some(most), Some(announced)) = (
                self.is_max_streams_pending.get_mut(index),
                self.max_remote.get(index),
                self.announced_remote.get_mut(index),
            ) && std::mem::take(is_pending)
            {
                *announced = *most;
                let kind = match direction {
                    Dir::Bi => kind::MAX_STREAMS_BIDI,
                    Dir::Uni => kind::MAX_STREAMS_UNI,
                };
                frame::write_integers(kind, [*most], buffer);
                return Some(StreamControl::MaxStreams(direction));
            }
        }
        // The newest first, as `pop` costs nothing. The order has no meaning: each frame has its own stream.
        while let Some(control) = self.pending.pop() {
            if self.write_pending(control, buffer) {
                return Some(control);
            }
        }
        self.pending.shrink_to(4);
        None
    }

    /// Writes a frame, unless it has become needless.
    fn write_pending(&mut self, control: StreamControl, buffer: &mut Vec<u8>) -> bool {
        match control {
            StreamControl::MaxData | StreamControl::MaxStreams(_) => false,
            StreamControl::MaxStreamData(id) => {
                let window = self.settings.stream_receive_window;
                let Some(receive) = self.receive_half(id) else {
                    return false;
                };
                receive.is_credit_pending = false;
                if receive.is_final_size_known() || receive.is_stopped {
                    return false;
                }
                let most = (receive.assembler.bytes_read() + window).min(varint::MAX);
                receive.announced = most.max(receive.announced);
                let announced = receive.announced;
                frame::write_integers(kind::MAX_STREAM_DATA, [id.into(), announced], buffer);
                true
            }
            StreamControl::ResetStream(id) => {
                let Some(send) = self.send_half(id) else {
                    return false;
                };
                let SendHalfState::Reset { code, final_size } = send.state else {
                    return false;
                };
                frame::write_integers(kind::RESET_STREAM, [id.into(), code, final_size], buffer);
                true
            }
            StreamControl::DataBlocked => {
                let is_needed = self.is_at_data_limit();
                if is_needed {
                    frame::write_integers(kind::DATA_BLOCKED, [self.max_data], buffer);
                }
                is_needed
            }
            StreamControl::StreamDataBlocked(id) => {
                let Some(send) = self.send_half(id) else {
                    return false;
                };
                send.is_blocked_pending = false;
                let is_needed = send.is_at_limit();
                if is_needed {
                    let limit = send.max_data;
                    frame::write_integers(kind::STREAM_DATA_BLOCKED, [id.into(), limit], buffer);
                }
                is_needed
            }
            StreamControl::StreamsBlocked(direction) => {
                let index = direction as usize;
                let limit = self.max_local.get(index).copied().unwrap_or(0);
                let is_needed = self.is_open_blocked.get(index) == Some(&true);
                if is_needed {
                    let kind = match direction {
                        Dir::Bi => kind::STREAMS_BLOCKED_BIDI,
                        Dir::Uni => kind::STREAMS_BLOCKED_UNI,
                    };
                    frame::write_integers(kind, [limit], buffer);
                }
                is_needed
            }
            StreamControl::StopSending { stream, code } => {
                let is_needed = self
                    .receive_half(stream)
                    .is_some_and(|receive| !receive.is_final_size_known());
                if is_needed {
                    frame::write_integers(kind::STOP_SENDING, [stream.into(), code], buffer);
                }
                is_needed
            }
        }
    }

    /// Writes the next STREAM frame, unless the buffer would be longer than `end`. If it fills the packet, it has no
    /// length.
    #[inline]
    pub(crate) fn write_data(&mut self, end: usize, buffer: &mut Vec<u8>) -> Option<StreamRecord> {
        while let Some(id) = self.queue.front() {
            let Some(send) = self.send_half(id).filter(|send| send.has_pending()) else {
                self.end_turn(id);
                continue;
            };
            // A stream sends all that was queued when its turn began. Turns of one packet cost 25 to 35% more CPU
            // time, and finish no response earlier but the last.
            let turn_end = *send.turn_end.get_or_insert(send.buffer.end());
            if send.buffer.unsent() >= turn_end
                && turn_end < send.buffer.end()
                && !send.buffer.has_lost()
            {
                // What was queued at its turn is sent: it goes behind the others.
                send.turn_end = None;
                let priority = send.priority;
                self.queue.pop_front();
                self.queue.push_back(priority, id);
                continue;
            }
            let offset = send.buffer.next_offset();
            let header = frame::stream_header_size(id, offset);
            let room = (end as u64).checked_sub((buffer.len() + header) as u64)?;
            let is_end = |most: u64| send.buffer.end() - offset <= most;
            if room < MIN_DATA && !is_end(room) {
                return None;
            }
            let range = send.buffer.take_next(room);
            let length = range.end - range.start;
            let fin = matches!(send.state, SendHalfState::Finished { .. })
                && range.end == send.buffer.end();
            let left = room - length;
            // Without a length, the frame extends to the end of the packet. Where the length itself has no room, PADDING
            // stands before the frame.
            let has_length = left >= varint::size(length) as u64;
            if !has_length {
                buffer.resize(buffer.len() + left as usize, kind::PADDING);
            }
            frame::write_stream_header(id, range.start, has_length.then_some(length), fin, buffer);
            send.buffer.copy(range.clone(), buffer);
            if fin && let SendHalfState::Finished { is_pending, .. } = &mut send.state {
                *is_pending = false;
            }
            if !send.has_pending() {
                self.end_turn(id);
            }
            return Some(StreamRecord {
                stream: id.into(),
                offset: range.start,
                length: length as u16,
                fin,
            });
        }
        None
    }

    /// The stream at the front of the queue has nothing more to send.
    #[inline]
    fn end_turn(&mut self, id: StreamId) {
        self.queue.pop_front();
        if let Some(send) = self.send_half(id) {
            send.is_queued = false;
            send.turn_end = None;
        }
    }
}
