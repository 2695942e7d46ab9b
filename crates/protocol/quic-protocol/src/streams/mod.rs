//! Streams and flow control (RFC 9000 sections 2 to 4).
//!
//! What a peer can make this hold is bounded: received data by the limits that were announced, sent data by the send
//! window, the number of streams by MAX_STREAMS, and the frames that wait to be sent by the number of streams.

mod peer;
mod receive;
mod schedule;
mod send;
mod send_buffer;
mod table;
mod write;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::frame::MAX_STREAM_COUNT;
use crate::stream_id::{Dir, Side, StreamId};
use crate::transport_parameters::TransportParameters;
use crate::varint;

use receive::ReceiveHalf;
use schedule::SendQueue;
use send::{SendHalf, SendHalfState};
use table::StreamsOfKind;

pub(crate) use send_buffer::RetransmitBuffer;
pub(crate) use write::{StreamControl, StreamRecord};

/// Times the send window that a stream may hold in memory while something in the middle of it is not acknowledged.
// Acknowledged data behind a gap is held too, as it is in the same chunks. A peer that never acknowledges the first
// packet of a stream would otherwise make a response of any length stay in memory.
const HELD_WINDOWS: u64 = 4;

/// What happens on streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer opened a stream, which may have data.
    Opened(StreamId),
    /// A stream has data, its end, or a reset.
    Readable(StreamId),
    /// A stream on which a write was blocked takes data again.
    Writable(StreamId),
    /// The peer has acknowledged all data of a finished stream.
    Finished(StreamId),
    /// The peer asks to stop sending on a stream (RFC 9000 section 3.5). The stream was reset, and is over.
    Stopped {
        /// The stream.
        stream: StreamId,
        /// The error code of the application.
        code: u64,
    },
    /// A stream of this direction can be opened, after it could not.
    Available(Dir),
}

/// Why data cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamWriteError {
    /// The peer does not read the stream.
    Stopped {
        /// The error code of the application.
        code: u64,
    },
    /// The stream is not open for writing.
    Closed,
}

/// Why data cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamReadError {
    /// The peer reset the stream.
    Reset {
        /// The error code of the application.
        code: u64,
    },
    /// The stream is not open for reading.
    Closed,
}

/// The state of a stream after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// No more data has come. An event follows when there is some.
    Blocked,
    /// The limit is reached. There may be more data; no event follows until it is read.
    Limited,
    /// All data of the stream has been read. The stream is over.
    Finished,
}

/// The limits of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSettings {
    /// Bytes that the peer may send over all streams before they are read.
    pub(crate) receive_window: u64,
    /// Bytes that the peer may send over one stream before they are read.
    pub(crate) stream_receive_window: u64,
    /// Bytes that may be written over all streams before the peer acknowledges them.
    pub(crate) send_window: u64,
    pub(crate) max_bidi: u64,
    pub(crate) max_uni: u64,
}

/// The state of a stream. A half is `None` when it is over, or never existed.
#[derive(Debug)]
struct Stream {
    send: Option<SendHalf>,
    receive: Option<ReceiveHalf>,
}

/// All streams of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    settings: StreamSettings,
    /// By the two least significant bits of their IDs.
    tables: [StreamsOfKind<Stream>; 4],
    queue: SendQueue,
    events: VecDeque<StreamEvent>,
    /// The initial limits of the peer for the data of a stream.
    peer_bidi_local: u64,
    peer_bidi_remote: u64,
    peer_uni: u64,
    /// The limit of the peer for all data, and how much was written.
    max_data: u64,
    data_written: u64,
    /// Bytes that were written and are not acknowledged.
    unacknowledged: u64,
    /// Whether DATA_BLOCKED was or will be sent for this limit.
    is_data_limit_told: bool,
    /// The limits of the peer for the streams of each direction that this end opens.
    max_local: [u64; 2],
    /// Whether the application could not open a stream.
    is_open_blocked: [bool; 2],
    /// Streams whose writes wait for the limits of the connection.
    connection_blocked: Vec<StreamId>,
    /// What was received and read of all streams, and the limit that the peer knows.
    data_received: u64,
    data_read: u64,
    announced_data: u64,
    /// The limits for the streams of each direction that the peer opens, and those that it knows.
    max_remote: [u64; 2],
    announced_remote: [u64; 2],
    /// Frames to send.
    is_max_data_pending: bool,
    is_max_streams_pending: [bool; 2],
    pending: Vec<StreamControl>,
    /// Sending halves that are not over.
    sending: usize,
    /// The memory of data that was received and not read, in bytes.
    memory: usize,
}

impl Streams {
    pub(crate) fn new(side: Side, settings: StreamSettings) -> Self {
        let max_remote =
            [settings.max_bidi, settings.max_uni].map(|most| most.min(MAX_STREAM_COUNT));
        Self {
            side,
            tables: Default::default(),
            queue: SendQueue::default(),
            events: VecDeque::new(),
            peer_bidi_local: 0,
            peer_bidi_remote: 0,
            peer_uni: 0,
            max_data: 0,
            data_written: 0,
            unacknowledged: 0,
            is_data_limit_told: false,
            max_local: [0; 2],
            is_open_blocked: [false; 2],
            connection_blocked: Vec::new(),
            data_received: 0,
            data_read: 0,
            announced_data: settings.receive_window,
            max_remote,
            announced_remote: max_remote,
            is_max_data_pending: false,
            is_max_streams_pending: [false; 2],
            pending: Vec::new(),
            sending: 0,
            memory: 0,
            settings,
        }
    }

    /// Takes over the limits of the peer. Those that a client remembers of an earlier connection come first, and never
    /// exceed those of this one.
    pub(crate) fn set_peer_parameters(&mut self, parameters: &TransportParameters) {
        self.peer_bidi_local = parameters.max_stream_data_bidi_local;
        self.peer_bidi_remote = parameters.max_stream_data_bidi_remote;
        self.peer_uni = parameters.max_stream_data_uni;
        // The larger one: limits that a client has remembered for 0-RTT may already be used, and a limit cannot be
        // taken back.
        if parameters.max_data > self.max_data {
            self.max_data = parameters.max_data;
            self.is_data_limit_told = false;
        }
        for (direction, most) in [
            (Dir::Bi, parameters.max_streams_bidi),
            (Dir::Uni, parameters.max_streams_uni),
        ] {
            self.raise_max_local(direction, most);
            let initial = self.initial_max_data(StreamId::new(self.side, direction, 0));
            let kind = kind(self.side, direction);
            if let Some(table) = self.tables.get_mut(kind) {
                for (_, stream) in table.iter_mut() {
                    if let Some(send) = &mut stream.send {
                        send.max_data = send.max_data.max(initial);
                    }
                }
            }
        }
        self.wake_blocked();
    }

    /// The server rejected the early data: all streams are gone.
    pub(crate) fn reject_early_data(&mut self) {
        *self = Self::new(self.side, self.settings);
    }

    /// Bytes that may be written over all streams before the peer acknowledges them.
    pub(crate) fn set_send_window(&mut self, window: u64) {
        let is_larger = window > self.settings.send_window;
        self.settings.send_window = window;
        if is_larger {
            self.wake_blocked();
        }
    }

    /// Returns memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.events.shrink_to(0);
        self.pending.shrink_to(0);
        self.connection_blocked.shrink_to(0);
    }

    pub(crate) fn next_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// The sending halves that are not over.
    pub(crate) fn sending(&self) -> usize {
        self.sending
    }

    /// The memory of data that was received and not read, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Discards the data that was received and not read: the connection is over.
    pub(crate) fn discard_received(&mut self) {
        for table in &mut self.tables {
            for (_, stream) in table.iter_mut() {
                if let Some(receive) = &mut stream.receive {
                    receive.assembler.clear();
                }
            }
        }
        self.memory = 0;
    }

    /// Opens a stream, if the peer allows one more.
    pub(crate) fn open(&mut self, direction: Dir) -> Option<StreamId> {
        let most = self.max_local.get(direction as usize).copied()?;
        let table = self.tables.get_mut(kind(self.side, direction))?;
        let index = table.opened();
        if index >= most {
            // Without any streams, the transport parameters of the peer have not come, or it wants none at all.
            if let Some(is_blocked) = self.is_open_blocked.get_mut(direction as usize)
                && !std::mem::replace(is_blocked, true)
                && most > 0
            {
                self.send_once(StreamControl::StreamsBlocked(direction));
            }
            return None;
        }
        table.open_next();
        self.sending += 1;
        Some(StreamId::new(self.side, direction, index))
    }

    /// Writes as much of the chunks as the limits allow, and takes that out of them. If something is left, an event
    /// follows.
    pub(crate) fn write(
        &mut self,
        id: StreamId,
        chunks: &mut [Bytes],
    ) -> Result<usize, StreamWriteError> {
        let connection_room = (self.max_data - self.data_written).min(
            self.settings
                .send_window
                .saturating_sub(self.unacknowledged),
        );
        let most_held = self.settings.send_window.saturating_mul(HELD_WINDOWS);
        let Some(send) = self.send_half(id) else {
            return Err(StreamWriteError::Closed);
        };
        if let Some(code) = send.stopped {
            return Err(StreamWriteError::Stopped { code });
        }
        if send.state != SendHalfState::Open {
            return Err(StreamWriteError::Closed);
        }
        let stream_room = send.max_data - send.buffer.end();
        let connection_room = connection_room.min(most_held.saturating_sub(send.buffer.held()));
        let mut room = stream_room.min(connection_room);
        let before = send.buffer.end();
        let mut is_cut_short = false;
        for chunk in chunks.iter_mut().filter(|chunk| !chunk.is_empty()) {
            let length = chunk.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            if length > 0 {
                send.buffer.write(chunk.split_to(length));
                room -= length as u64;
            }
            if !chunk.is_empty() {
                is_cut_short = true;
                break;
            }
        }
        let written = send.buffer.end() - before;
        let blocks_connection = is_cut_short && connection_room <= stream_room;
        let is_newly_at_limit =
            is_cut_short && !blocks_connection && !std::mem::replace(&mut send.is_blocked, true);
        // The list has each stream once: a stream that tries again and again would otherwise let it grow.
        let is_newly_blocked = blocks_connection && !send.is_connection_blocked;
        send.is_connection_blocked |= blocks_connection;
        if is_newly_blocked {
            self.connection_blocked.push(id);
        }
        self.data_written += written;
        self.unacknowledged += written;
        if is_newly_at_limit {
            self.send_stream_data_blocked(id);
        }
        if blocks_connection
            && self.is_at_data_limit()
            && !std::mem::replace(&mut self.is_data_limit_told, true)
        {
            self.send_once(StreamControl::DataBlocked);
        }
        if written > 0 {
            self.enqueue(id);
        }
        Ok(written as usize)
    }

    /// Whether there is more to write than the limit of the peer for all data allows.
    fn is_at_data_limit(&self) -> bool {
        self.data_written == self.max_data && !self.connection_blocked.is_empty()
    }

    // The three frames by which an end tells that a limit of the peer holds it up (RFC 9000 sections 4.1 and 4.6). Some
    // receivers raise a limit when they learn of it; this end does so by what is read. Each is sent once for a limit, and
    // not again and again while nothing else is sent: what keeps a connection open is the business of the application, by
    // its idle timeout and its PINGs.

    /// Sends a frame of the connection, unless it waits already.
    fn send_once(&mut self, control: StreamControl) {
        if !self.pending.contains(&control) {
            self.pending.push(control);
        }
    }

    fn send_stream_data_blocked(&mut self, id: StreamId) {
        if let Some(send) = self.send_half(id)
            && !std::mem::replace(&mut send.is_blocked_pending, true)
        {
            self.pending.push(StreamControl::StreamDataBlocked(id));
        }
    }

    /// Ends a stream after what was written.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), StreamWriteError> {
        let send = self.send_half(id).ok_or(StreamWriteError::Closed)?;
        if let Some(code) = send.stopped {
            return Err(StreamWriteError::Stopped { code });
        }
        if send.state != SendHalfState::Open {
            return Err(StreamWriteError::Closed);
        }
        send.state = SendHalfState::Finished {
            is_pending: true,
            is_acknowledged: false,
        };
        self.enqueue(id);
        Ok(())
    }

    /// Abandons the data of a stream that this end writes.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64) -> Result<(), StreamWriteError> {
        let send = self.send_half(id).ok_or(StreamWriteError::Closed)?;
        match send.state {
            // RESET_STREAM was sent for the peer's STOP_SENDING.
            SendHalfState::Reset { .. } => match send.stopped.take() {
                Some(_) => Ok(()),
                None => Err(StreamWriteError::Closed),
            },
            SendHalfState::Open | SendHalfState::Finished { .. } => {
                self.reset_half(id, code);
                Ok(())
            }
        }
    }

    fn reset_half(&mut self, id: StreamId, code: u64) {
        let Some(send) = self.send_half(id) else {
            return;
        };
        let priority = send.priority;
        let was_queued = std::mem::take(&mut send.is_queued);
        let (dropped, unsent) = send.reset(code);
        if was_queued {
            self.queue.remove(priority, id);
        }
        self.unacknowledged -= dropped.min(self.unacknowledged);
        // What was never sent is no use of the peer's limit: others may send it in its place (RFC 9000 section 4.5
        // counts the final size, which is what was sent).
        self.data_written -= unsent.min(self.data_written);
        self.pending.push(StreamControl::ResetStream(id));
        self.wake_blocked();
    }

    /// Sets the priority of a stream that this end writes.
    pub(crate) fn set_priority(
        &mut self,
        id: StreamId,
        priority: i32,
    ) -> Result<(), StreamWriteError> {
        let send = self.send_half(id).ok_or(StreamWriteError::Closed)?;
        let before = std::mem::replace(&mut send.priority, priority);
        if send.is_queued && before != priority {
            self.queue.remove(before, id);
            self.queue.push_back(priority, id);
        }
        Ok(())
    }

    /// Passes data in order to `sink`, at most `limit` bytes.
    pub(crate) fn read(
        &mut self,
        id: StreamId,
        limit: usize,
        mut sink: impl FnMut(Bytes),
    ) -> Result<ReadState, StreamReadError> {
        let Some(receive) = self.receive_half(id).filter(|receive| !receive.is_stopped) else {
            return Err(StreamReadError::Closed);
        };
        receive.is_reported = false;
        let mut left = limit;
        let before = receive.assembler.bytes_read();
        let memory_before = receive.assembler.memory();
        let result = loop {
            if let Some(code) = receive.reset {
                break Err(StreamReadError::Reset { code });
            }
            if left == 0 {
                break Ok(ReadState::Limited);
            }
            match receive.assembler.read(left) {
                Some(data) => {
                    left -= data.len();
                    sink(data);
                }
                None if receive.is_at_end() => break Ok(ReadState::Finished),
                None => break Ok(ReadState::Blocked),
            }
        };
        let mut read = receive.assembler.bytes_read() - before;
        let freed = memory_before.saturating_sub(receive.assembler.memory());
        let is_over = !matches!(result, Ok(ReadState::Limited | ReadState::Blocked));
        if is_over {
            // What a reset leaves out was never read.
            read += receive.unread();
            self.end_receiving(id);
        } else {
            self.announce_stream_data(id);
        }
        self.memory = self.memory.saturating_sub(freed);
        self.credit(read);
        result
    }

    /// Discards what comes on a stream, and asks the peer to stop.
    pub(crate) fn stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), StreamReadError> {
        let receive = self
            .receive_half(id)
            .filter(|receive| !receive.is_stopped)
            .ok_or(StreamReadError::Closed)?;
        receive.is_stopped = true;
        let unread = receive.unread();
        let freed = receive.assembler.memory();
        receive.assembler.clear();
        if receive.is_final_size_known() {
            self.end_receiving(id);
        } else {
            self.pending
                .push(StreamControl::StopSending { stream: id, code });
        }
        self.memory = self.memory.saturating_sub(freed);
        self.credit(unread);
        Ok(())
    }

    /// Data was read or discarded: the peer may send as much again.
    fn credit(&mut self, bytes: u64) {
        self.data_read += bytes;
        let grown = self.next_max_data().saturating_sub(self.announced_data);
        // A MAX_DATA for each read would be a frame in nearly each packet of an upload; with half of the window, the
        // sender of a long path may run into the limit before the frame arrives.
        if grown > 0 && grown >= self.settings.receive_window / 8 {
            self.is_max_data_pending = true;
        }
    }

    fn next_max_data(&self) -> u64 {
        (self.data_read + self.settings.receive_window).min(varint::MAX)
    }

    fn announce_stream_data(&mut self, id: StreamId) {
        let window = self.settings.stream_receive_window;
        let Some(receive) = self.receive_half(id) else {
            return;
        };
        let most = receive.assembler.bytes_read() + window;
        let grown = most.saturating_sub(receive.announced);
        let is_due = grown > 0 && grown >= window / 8 && !receive.is_final_size_known();
        if is_due && !std::mem::replace(&mut receive.is_credit_pending, true) {
            self.pending.push(StreamControl::MaxStreamData(id));
        }
    }

    fn raise_max_local(&mut self, direction: Dir, most: u64) {
        let Some(max) = self.max_local.get_mut(direction as usize) else {
            return;
        };
        if most <= *max {
            return;
        }
        *max = most;
        if let Some(is_blocked) = self.is_open_blocked.get_mut(direction as usize)
            && std::mem::take(is_blocked)
        {
            self.events.push_back(StreamEvent::Available(direction));
        }
    }

    /// Tells the application which streams take data again.
    fn wake_blocked(&mut self) {
        if self.connection_blocked.is_empty() || !self.has_connection_room() {
            return;
        }
        // All of them are told, although there may be room for one: who comes first is the schedule's business, not
        // this list's.
        for id in std::mem::take(&mut self.connection_blocked) {
            let Some(send) = self.send_half(id) else {
                continue;
            };
            send.is_connection_blocked = false;
            if send.state == SendHalfState::Open && send.buffer.end() < send.max_data {
                self.events.push_back(StreamEvent::Writable(id));
            } else if send.state == SendHalfState::Open
                && !std::mem::replace(&mut send.is_blocked, true)
            {
                self.send_stream_data_blocked(id);
            }
        }
    }

    fn has_connection_room(&self) -> bool {
        self.max_data > self.data_written && self.settings.send_window > self.unacknowledged
    }

    /// Puts a stream that has something to send into the queue.
    fn enqueue(&mut self, id: StreamId) {
        if let Some(send) = self.send_half(id)
            && !std::mem::replace(&mut send.is_queued, true)
        {
            send.turn_end = None;
            let priority = send.priority;
            self.queue.push_back(priority, id);
        }
    }

    /// The sending half of a stream is over.
    fn end_sending(&mut self, id: StreamId) {
        if let Some(stream) = self.stream(id)
            && stream.send.take().is_some()
        {
            self.sending -= 1;
            self.close_if_over(id);
        }
    }

    /// The receiving half of a stream is over.
    fn end_receiving(&mut self, id: StreamId) {
        if let Some(stream) = self.stream(id)
            && let Some(receive) = stream.receive.take()
        {
            self.memory = self.memory.saturating_sub(receive.assembler.memory());
            self.close_if_over(id);
        }
    }

    fn close_if_over(&mut self, id: StreamId) {
        let is_over = self
            .stream(id)
            .is_some_and(|stream| stream.send.is_none() && stream.receive.is_none());
        let Some(table) = self.tables.get_mut(kind_of(id)).filter(|_| is_over) else {
            return;
        };
        table.close(id.index());
        if id.initiator() != self.side {
            let direction = id.dir() as usize;
            let most = match id.dir() {
                Dir::Bi => self.settings.max_bidi,
                Dir::Uni => self.settings.max_uni,
            };
            if let (Some(max), Some(announced), Some(is_pending)) = (
                self.max_remote.get_mut(direction),
                self.announced_remote.get(direction),
                self.is_max_streams_pending.get_mut(direction),
            ) {
                *max = (*max + 1).min(MAX_STREAM_COUNT);
                // In eighths as well, so that not each request costs a frame.
                *is_pending |= *max - *announced > most / 8;
            }
        }
    }

    fn initial_max_data(&self, id: StreamId) -> u64 {
        match (id.dir(), id.initiator() == self.side) {
            (Dir::Uni, _) => self.peer_uni,
            (Dir::Bi, true) => self.peer_bidi_remote,
            (Dir::Bi, false) => self.peer_bidi_local,
        }
    }

    /// An open stream.
    #[inline]
    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        let is_local = id.initiator() == self.side;
        let max_data = self.initial_max_data(id);
        let window = self.settings.stream_receive_window;
        let table = self.tables.get_mut(kind_of(id))?;
        table.get_or_create(id.index(), || Stream {
            send: (is_local || id.dir() == Dir::Bi).then(|| SendHalf::new(max_data)),
            receive: (!is_local || id.dir() == Dir::Bi).then(|| ReceiveHalf::new(window)),
        })
    }

    #[inline]
    fn send_half(&mut self, id: StreamId) -> Option<&mut SendHalf> {
        self.stream(id)?.send.as_mut()
    }

    #[inline]
    fn receive_half(&mut self, id: StreamId) -> Option<&mut ReceiveHalf> {
        self.stream(id)?.receive.as_mut()
    }
}

/// The index of the table of a kind of streams.
fn kind(initiator: Side, direction: Dir) -> usize {
    kind_of(StreamId::new(initiator, direction, 0))
}

#[inline]
fn kind_of(id: StreamId) -> usize {
    (u64::from(id) & 3) as usize
}

#[cfg(test)]
mod tests;
