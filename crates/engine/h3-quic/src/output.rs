//! The output of an HTTP/3 connection: what the codec encodes, on its way to QUIC.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use apus_h3::{
    ExpectedBody, H3Connection, LocalStream, OutgoingRequest, Priority, RequestError, SendOrder,
    StreamAction, StreamKey,
};
use apus_http::{Headers, ResponseHead, StatusCode};
use apus_quic::{Dir, QuicConnection, StreamError, StreamId};
use bytes::Bytes;

use crate::stream_id::stream_id;

/// A chunk up to this size is copied behind the header of its frame; a larger one is sent from where it is.
const MAX_COPY: usize = 1024;

/// The most bytes of a body that are sent before other streams are looked at, and that are read of a file at once.
pub const CHUNK: usize = 64 * 1024;

/// The most streams with output that QUIC does not take, up to which heads that nobody waits for are sent.
const MAX_BLOCKED: usize = 64;

/// The priority of the control and QPACK streams, which is above the priority of any message.
const LOCAL_PRIORITY: i32 = 1;

/// The bits of a priority below the urgency.
const ORDER_BITS: u32 = 27;

/// The codec of a connection, QUIC under it, and the output of all streams.
///
/// Output is written to QUIC until its windows are full. The rest of a stream is kept, and the stream is scheduled again
/// when QUIC has taken that.
pub struct Http3Transport {
    /// The codec.
    pub codec: H3Connection,
    /// QUIC.
    pub quic: QuicConnection,
    /// The control and QPACK streams, once they are open.
    local: Vec<(LocalStream, StreamId)>,
    /// The encoded frames of one stream, to be sent with its next chunk.
    head: Option<StreamKey>,
    frames: Vec<u8>,
    /// The priority of that stream.
    priority: i32,
    /// How often a stream began to send a chunk.
    turn: u32,
    /// The output that QUIC does not take yet, by stream.
    blocked: HashMap<u64, BlockedOutput>,
    /// The streams of which QUIC takes more.
    writable: Vec<u64>,
    /// The streams whose kept input can be handled now.
    resumed: Vec<u64>,
    /// Bytes that QUIC took since this was read last.
    written: usize,
}

/// The output of one stream that QUIC does not take yet.
struct BlockedOutput {
    stream: StreamKey,
    chunks: VecDeque<Bytes>,
    /// Whether the stream ends after it.
    end: bool,
    /// The priority of the stream.
    priority: i32,
    /// Whether the stream has more to send.
    wants_more: bool,
    /// The tick at which it was looked at last.
    examined_at: Option<u32>,
    /// The bytes that QUIC took since then.
    taken: usize,
}

impl Http3Transport {
    /// A connection over which nothing was sent.
    pub fn new(codec: H3Connection, quic: QuicConnection) -> Self {
        Self {
            codec,
            quic,
            local: Vec::new(),
            head: None,
            frames: Vec::new(),
            priority: 0,
            turn: 0,
            blocked: HashMap::new(),
            writable: Vec::new(),
            resumed: Vec::new(),
            written: 0,
        }
    }

    /// Gives QUIC what was encoded, and does what the codec requests. `on_reset` gets the streams whose output is dropped
    /// because they are reset.
    pub fn flush(&mut self, mut on_reset: impl FnMut(u64)) {
        self.flush_local();
        self.flush_head();
        while let Some(action) = self.codec.next_action() {
            match action {
                StreamAction::Reset { id, code } => {
                    self.forget_output(id);
                    on_reset(id);
                    // It may be complete already.
                    let _ = self.quic.reset(stream_id(id), code.0);
                }
                StreamAction::StopSending { id, code } => {
                    let _ = self.quic.stop_sending(stream_id(id), code.0);
                }
                StreamAction::Resume { id } => self.resumed.push(id),
            }
        }
    }

    /// Sends the output of the control and QPACK streams, which are opened first.
    fn flush_local(&mut self) {
        while let Some(kind) = LocalStream::ALL.get(self.local.len()) {
            let Some(id) = self.quic.open(Dir::Uni) else {
                break;
            };
            let _ = self.quic.set_priority(id, LOCAL_PRIORITY);
            self.local.push((*kind, id));
        }
        for (kind, id) in &self.local {
            let output = self.codec.output(*kind);
            if output.is_empty() {
                continue;
            }
            let mut chunk = [Bytes::copy_from_slice(output)];
            if let Ok(written) = self.quic.write(*id, &mut chunk) {
                output.drain(..written);
            }
        }
    }

    /// Sends the frames of a stream without a further chunk.
    fn flush_head(&mut self) {
        if let Some(stream) = self.head {
            self.send(stream, Bytes::new(), false);
        }
    }

    /// Begins to add frames of a stream, which are sent with its next chunk.
    fn begin(&mut self, stream: StreamKey) {
        if self.head != Some(stream) {
            self.flush_head();
            self.head = Some(stream);
            self.set_priority(stream);
        }
    }

    /// Sends a request on a new stream of QUIC (at a client), and with `end` the end of the stream.
    ///
    /// # Errors
    /// As [`H3Connection::send_request`].
    pub fn send_request(
        &mut self,
        id: StreamId,
        head: OutgoingRequest<'_>,
        end: bool,
    ) -> Result<StreamKey, RequestError> {
        self.flush_head();
        let number = crate::number_of(id);
        let stream = self
            .codec
            .send_request(number, head, end, &mut self.frames)?;
        self.head = Some(stream);
        self.set_priority(stream);
        if end {
            self.send(stream, Bytes::new(), true);
        }
        Ok(stream)
    }

    /// Sends the head of a response (at a server); returns what body it has, and how many bytes it took.
    pub fn send_head(&mut self, stream: StreamKey, head: ResponseHead<'_>) -> (ExpectedBody, u64) {
        self.begin(stream);
        let before = self.frames.len();
        let expected = self.codec.send_head(stream, head, &mut self.frames);
        let bytes = (self.frames.len() - before) as u64;
        if expected == ExpectedBody::None {
            self.send(stream, Bytes::new(), true);
        }
        (expected, bytes)
    }

    /// Sends an interim response (at a server).
    pub fn send_informational(&mut self, stream: StreamKey, status: StatusCode, headers: &Headers) {
        self.begin(stream);
        self.codec
            .send_informational(stream, status, headers, &mut self.frames);
    }

    /// Schedules a stream that has data to send, as soon as QUIC has taken what was sent before.
    pub fn want_send(&mut self, stream: StreamKey) {
        match self.blocked.get_mut(&stream.id()) {
            Some(output) => output.wants_more = true,
            None => self.codec.want_send(stream),
        }
    }

    /// Sends a chunk of a body, and with `end` the end of the stream. Returns the bytes of its framing.
    pub fn send_bytes(&mut self, stream: StreamKey, chunk: Bytes, end: bool) -> u64 {
        self.begin(stream);
        let before = self.frames.len();
        let is_open = self
            .codec
            .send_data(stream, chunk.len(), end, &mut self.frames);
        let framing = (self.frames.len() - before) as u64;
        if is_open {
            self.send(stream, chunk, end);
        }
        framing
    }

    /// Sends the trailer section, and ends the stream. Returns the bytes that it took.
    pub fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers) -> u64 {
        self.begin(stream);
        let before = self.frames.len();
        self.codec.send_trailers(stream, trailers, &mut self.frames);
        let bytes = (self.frames.len() - before) as u64;
        self.send(stream, Bytes::new(), true);
        bytes
    }

    /// Sends the frames of a stream and a chunk, and with `end` the end of the stream.
    fn send(&mut self, stream: StreamKey, chunk: Bytes, end: bool) {
        self.head = None;
        let mut chunks = [Bytes::new(), Bytes::new()];
        let [first, second] = &mut chunks;
        if chunk.len() <= MAX_COPY {
            self.frames.extend_from_slice(&chunk);
        } else {
            *second = chunk;
        }
        *first = Bytes::copy_from_slice(&self.frames);
        self.frames.clear();
        match self.blocked.get_mut(&stream.id()) {
            Some(output) => {
                let more = chunks.into_iter().filter(|chunk| !chunk.is_empty());
                output.chunks.extend(more);
                output.end |= end;
            }
            None => self.write(stream, chunks, end),
        }
    }

    fn write(&mut self, stream: StreamKey, mut chunks: [Bytes; 2], end: bool) {
        let id = stream_id(stream.id());
        match write_all(&self.quic, id, &mut chunks, &mut self.written) {
            // The event that the stream is over follows, or has come.
            Err(_) => {}
            Ok(true) => {
                if end {
                    let _ = self.quic.finish(id);
                }
            }
            Ok(false) => {
                let rest = chunks.into_iter().filter(|chunk| !chunk.is_empty());
                let output = BlockedOutput {
                    stream,
                    chunks: rest.collect(),
                    end,
                    priority: self.priority,
                    wants_more: false,
                    examined_at: None,
                    taken: 0,
                };
                self.blocked.insert(stream.id(), output);
            }
        }
    }

    /// Notes that QUIC takes more of a stream; returns the stream if it has more.
    pub fn note_writable(&mut self, id: u64) -> Option<StreamKey> {
        let output = self.blocked.get(&id)?;
        self.writable.push(id);
        Some(output.stream)
    }

    /// Continues the streams of which QUIC takes more, the most urgent first: each takes what the window of the
    /// connection has left.
    pub fn continue_outputs(&mut self) {
        let mut writable = std::mem::take(&mut self.writable);
        writable.sort_unstable_by_key(|id| {
            let output = self.blocked.get(id);
            (Reverse(output.map(|output| output.priority)), *id)
        });
        for id in writable.drain(..) {
            self.continue_output(id);
        }
        self.writable = writable;
    }

    fn continue_output(&mut self, id: u64) {
        let Some(output) = self.blocked.get_mut(&id) else {
            return;
        };
        let chunks = output.chunks.make_contiguous();
        let before = self.written;
        let result = write_all(&self.quic, stream_id(id), chunks, &mut self.written);
        let taken = self.written.saturating_sub(before);
        output.taken = output.taken.saturating_add(taken);
        match result {
            Ok(false) => output.chunks.retain(|chunk| !chunk.is_empty()),
            Ok(true) => {
                if let Some(output) = self.blocked.remove(&id) {
                    if output.end {
                        let _ = self.quic.finish(stream_id(id));
                    }
                    if output.wants_more {
                        self.codec.want_send(output.stream);
                    }
                }
            }
            Err(_) => {
                self.blocked.remove(&id);
            }
        }
    }

    /// Has QUIC send the next data of a stream by its priority.
    pub fn set_priority(&mut self, stream: StreamKey) {
        self.turn = self.turn.wrapping_add(1);
        self.priority = priority_of(stream, self.codec.priority(stream), self.turn);
        let _ = self
            .quic
            .set_priority(stream_id(stream.id()), self.priority);
        if let Some(output) = self.blocked.get_mut(&stream.id()) {
            output.priority = self.priority;
        }
    }

    /// The bytes that QUIC took since the last call.
    pub fn take_written(&mut self) -> usize {
        std::mem::take(&mut self.written)
    }

    /// Whether the peer has all that was sent. The control and QPACK streams do not end.
    pub fn is_acknowledged(&self) -> bool {
        self.blocked.is_empty() && self.quic.unacknowledged_streams() == 0
    }

    /// Drops what a stream has to send; returns whether there was anything that QUIC did not take.
    pub fn forget_output(&mut self, id: u64) -> bool {
        if self.head.is_some_and(|head| head.id() == id) {
            self.head = None;
            self.frames.clear();
        }
        self.blocked.remove(&id).is_some()
    }

    /// The streams that are complete here, and of which QUIC took less than `least` bytes since the tick `oldest`; and
    /// the tick since which another waits.
    pub fn stalled(&mut self, now: u32, oldest: u32, least: usize) -> (Vec<u64>, Option<u32>) {
        let mut stalled = Vec::new();
        let mut earliest = None;
        for (id, output) in &mut self.blocked {
            let mut since = *output.examined_at.get_or_insert(now);
            if since <= oldest && output.end && output.taken < least {
                stalled.push(*id);
                continue;
            }
            if since <= oldest {
                since = now;
                output.examined_at = Some(now);
                output.taken = 0;
            }
            earliest = Some(earliest.map_or(since, |known: u32| known.min(since)));
        }
        (stalled, earliest)
    }

    /// The bytes of a stream that QUIC does not take yet.
    pub fn blocked_bytes(&self, stream: StreamKey) -> usize {
        let output = self.blocked.get(&stream.id());
        output.map_or(0, |output| output.chunks.iter().map(Bytes::len).sum())
    }

    /// Whether QUIC takes nothing of this stream now.
    pub fn is_blocked(&self, stream: StreamKey) -> bool {
        self.blocked.contains_key(&stream.id())
    }

    /// Whether QUIC takes nothing of some stream.
    pub fn is_any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Whether QUIC takes enough, so that heads that nobody waits for can be sent.
    pub fn has_room(&self) -> bool {
        self.blocked.len() < MAX_BLOCKED
    }

    /// Takes a stream whose kept input can be handled now.
    pub(crate) fn next_resumed(&mut self) -> Option<u64> {
        self.resumed.pop()
    }

    pub(crate) fn is_any_resumed(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// Releases memory, while no stream is open.
    pub fn shrink(&mut self) {
        self.codec.release_memory();
        self.frames = Vec::new();
        self.blocked.shrink_to_fit();
        self.writable = Vec::new();
        self.resumed = Vec::new();
    }
}

/// The priority of the next data of a message for QUIC (RFC 9218 section 4): by urgency; then complete messages in the
/// order of their requests; then those that are sent in turns, chunk by chunk in the order of the turns.
fn priority_of(stream: StreamKey, priority: Priority, turn: u32) -> i32 {
    let sequential = 1 << (ORDER_BITS - 1);
    let order = match priority.order {
        SendOrder::Sequential => ((stream.id() >> 2) as i32).rem_euclid(sequential),
        SendOrder::Interleaved => sequential + (turn as i32).rem_euclid(sequential),
    };
    -(i32::from(priority.urgency) << ORDER_BITS) - order
}

/// Writes as much of the chunks as QUIC takes; returns whether it took all. Otherwise it reports when it takes more.
fn write_all(
    quic: &QuicConnection,
    stream: StreamId,
    chunks: &mut [Bytes],
    total: &mut usize,
) -> Result<bool, StreamError> {
    *total += quic.write(stream, chunks)?;
    Ok(chunks.iter().all(Bytes::is_empty))
}
