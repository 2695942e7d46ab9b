//! The input of an HTTP/3 connection: the data of its streams, which is read from QUIC when their bodies are read.

use std::collections::{HashMap, VecDeque};

use apus_h3::{H3Error, H3ErrorCode, H3Event};
use apus_quic::{StreamError, StreamRead};
use bytes::Bytes;

use crate::output::Http3Transport;
use crate::stream_id::stream_id;

/// The most bytes of a body that its reader has not read. Past it the stream is not read, so that its window closes.
pub const MAX_UNREAD: usize = 64 * 1024;

/// The tick of what is not incomplete.
const NEVER: u32 = u32::MAX;

/// The streams that have input, and what waits of it.
#[derive(Default)]
pub struct Http3Input {
    /// The streams that may have data to read, and how many of them are read in this round.
    readable: VecDeque<u64>,
    round: usize,
    /// The streams of which something waits.
    waiting: HashMap<u64, StreamInput>,
    /// The stream that is handled, with its chunks.
    current: Option<CurrentInput>,
    chunks: VecDeque<Bytes>,
    /// Bytes that were read since this was asked last.
    read: usize,
    /// Whether all that QUIC has is read, because the connection has ended.
    is_unlimited: bool,
}

/// What waits of the input of one stream.
struct StreamInput {
    /// Bytes of the body that were not read.
    unread: usize,
    /// Whether the stream may have data that is not read, because of these bytes or the blocked ones.
    is_paused: bool,
    /// Input behind a field section that waits for inserts into the QPACK table.
    blocked: Option<BlockedInput>,
    /// The tick since which a head, a field section or the type of a stream is incomplete.
    incomplete_since: u32,
}

struct BlockedInput {
    chunks: VecDeque<Bytes>,
    /// Whether the stream ends after it.
    end: bool,
}

#[derive(Clone, Copy)]
struct CurrentInput {
    id: u64,
    /// Whether the stream ends after its chunks.
    end: bool,
    /// Whether the stream may have more data than its chunks.
    has_more: bool,
}

impl StreamInput {
    const NONE: Self = Self {
        unread: 0,
        is_paused: false,
        blocked: None,
        incomplete_since: NEVER,
    };

    fn is_full(&self) -> bool {
        self.unread >= MAX_UNREAD || self.blocked.is_some()
    }

    /// Whether it says no more than no entry does.
    fn is_none(&self) -> bool {
        let waits = self.is_paused || self.blocked.is_some() || self.incomplete_since != NEVER;
        self.unread == 0 && !waits
    }
}

impl Http3Input {
    /// Notes that a stream may have data.
    pub fn note_readable(&mut self, id: u64) {
        self.readable.push_back(id);
    }

    /// Notes that bytes of a body were read.
    pub fn note_consumed(&mut self, id: u64, bytes: usize) {
        let Some(input) = self.waiting.get_mut(&id) else {
            return;
        };
        input.unread = input.unread.saturating_sub(bytes);
        if input.is_paused && !input.is_full() {
            input.is_paused = false;
            self.readable.push_back(id);
        }
        if input.is_none() {
            self.waiting.remove(&id);
        }
    }

    /// Drops what waits of a stream that was closed.
    pub fn forget(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    /// Reads from now on all that QUIC has, also of bodies that are not read: the connection has ended.
    pub fn read_all(&mut self) {
        self.is_unlimited = true;
        for (id, input) in &mut self.waiting {
            if std::mem::take(&mut input.is_paused) {
                self.readable.push_back(*id);
            }
        }
    }

    /// Whether there may be an event.
    pub fn is_due(&self, transport: &Http3Transport) -> bool {
        self.current.is_some() || !self.readable.is_empty() || transport.is_any_resumed()
    }

    /// Begins a round, in which [`Self::next_event`] reads each stream once: what is left of one waits for the others.
    pub fn begin_round(&mut self) {
        self.round = self.readable.len();
    }

    /// The next event of the codec; `None` at the end of the round. `now` is the current tick.
    ///
    /// # Errors
    /// The connection has to be closed with the code of the error.
    pub fn next_event(
        &mut self,
        transport: &mut Http3Transport,
        now: u32,
    ) -> Option<Result<H3Event, H3Error>> {
        loop {
            if let Some(event) = self.handle_current(transport, now) {
                return Some(event);
            }
            if let Some(id) = transport.next_resumed() {
                self.resume(id);
                continue;
            }
            self.round = self.round.checked_sub(1)?;
            let id = self.readable.pop_front()?;
            if let Some(event) = self.read_stream(transport, id) {
                return Some(event);
            }
        }
    }

    /// Passes the chunks of the current stream to the codec, up to an event.
    fn handle_current(
        &mut self,
        transport: &mut Http3Transport,
        now: u32,
    ) -> Option<Result<H3Event, H3Error>> {
        let current = self.current?;
        let CurrentInput { id, end, has_more } = current;
        loop {
            let is_last = end && self.chunks.len() == 1;
            let Some(chunk) = self.chunks.front_mut() else {
                break;
            };
            match transport.codec.handle_stream(id, chunk, is_last) {
                Ok(H3Event::Incomplete) => {
                    self.chunks.pop_front();
                }
                Ok(H3Event::Blocked) => {
                    self.current = None;
                    let chunks = std::mem::take(&mut self.chunks);
                    let input = self.entry(id);
                    input.blocked = Some(BlockedInput { chunks, end });
                    input.is_paused |= has_more;
                    input.incomplete_since = input.incomplete_since.min(now);
                    return None;
                }
                Ok(event) => {
                    if let H3Event::Data {
                        data, end: false, ..
                    } = &event
                    {
                        self.entry(id).unread += data.len();
                    }
                    return Some(Ok(event));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.current = None;
        self.note_incomplete(transport, current, now);
        if has_more {
            match self.waiting.get_mut(&id) {
                Some(input) if input.is_full() && !self.is_unlimited => input.is_paused = true,
                _ => self.readable.push_back(id),
            }
        }
        None
    }

    /// Notes whether a head of a stream is incomplete.
    fn note_incomplete(&mut self, transport: &Http3Transport, current: CurrentInput, now: u32) {
        let id = current.id;
        if current.end {
            self.waiting.remove(&id);
        } else if transport.codec.is_inside_head(id) {
            let input = self.entry(id);
            input.incomplete_since = input.incomplete_since.min(now);
        } else if let Some(input) = self.waiting.get_mut(&id) {
            input.incomplete_since = NEVER;
            if input.is_none() {
                self.waiting.remove(&id);
            }
        }
    }

    /// Continues with a stream whose field section has its inserts.
    fn resume(&mut self, id: u64) {
        if let Some(input) = self.waiting.get_mut(&id)
            && let Some(blocked) = input.blocked.take()
        {
            self.chunks = blocked.chunks;
            self.current = Some(CurrentInput {
                id,
                end: blocked.end,
                has_more: std::mem::take(&mut input.is_paused),
            });
        }
    }

    /// Reads a stream from QUIC, which is then the current one; returns the event of its reset.
    fn read_stream(
        &mut self,
        transport: &mut Http3Transport,
        id: u64,
    ) -> Option<Result<H3Event, H3Error>> {
        let room = self.room(id);
        if room == 0 {
            return None;
        }
        let (chunks, bytes) = (&mut self.chunks, &mut self.read);
        let read = transport.quic.read(stream_id(id), room, |chunk| {
            *bytes += chunk.len();
            chunks.push_back(chunk);
        });
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.chunks.clear();
                self.waiting.remove(&id);
                return match error {
                    StreamError::Reset { code } => transport
                        .codec
                        .handle_reset(id, H3ErrorCode(code))
                        .transpose(),
                    // This end stopped it.
                    StreamError::Stopped { .. } | StreamError::Closed => None,
                };
            }
        };
        let end = read == StreamRead::Finished;
        if self.chunks.is_empty() && end {
            self.chunks.push_back(Bytes::new());
        }
        self.current = Some(CurrentInput {
            id,
            end,
            has_more: read == StreamRead::Limited,
        });
        None
    }

    /// How many bytes of a stream may be read now.
    fn room(&mut self, id: u64) -> usize {
        match self.waiting.get_mut(&id) {
            None => MAX_UNREAD,
            Some(input) if input.blocked.is_some() || input.is_full() && !self.is_unlimited => {
                input.is_paused = true;
                0
            }
            Some(_) if self.is_unlimited => MAX_UNREAD,
            Some(input) => MAX_UNREAD.saturating_sub(input.unread),
        }
    }

    fn entry(&mut self, id: u64) -> &mut StreamInput {
        self.waiting.entry(id).or_insert(StreamInput::NONE)
    }

    /// The bytes that were read since the last call.
    pub fn take_read(&mut self) -> usize {
        std::mem::take(&mut self.read)
    }

    /// The earliest tick since which a head or a field section is incomplete.
    pub fn incomplete_since(&self) -> Option<u32> {
        let ticks = self.waiting.values().map(|input| input.incomplete_since);
        ticks.min().filter(|tick| *tick != NEVER)
    }

    /// The streams of which a head, a field section or the type is incomplete since this tick, or longer.
    pub fn incomplete_until(&self, tick: u32) -> Vec<u64> {
        let late = self.waiting.iter();
        let late = late.filter(|(_, input)| input.incomplete_since <= tick);
        late.map(|(id, _)| *id).collect()
    }

    /// Releases memory, while no stream is open.
    pub fn shrink(&mut self) {
        self.readable.shrink_to_fit();
        self.waiting.shrink_to_fit();
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }
}
