//! The state machine of one HTTP/2 connection (RFC 9113), for either side of it.

use std::ops::Range;
use std::time::Duration;

use http::{Method, StatusCode};

use super::budget::Budgets;
use super::flow::Receive;
use super::frame::{self, FrameHeader, HEADER, Kind, PAYLOAD_ALWAYS, PREFACE};
use super::head::{FieldReader, ReadRequest, ReadResponse, Scratch, Section, Unusable};
use super::hpack::{Decoder, Encoder};
use super::priority::Priority;
use super::schedule::Schedule;
use super::settings::{self, PeerSettings};
use super::streams::{Forgotten, Receiving, RequestKind, Sending, Stream, Streams, Turn};
use super::{Config, ConnectionError, ErrorCode, Fault, Flood, HeadRefusal, StreamKey};
use crate::response_head::decimal;
use crate::{Head, Headers, ResponseHead};

/// The size of the dynamic table that our decoder offers (RFC 7541 section 4.2), which is the
/// default.
const DECODER_TABLE: usize = 4096;

/// CONTINUATION frames of one field block, and how much larger than the limit of a field section
/// a block may be for its sender to get an answer that says so.
const CONTINUATIONS: u32 = 32;
const BLOCK_EXCESS: usize = 2;

/// A frame smaller than this for want of a window is a crumb; one this large makes up for another.
const CRUMB: usize = 256;
const NO_CRUMB: usize = 1024;

/// Clients that give a window back in smaller parts than this are not honest.
const SMALLEST_UPDATE: usize = 512;

/// What our PING frames carry, to tell their answers apart.
const KEEP_ALIVE: [u8; 8] = *b"alive\0\0\0";
const GOODBYE: [u8; 8] = *b"goodbye\0";
const SAMPLE: [u8; 8] = *b"sample\0\0";

/// One connection as one of its ends sees it: messages come out of the bytes of the peer, and what
/// this end has to say becomes bytes for it.
///
/// It owns no socket, no content and no clock. Its methods are of four kinds:
///
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet, until it gives [`Event::Incomplete`]. What answers frames by itself, such as
///   acknowledgements, is appended to `out`. [`advance`](Self::advance) tells the time, coarsely.
/// - **Commands**, which append to `out` what has to be sent, in the order in which it has to be
///   sent: heads, frame headers of data, resets, windows. None of them fails: on a stream that is
///   gone meanwhile they do nothing and say so.
/// - **Turns**: content is sent in the order that priorities ask for. A stream with content at hand
///   is entered by [`want_send`](Self::want_send); [`next_send`](Self::next_send) takes out the
///   one whose turn it is and tells how much it may send; [`send_data`](Self::send_data) appends
///   the frame's header, behind which the caller puts the data; then `want_send` again for more.
///   A stream that waits for its window comes back by itself when the window opens.
/// - **Getters**.
///
/// A stream is known by its [`StreamKey`], whose [`slot`](StreamKey::slot) is a small number that
/// no other open stream has, so that callers can keep what is theirs in a table. It is gone, and its
/// slot free, once both sides have ended it, or one has reset it: see
/// [`is_open`](Self::is_open). Then unread content counts as read.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Config,
    reading: Reading,
    decoder: Decoder,
    encoder: Encoder,
    scratch: Scratch,
    peer: PeerSettings,
    /// SETTINGS frames that were sent and not acknowledged.
    unacknowledged: u32,
    streams: Streams,
    schedule: Schedule,
    forgotten: Forgotten,
    /// What the peer lets us send over the whole connection.
    send_window: i32,
    receive: Receive,
    budgets: Budgets,
    /// The highest stream identifier that the peer has opened a stream with.
    last_peer: u32,
    /// The identifier of the next stream that we open.
    next_local: u32,
    ending: Ending,
    /// Whether the peer sent GOAWAY.
    peer_ending: bool,
    awaits_pong: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

/// What the next input is.
#[derive(Debug)]
enum Reading {
    /// The preface, of which so many bytes came.
    Preface(usize),
    /// The SETTINGS that have to come first.
    FirstFrame,
    Frame,
    /// The content of a DATA frame, and the padding behind it.
    Data {
        /// `None` if nobody wants it.
        stream: Option<StreamKey>,
        left: usize,
        padding: usize,
        end: bool,
    },
    /// A field block that goes on in CONTINUATION frames.
    Block(Box<Block>),
    Failed(ConnectionError),
}

#[derive(Debug)]
struct Block {
    opening: Opening,
    bytes: Vec<u8>,
    frames: u32,
}

/// What HEADERS says beside its field block.
#[derive(Clone, Copy, Debug)]
struct Opening {
    stream: u32,
    end: bool,
}

/// How far our end of the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// The first GOAWAY was sent, and a PING to see when the peer knows.
    Announced,
    /// The last GOAWAY was sent. Streams past this one are refused.
    Final(u32),
}

/// What was found in the input.
#[derive(Debug)]
pub enum Event {
    /// Nothing more before more input comes.
    Incomplete,
    /// A request (at a server).
    Request(RequestHead),
    /// A request that was not read because of its size or its `Expect`: it has to be answered, by
    /// [`HeadRefusal::status`], and what follows on its stream is thrown away.
    Refused {
        /// Its stream.
        stream: StreamKey,
        /// Why.
        why: HeadRefusal,
    },
    /// A message was malformed and its stream was reset (section 8.1.1). If the stream was known to
    /// the caller, it is gone.
    Malformed {
        /// Its stream.
        stream: Option<StreamKey>,
        /// Why.
        fault: Fault,
    },
    /// An interim response (at a client).
    Informational {
        /// Its stream.
        stream: StreamKey,
        /// The status, 1xx but 101.
        status: StatusCode,
        /// Its fields.
        headers: Box<Headers>,
    },
    /// The head of a response (at a client).
    Response {
        /// Its stream.
        stream: StreamKey,
        /// The status.
        status: StatusCode,
        /// Its fields.
        headers: Box<Headers>,
        /// Whether there is no content.
        end: bool,
    },
    /// Content: this range of the input. It has to be reported as
    /// [`consumed`](Connection::consumed) when it was used or thrown away. The range may be empty
    /// if `end`.
    Data {
        /// Its stream.
        stream: StreamKey,
        /// Where it is in the input.
        range: Range<usize>,
        /// Whether it is the last of its stream.
        end: bool,
    },
    /// The trailer section; nothing follows on its stream.
    Trailers {
        /// Its stream.
        stream: StreamKey,
        /// The fields.
        trailers: Box<Headers>,
    },
    /// The peer reset a stream, which is gone.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// Why.
        code: ErrorCode,
    },
    /// The peer will open no more streams, or wants no more, and has seen none past `last`.
    GoAway {
        /// The last stream identifier that the peer has or will have looked at.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
}

/// A request as far as its head tells.
#[derive(Debug)]
pub struct RequestHead {
    /// Its stream.
    pub stream: StreamKey,
    /// Method, target, fields. The version is HTTP/2. `host` is there as the first line if the
    /// request has an authority; cookie fields are joined. An extended CONNECT (RFC 8441) appears
    /// as a GET with `connection: upgrade` and `upgrade`, as HTTP/1.1 would have it; its answer is a 101.
    pub head: Box<Head>,
    /// Whether there is no content.
    pub end: bool,
    /// The content's length, if the client told it.
    pub content_length: Option<u64>,
    /// The client waits for `100 Continue` before it sends the content.
    pub expects_continue: bool,
    /// Whether this is an extended CONNECT.
    pub is_tunnel: bool,
}

/// What has to follow a head that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: the stream was ended with its head, as for HEAD, 204, 304 and empty content, or is
    /// gone.
    None,
    /// Content, of exactly this length if one was announced, and an end.
    Expected(Option<u64>),
}

impl Connection {
    /// A server's end, before the client's preface. Appends the server's preface.
    pub fn server(config: Config, out: &mut Vec<u8>) -> Self {
        Self::new(Role::Server, config, out)
    }

    /// A client's end. Appends the client's preface.
    pub fn client(config: Config, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        Self::new(Role::Client, config, out)
    }

    fn new(role: Role, config: Config, out: &mut Vec<u8>) -> Self {
        config.announce(role == Role::Server, out);
        Self {
            role,
            reading: match role {
                Role::Server => Reading::Preface(0),
                Role::Client => Reading::FirstFrame,
            },
            decoder: Decoder::new(DECODER_TABLE),
            encoder: Encoder::new(),
            scratch: Scratch::default(),
            peer: PeerSettings::initial(),
            unacknowledged: 1,
            streams: Streams::default(),
            schedule: Schedule::default(),
            forgotten: Forgotten::default(),
            send_window: 65_535,
            receive: Receive::new(config.receive_window, out),
            budgets: Budgets::new(),
            last_peer: 0,
            next_local: 1,
            ending: Ending::No,
            peer_ending: false,
            awaits_pong: false,
            config,
        }
    }

    /// Tells the time since the connection began, which refills budgets. Call it when it has
    /// changed; every quarter of a second is enough.
    pub fn advance(&mut self, now: Duration) {
        self.budgets.advance(now);
    }

    /// Looks at the input that was not consumed yet. Tells how many bytes of it are consumed now and
    /// what was found; with [`Event::Incomplete`] some bytes may be consumed too. The rest has to be
    /// presented again, with more behind it. A frame other than DATA has to fit into the input,
    /// which needs no more than [`Config::max_frame_size`] and 9 bytes.
    ///
    /// # Errors
    /// The connection has to be closed after what was appended to `out`, a GOAWAY, was sent.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Event), ConnectionError> {
        let mut consumed = 0_usize;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            match self.step(rest, out) {
                Ok((used, event)) => {
                    let start = consumed;
                    consumed = consumed.saturating_add(used);
                    match event {
                        Some(Event::Data { stream, range, end }) => {
                            let range = Range {
                                start: range.start.saturating_add(start),
                                end: range.end.saturating_add(start),
                            };
                            return Ok((consumed, Event::Data { stream, range, end }));
                        }
                        Some(event) => return Ok((consumed, event)),
                        None if used == 0 => return Ok((consumed, Event::Incomplete)),
                        None => {}
                    }
                }
                Err(error) => {
                    if !matches!(self.reading, Reading::Failed(_)) {
                        frame::go_away(self.last_peer, error.code(), &error.to_string(), out);
                        self.reading = Reading::Failed(error);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Takes one thing from the input: `None` and nothing used means that more is needed.
    fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event>), ConnectionError> {
        match self.reading {
            Reading::Failed(error) => return Err(error),
            Reading::Preface(seen) => {
                let expected = PREFACE.get(seen..).unwrap_or_default();
                let len = expected.len().min(input.len());
                if expected.get(..len) != input.get(..len) {
                    return Err(Fault::Preface.into());
                }
                self.reading = match len == expected.len() {
                    true => Reading::FirstFrame,
                    false => Reading::Preface(seen.saturating_add(len)),
                };
                return Ok((len, None));
            }
            Reading::Data {
                stream,
                left,
                padding,
                end,
            } => return Ok(self.data(stream, (left, padding), end, input, out)),
            Reading::FirstFrame | Reading::Frame | Reading::Block(_) => {}
        }
        let Some(frame) = FrameHeader::read(input) else {
            return Ok((0, None));
        };
        if matches!(self.reading, Reading::FirstFrame) && frame.kind != Kind::Settings {
            return Err(Fault::FirstFrame.into());
        }
        if frame.len > self.config.payload_most() {
            return Err(Fault::FrameSize.into());
        }
        if matches!(self.reading, Reading::Block(_)) && frame.kind != Kind::Continuation {
            return Err(Fault::Interleaved.into());
        }
        if frame.kind == Kind::Data {
            return self.begin_data(frame, input, out);
        }
        let whole = frame.len.saturating_add(HEADER);
        let Some(payload) = input.get(HEADER..whole) else {
            return Ok((0, None));
        };
        let event = match frame.kind {
            Kind::Headers => self.headers(frame, payload, out),
            Kind::Continuation => self.continuation(frame, payload, out),
            Kind::Settings => self.settings(frame, payload, out).map(|()| None),
            Kind::WindowUpdate => self.window_update(frame, payload, out),
            Kind::RstStream => self.rst_stream(frame, payload, out),
            Kind::Ping => self.handle_ping(frame, payload, out).map(|()| None),
            Kind::GoAway => self.handle_go_away(frame, payload),
            Kind::Priority => self.handle_priority(frame, payload, out),
            Kind::PriorityUpdate => self.priority_update(frame, payload).map(|()| None),
            Kind::PushPromise => Err(Fault::Push.into()),
            Kind::Data | Kind::Unknown => {
                self.budgets.idle.spend()?;
                Ok(None)
            }
        }?;
        Ok((whole, event))
    }

    // DATA (section 6.1)

    fn begin_data(
        &mut self,
        frame: FrameHeader,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event>), ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        let (mut used, mut left, mut padding) = (HEADER, frame.len, 0);
        if frame.has(frame::PADDED) {
            let Some(len) = input.get(HEADER) else {
                // Without this, a frame that ends before its padding would wait for ever.
                return match frame.len {
                    0 => Err(Fault::FrameSize.into()),
                    _ => Ok((0, None)),
                };
            };
            used = used.saturating_add(1);
            padding = usize::from(*len);
            left = left
                .checked_sub(1)
                .ok_or(Fault::FrameSize)?
                .checked_sub(padding)
                .ok_or(Fault::Padding)?;
        }
        let whole = u32::try_from(frame.len).unwrap_or(u32::MAX);
        if !self.receive.take(whole) {
            return Err(Fault::WindowExceeded.into());
        }
        let end = frame.has(frame::END_STREAM);
        if left == 0 && !end {
            self.budgets.idle.spend()?;
        }
        let overhead = u32::try_from(frame.len.saturating_sub(left)).unwrap_or(u32::MAX);
        let mut stream = self.find(frame.stream)?;
        let mut event = None;
        if let Some(key) = stream
            && let Some(known) = self.streams.get_mut(key)
        {
            if known.receive_window < i32::try_from(whole).unwrap_or(i32::MAX) {
                return Err(Fault::WindowExceeded.into());
            }
            let content = u64::try_from(left).unwrap_or(u64::MAX);
            let fault = match (known.receiving, known.content_left) {
                (Receiving::Ended, _) => Some(Fault::StreamClosed),
                (Receiving::Head, _) => Some(Fault::PseudoField),
                (_, Some(expected)) if content > expected || (end && content < expected) => {
                    Some(Fault::ContentLength)
                }
                _ => None,
            };
            if let Some(fault) = fault {
                event = Some(self.malformed(key, fault, out)?);
                stream = None;
            } else {
                known.receive_window = known
                    .receive_window
                    .saturating_sub(i32::try_from(whole).unwrap_or(i32::MAX));
                known.content_left = known
                    .content_left
                    .map(|expected| expected.saturating_sub(content));
                known.give_back(key.id(), overhead, self.receive.stream_target(), out);
                if known.receiving == Receiving::Discarded {
                    // It is thrown away, and nobody hears of it.
                    if end {
                        self.end_receiving(key, out);
                    }
                    stream = None;
                }
            }
        } else if !self.forgotten.holds(frame.stream) {
            self.budgets.resets.spend()?;
            frame::rst_stream(frame.stream, ErrorCode::STREAM_CLOSED, out);
        }
        if stream.is_some() {
            self.budgets.answers.earn(1);
            if self.receive.count(whole) {
                frame::ping(SAMPLE, false, out);
            }
        }
        self.receive.used(overhead, out);
        if left == 0 && padding == 0 && !(end && stream.is_some()) {
            self.reading = Reading::Frame;
        } else {
            self.reading = Reading::Data {
                stream,
                left,
                padding,
                end,
            };
        }
        Ok((used, event))
    }

    fn data(
        &mut self,
        stream: Option<StreamKey>,
        (left, padding): (usize, usize),
        end: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> (usize, Option<Event>) {
        let stream = stream.filter(|key| self.streams.get(*key).is_some());
        let len = left.min(input.len());
        let left = left.saturating_sub(len);
        let skipped = match left {
            0 => padding.min(input.len().saturating_sub(len)),
            _ => 0,
        };
        let padding = padding.saturating_sub(skipped);
        let is_last = left == 0;
        self.reading = match is_last && padding == 0 {
            true => Reading::Frame,
            false => Reading::Data {
                // The end was told with the last of the content.
                stream: stream.filter(|_| !is_last),
                left,
                padding,
                end,
            },
        };
        let used = len.saturating_add(skipped);
        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(key) = stream else {
            // Nobody will report it as used.
            self.receive.used(bytes, out);
            return (used, None);
        };
        let end = end && is_last;
        if len == 0 && !end {
            return (used, None);
        }
        if let Some(known) = self.streams.get_mut(key) {
            known.unread = known.unread.saturating_add(bytes);
        }
        if end {
            self.end_receiving(key, out);
        }
        let event = Event::Data {
            stream: key,
            range: 0..len,
            end,
        };
        (used, Some(event))
    }

    // HEADERS and CONTINUATION (sections 6.2 and 6.10)

    fn headers(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        if frame.has(frame::PADDED) && payload.is_empty() {
            return Err(Fault::FrameSize.into());
        }
        let mut block = frame::without_padding(frame, payload).ok_or(Fault::Padding)?;
        if frame.has(frame::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(Fault::FrameSize)?;
            let [dependency @ .., _weight] = *priority;
            if frame::identifier(dependency) == frame.stream {
                return Err(Fault::SelfDependency.into());
            }
            block = rest;
        }
        let opening = Opening {
            stream: frame.stream,
            end: frame.has(frame::END_STREAM),
        };
        if frame.has(frame::END_HEADERS) {
            return self.section(opening, block, out);
        }
        self.reading = Reading::Block(Box::new(Block {
            opening,
            bytes: block.to_vec(),
            frames: 0,
        }));
        self.block_in_bounds()?;
        Ok(None)
    }

    fn continuation(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let Reading::Block(block) = &mut self.reading else {
            return Err(Fault::Continuation.into());
        };
        if block.opening.stream != frame.stream {
            return Err(Fault::Interleaved.into());
        }
        block.bytes.extend_from_slice(payload);
        block.frames = block.frames.saturating_add(1);
        self.block_in_bounds()?;
        if !frame.has(frame::END_HEADERS) {
            return Ok(None);
        }
        let Reading::Block(block) = std::mem::replace(&mut self.reading, Reading::Frame) else {
            return Err(Fault::Continuation.into());
        };
        self.section(block.opening, &block.bytes, out)
    }

    fn block_in_bounds(&self) -> Result<(), Flood> {
        let most = self.config.head_bytes.saturating_mul(BLOCK_EXCESS);
        match &self.reading {
            Reading::Block(block)
                if block.bytes.len() > most.max(PAYLOAD_ALWAYS) || block.frames > CONTINUATIONS =>
            {
                Err(Flood::FieldBlock)
            }
            _ => Ok(()),
        }
    }

    /// Takes a whole field block. Whatever it is for, it has to be decoded, as what follows is
    /// compressed with what it leaves in the table.
    fn section(
        &mut self,
        opening: Opening,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let is_from_opener = self.role == Role::Server;
        let known = self.streams.find(opening.stream);
        let section = match (known.and_then(|key| self.streams.get(key)), self.role) {
            (None, Role::Server) => Section::Request,
            (Some(stream), Role::Client) if stream.receiving == Receiving::Head => {
                Section::Response
            }
            _ => Section::Trailers,
        };
        let is_new = known.is_none() && is_from_opener && opening.stream > self.last_peer;
        if is_new && opening.stream.is_multiple_of(2) {
            return Err(Fault::StreamIdentifier.into());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut reader = FieldReader::new(section, &self.config, &mut scratch, block.len());
        let decoded = self.decoder.decode(block, |field| reader.take(field));
        if decoded.is_err() {
            return Err(Fault::Compression.into());
        }
        if reader.is_bomb() {
            return Err(Flood::FieldBlock.into());
        }
        let event = match (section, known) {
            (Section::Request, _) if is_new => {
                let request = reader.into_request();
                self.request(opening, request, out)
            }
            (Section::Response, Some(key)) => {
                let response = reader.into_response();
                self.response(key, opening, response, out)
            }
            (Section::Trailers, Some(key)) => {
                let trailers = reader.into_trailers();
                self.trailers(key, opening, trailers, out)
            }
            _ => {
                self.closed_section(opening)?;
                Ok(None)
            }
        };
        self.scratch = scratch;
        event
    }

    /// A field block for a stream that is not open.
    fn closed_section(&self, opening: Opening) -> Result<(), Fault> {
        let is_ours = !opening.stream.is_multiple_of(2) && self.role == Role::Client;
        if is_ours && opening.stream >= self.next_local {
            return Err(Fault::IdleStream);
        }
        if self.role == Role::Client && !is_ours {
            return Err(Fault::StreamIdentifier);
        }
        if self.forgotten.holds(opening.stream) {
            return Ok(());
        }
        Err(match self.forgotten.ended(opening.stream) {
            true => Fault::StreamClosed,
            false => Fault::StreamIdentifier,
        })
    }

    fn request(
        &mut self,
        opening: Opening,
        request: Result<ReadRequest, Unusable>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        self.last_peer = opening.stream;
        self.budgets.idle.earn(4);
        let is_past = matches!(self.ending, Ending::Final(last) if opening.stream > last);
        if is_past || self.streams.open() >= self.config.streams_most() {
            if !is_past {
                self.budgets.resets.spend()?;
            }
            self.forgotten.add(opening.stream);
            frame::rst_stream(opening.stream, ErrorCode::REFUSED_STREAM, out);
            return Ok(None);
        }
        let request = match request {
            Ok(request) if opening.end && request.content_length.is_some_and(|len| len > 0) => {
                Err(Unusable::Malformed(Fault::ContentLength))
            }
            request => request,
        };
        let end = opening.end;
        match request {
            Ok(request) => {
                let receiving = if end {
                    Receiving::Ended
                } else {
                    Receiving::Content
                };
                let stream = self.streams.insert(
                    opening.stream,
                    Stream {
                        content_left: request.content_length,
                        priority: request.priority,
                        request: request.kind,
                        ..self.fresh(receiving)
                    },
                );
                Ok(Some(Event::Request(RequestHead {
                    stream,
                    head: request.head,
                    end,
                    content_length: request.content_length,
                    expects_continue: request.expects_continue && !end,
                    is_tunnel: request.kind == RequestKind::ExtendedConnect,
                })))
            }
            Err(Unusable::Refused(why)) => {
                let receiving = if end {
                    Receiving::Ended
                } else {
                    Receiving::Discarded
                };
                let stream = self.streams.insert(opening.stream, self.fresh(receiving));
                Ok(Some(Event::Refused { stream, why }))
            }
            Err(Unusable::Malformed(fault)) => {
                self.budgets.resets.spend()?;
                self.forgotten.add(opening.stream);
                frame::rst_stream(opening.stream, fault.code(), out);
                Ok(Some(Event::Malformed {
                    stream: None,
                    fault,
                }))
            }
        }
    }

    fn response(
        &mut self,
        key: StreamKey,
        opening: Opening,
        response: Result<ReadResponse, Unusable>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let response = match response {
            Ok(response) => response,
            Err(Unusable::Malformed(fault)) => return self.malformed(key, fault, out).map(Some),
            // The upstream's answer is too large for us.
            Err(Unusable::Refused(_)) => {
                return self.malformed(key, Fault::FieldSyntax, out).map(Some);
            }
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        let headers = Box::new(response.headers);
        let status = response.status;
        if status.is_informational() {
            if opening.end {
                return self.malformed(key, Fault::PseudoField, out).map(Some);
            }
            self.budgets.idle.spend()?;
            return Ok(Some(Event::Informational {
                stream: key,
                status,
                headers,
            }));
        }
        stream.receiving = Receiving::Content;
        let has_no_content = stream.request == RequestKind::Head
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        stream.content_left = match has_no_content {
            true => Some(0),
            false => response.content_length,
        };
        if opening.end {
            if stream.content_left.is_some_and(|left| left > 0) {
                return self.malformed(key, Fault::ContentLength, out).map(Some);
            }
            self.end_receiving(key, out);
        }
        Ok(Some(Event::Response {
            stream: key,
            status,
            headers,
            end: opening.end,
        }))
    }

    fn trailers(
        &mut self,
        key: StreamKey,
        opening: Opening,
        trailers: Result<Headers, Unusable>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        let fault = match (stream.receiving, &trailers) {
            (Receiving::Ended, _) => Some(Fault::StreamClosed),
            _ if !opening.end => Some(Fault::Trailers),
            _ if stream.content_left.is_some_and(|left| left > 0) => Some(Fault::ContentLength),
            (_, Err(Unusable::Malformed(fault))) => Some(*fault),
            (_, Err(Unusable::Refused(_))) => Some(Fault::Trailers),
            _ => None,
        };
        if let Some(fault) = fault {
            return self.malformed(key, fault, out).map(Some);
        }
        let is_wanted = stream.receiving != Receiving::Discarded;
        self.end_receiving(key, out);
        let trailers = trailers.ok().filter(|_| is_wanted);
        Ok(trailers.map(|trailers| Event::Trailers {
            stream: key,
            trailers: Box::new(trailers),
        }))
    }

    // The other frames

    fn settings(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        if frame.has(frame::ACK) {
            if !payload.is_empty() {
                return Err(Fault::FrameSize.into());
            }
            self.unacknowledged = self
                .unacknowledged
                .checked_sub(1)
                .ok_or(Fault::SettingsAck)?;
            return Ok(());
        }
        self.budgets.answers.spend()?;
        let before = self.peer;
        let smallest_table = self.peer.take(payload, self.role == Role::Server)?;
        if let Some(smallest) = smallest_table {
            for size in [smallest, self.peer.header_table_size] {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                self.encoder.set_max_table_size(size);
            }
        }
        if self.peer.initial_window != before.initial_window {
            // Section 6.9.2: windows move by the difference, and may become negative.
            let difference = i64::from(self.peer.initial_window)
                .saturating_sub(i64::from(before.initial_window));
            self.move_windows(difference)?;
        }
        frame::settings_ack(out);
        self.reading = Reading::Frame;
        Ok(())
    }

    fn move_windows(&mut self, difference: i64) -> Result<(), Fault> {
        for (key, stream) in self.streams.iter_mut() {
            let window = i64::from(stream.send_window).saturating_add(difference);
            stream.send_window = i32::try_from(window).map_err(|_| Fault::WindowOverflow)?;
            if stream.turn == Turn::Stalled && stream.send_window > 0 {
                stream.turn = Turn::Queued;
                self.schedule.enter(key, stream.priority);
            }
        }
        Ok(())
    }

    fn window_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let increment = frame::identifier(*exactly(payload)?);
        self.budgets.idle.spend()?;
        let increment = i32::try_from(increment).unwrap_or(i32::MAX);
        if frame.stream == 0 {
            if increment == 0 {
                return Err(Fault::WindowIncrement.into());
            }
            self.send_window = self
                .send_window
                .checked_add(increment)
                .ok_or(Fault::WindowOverflow)?;
            return Ok(None);
        }
        let Some(key) = self.find(frame.stream)? else {
            return Ok(None);
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        let fault = match stream.send_window.checked_add(increment) {
            Some(_) if increment == 0 => Fault::WindowIncrement,
            None => Fault::WindowOverflow,
            Some(window) => {
                stream.send_window = window;
                if stream.turn == Turn::Stalled && window > 0 {
                    stream.turn = Turn::Queued;
                    self.schedule.enter(key, stream.priority);
                }
                return Ok(None);
            }
        };
        self.malformed(key, fault, out).map(Some)
    }

    fn rst_stream(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        let code = ErrorCode(u32::from_be_bytes(*exactly(payload)?));
        let Some(key) = self.find(frame.stream)? else {
            self.budgets.idle.spend()?;
            return Ok(None);
        };
        self.budgets.resets.spend()?;
        self.forgotten.note_end(key.id());
        self.remove(key, out);
        Ok(Some(Event::Reset { stream: key, code }))
    }

    fn handle_ping(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let opaque: [u8; 8] = *exactly(payload)?;
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        if !frame.has(frame::ACK) {
            self.budgets.answers.spend()?;
            frame::ping(opaque, true, out);
            return Ok(());
        }
        match opaque {
            KEEP_ALIVE if self.awaits_pong => self.awaits_pong = false,
            GOODBYE if self.ending == Ending::Announced => {
                self.go_away(ErrorCode::NO_ERROR, out);
            }
            SAMPLE if self.receive.is_sampling() => {
                if let Some(grown) = self.receive.end_sample(out) {
                    settings::announce_window(self.receive.stream_target(), out);
                    self.unacknowledged = self.unacknowledged.saturating_add(1);
                    let grown = i32::try_from(grown).unwrap_or(0);
                    for (_, stream) in self.streams.iter_mut() {
                        stream.receive_window = stream.receive_window.saturating_add(grown);
                    }
                }
            }
            // An answer to nothing.
            _ => self.budgets.idle.spend()?,
        }
        Ok(())
    }

    fn handle_go_away(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        let (last, rest) = payload.split_first_chunk::<4>().ok_or(Fault::FrameSize)?;
        let code = rest.first_chunk::<4>().ok_or(Fault::FrameSize)?;
        self.budgets.idle.spend()?;
        self.peer_ending = true;
        Ok(Some(Event::GoAway {
            last: frame::identifier(*last),
            code: ErrorCode(u32::from_be_bytes(*code)),
        }))
    }

    /// The old tree of priorities, which is read and has no meaning (section 5.3).
    fn handle_priority(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        self.budgets.idle.spend()?;
        let Ok([dependency @ .., _weight]) = exactly::<5>(payload) else {
            // Section 6.3: an error of the stream.
            return match self.streams.find(frame.stream) {
                Some(key) => self.malformed(key, Fault::FrameSize, out).map(Some),
                None => Err(Fault::FrameSize.into()),
            };
        };
        if frame::identifier(*dependency) == frame.stream {
            return match self.streams.find(frame.stream) {
                Some(key) => self.malformed(key, Fault::SelfDependency, out).map(Some),
                None => Err(Fault::SelfDependency.into()),
            };
        }
        Ok(None)
    }

    /// RFC 9218 section 7.1.
    fn priority_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        let (stream, value) = payload.split_first_chunk::<4>().ok_or(Fault::FrameSize)?;
        let stream = frame::identifier(*stream);
        if self.role == Role::Client || stream == 0 || stream.is_multiple_of(2) {
            return Err(Fault::PriorityUpdate.into());
        }
        self.budgets.idle.spend()?;
        // One that comes before its stream could be kept; browsers send the field then.
        if let Some(key) = self.streams.find(stream)
            && let Some(stream) = self.streams.get_mut(key)
        {
            let priority = Priority::parse(value);
            if stream.turn == Turn::Queued {
                self.schedule.leave(key, stream.priority);
                self.schedule.enter(key, priority);
            }
            stream.priority = priority;
        }
        Ok(())
    }

    // Streams

    /// The open stream with this identifier; `None` if it was closed.
    fn find(&self, id: u32) -> Result<Option<StreamKey>, Fault> {
        match self.streams.find(id) {
            Some(key) => Ok(Some(key)),
            None if self.is_idle(id) => Err(Fault::IdleStream),
            None => Ok(None),
        }
    }

    /// Whether nobody has opened such a stream yet.
    fn is_idle(&self, id: u32) -> bool {
        let is_clients = !id.is_multiple_of(2);
        match (self.role, is_clients) {
            (Role::Server, true) => id > self.last_peer,
            (Role::Client, true) => id >= self.next_local,
            // Nobody pushes.
            (_, false) => true,
        }
    }

    /// A stream before anything was sent on it.
    fn fresh(&self, receiving: Receiving) -> Stream {
        Stream {
            send_window: i32::try_from(self.peer.initial_window).unwrap_or(i32::MAX),
            receive_window: i32::try_from(self.receive.stream_target()).unwrap_or(i32::MAX),
            unread: 0,
            unannounced: 0,
            content_left: None,
            priority: Priority::DEFAULT,
            receiving,
            sending: Sending::Head,
            turn: Turn::None,
            request: RequestKind::Usual,
        }
    }

    /// Resets a stream because of what the peer did, and tells the caller.
    fn malformed(
        &mut self,
        key: StreamKey,
        fault: Fault,
        out: &mut Vec<u8>,
    ) -> Result<Event, ConnectionError> {
        self.budgets.resets.spend()?;
        self.reset(key, fault.code(), out);
        Ok(Event::Malformed {
            stream: Some(key),
            fault,
        })
    }

    /// The peer has sent all of a stream.
    fn end_receiving(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.receiving = Receiving::Ended;
            if stream.sending == Sending::Ended {
                self.finish(key, out);
            }
        }
    }

    /// We have sent all of a stream.
    fn end_sending(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.sending = Sending::Ended;
            stream.turn = Turn::None;
            if stream.receiving == Receiving::Ended {
                self.finish(key, out);
            }
        }
    }

    /// Both sides have ended a stream.
    fn finish(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        self.budgets.resets.earn(1);
        self.forgotten.note_end(key.id());
        self.remove(key, out);
    }

    fn remove(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get(key) {
            if stream.turn == Turn::Queued {
                self.schedule.leave(key, stream.priority);
            }
            // Nobody will report it as used.
            self.receive.used(stream.unread, out);
            self.streams.remove(key);
        }
    }

    // Commands

    /// Opens a stream with a request (at a client): `None` if no more may be opened now. `host` or
    /// the target's authority becomes `:authority`; `scheme` is `https` or `http`.
    pub fn send_request(
        &mut self,
        head: &Head,
        scheme: &str,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Option<StreamKey> {
        let most = usize::try_from(self.peer.max_concurrent_streams).unwrap_or(usize::MAX);
        let id = self.next_local;
        let is_possible = self.role == Role::Client
            && !self.is_ending()
            && self.streams.open() < most.min(32_768)
            && id <= 0x7fff_ffff;
        if !is_possible {
            return None;
        }
        self.next_local = id.saturating_add(2);
        let kind = match head.method {
            Method::HEAD => RequestKind::Head,
            Method::CONNECT => RequestKind::Connect,
            _ => RequestKind::Usual,
        };
        let encoder = &mut self.encoder;
        frame::field_block(id, end, self.peer.max_frame_size, out, |out| {
            encoder.begin(out);
            encoder.field(b":method", head.method.as_str().as_bytes(), out);
            let host = head.headers.get("host");
            let authority = head.target.authority().map(str::as_bytes).or(host);
            if kind != RequestKind::Connect {
                encoder.field(b":scheme", scheme.as_bytes(), out);
                encoder.field(b":path", head.target.path_and_query().as_bytes(), out);
            }
            if let Some(authority) = authority {
                encoder.field(b":authority", authority, out);
            }
            for (name, value, _) in head.headers.wire_lines() {
                let is_left_out = name == b"host"
                    || (crate::response_head::is_connection_field(name)
                        && !(name == b"te" && value.eq_ignore_ascii_case(b"trailers")));
                if !is_left_out {
                    encoder.field(name, value, out);
                }
            }
        });
        let stream = Stream {
            request: kind,
            sending: if end {
                Sending::Ended
            } else {
                Sending::Content
            },
            ..self.fresh(Receiving::Head)
        };
        Some(self.streams.insert(id, stream))
    }

    /// Sends an interim response, such as 100 and 103.
    pub fn send_informational(
        &mut self,
        stream: StreamKey,
        status: StatusCode,
        headers: &Headers,
        out: &mut Vec<u8>,
    ) {
        let Some(known) = self.streams.get(stream) else {
            return;
        };
        if known.sending == Sending::Head
            && status.is_informational()
            && status != StatusCode::SWITCHING_PROTOCOLS
        {
            let encoder = &mut self.encoder;
            frame::field_block(stream.id(), false, self.peer.max_frame_size, out, |out| {
                encoder.begin(out);
                encoder.status(status, out);
                encoder.headers(headers, false, out);
            });
        }
    }

    /// Sends the head of a response. Connection-specific fields are left out. 101 as the answer to an
    /// extended CONNECT becomes 200, and content both ways is the tunnel then; any other 1xx is no
    /// final answer, and 500 is sent in its place.
    pub fn send_head(
        &mut self,
        stream: StreamKey,
        head: ResponseHead<'_>,
        out: &mut Vec<u8>,
    ) -> Content {
        let Some(known) = self.streams.get_mut(stream) else {
            return Content::None;
        };
        if known.sending != Sending::Head || self.role == Role::Client {
            return Content::None;
        }
        let is_upgrade = known.request == RequestKind::ExtendedConnect
            && head.status == StatusCode::SWITCHING_PROTOCOLS;
        let status = match head.status {
            StatusCode::SWITCHING_PROTOCOLS if is_upgrade => StatusCode::OK,
            status if status.is_informational() => StatusCode::INTERNAL_SERVER_ERROR,
            status => status,
        };
        let is_tunnel =
            is_upgrade || (known.request == RequestKind::Connect && status.is_success());
        let survey = head.headers.survey();
        let (content, content_length) = match status {
            _ if is_tunnel => (Content::Expected(None), None),
            StatusCode::NO_CONTENT => (Content::None, None),
            StatusCode::RESET_CONTENT => (Content::None, Some(0)),
            StatusCode::NOT_MODIFIED => (Content::None, survey.content_length),
            // A service that answers HEAD without making the content leaves it empty, which says
            // nothing of the length that GET would have.
            _ if known.request == RequestKind::Head => {
                let made = head.content_length.filter(|length| *length > 0);
                (Content::None, survey.content_length.or(made))
            }
            _ => match head.content_length {
                Some(0) => (Content::None, Some(0)),
                length => (Content::Expected(length), length),
            },
        };
        let end = content == Content::None;
        let keeps_length = survey.is_length_line_kept && survey.content_length == content_length;
        let encoder = &mut self.encoder;
        frame::field_block(stream.id(), end, self.peer.max_frame_size, out, |out| {
            encoder.begin(out);
            encoder.status(status, out);
            encoder.headers(head.headers, keeps_length, out);
            if let Some(length) = content_length.filter(|_| !keeps_length) {
                let mut digits = Vec::with_capacity(20);
                decimal(length, &mut digits);
                encoder.field(b"content-length", &digits, out);
            }
            if let Some(server) = head.server.filter(|_| !survey.has_server) {
                encoder.server(server.as_bytes(), out);
            }
            if !survey.has_date {
                encoder.date(head.date, out);
            }
        });
        known.sending = Sending::Content;
        if end {
            self.end_sending(stream, out);
        }
        content
    }

    /// Enters a stream that has content at hand.
    pub fn want_send(&mut self, stream: StreamKey) {
        if let Some(known) = self.streams.get_mut(stream)
            && known.turn == Turn::None
            && known.sending == Sending::Content
        {
            if known.send_window > 0 {
                known.turn = Turn::Queued;
                self.schedule.enter(stream, known.priority);
            } else {
                known.turn = Turn::Stalled;
            }
        }
    }

    /// Takes out the stream whose turn it is, and how many bytes its next frame may have (at least
    /// 1). `None`: no stream has content at hand, or windows are shut.
    pub fn next_send(&mut self) -> Option<(StreamKey, usize)> {
        let connection = usize::try_from(self.send_window).unwrap_or(0);
        if connection == 0 {
            return None;
        }
        loop {
            let key = self.schedule.next()?;
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let window = usize::try_from(stream.send_window).unwrap_or(0);
            if window == 0 {
                // SETTINGS have shut it since.
                stream.turn = Turn::Stalled;
                continue;
            }
            stream.turn = Turn::None;
            return Some((key, window.min(connection).min(PAYLOAD_ALWAYS)));
        }
    }

    /// Appends the header of a DATA frame of `len` bytes, at most what
    /// [`next_send`](Self::next_send) gave, to be followed by the data at once. A frame of no bytes
    /// that ends the stream needs no turn.
    ///
    /// # Errors
    /// The client's windows are so small that content leaves in crumbs: the connection has to be
    /// closed after what was appended to `out`, a GOAWAY, was sent.
    pub fn send_data(
        &mut self,
        stream: StreamKey,
        len: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let Some(known) = self.streams.get_mut(stream) else {
            return Ok(());
        };
        if known.sending != Sending::Content {
            return Ok(());
        }
        let bytes = i32::try_from(len).unwrap_or(i32::MAX);
        known.send_window = known.send_window.saturating_sub(bytes);
        self.send_window = self.send_window.saturating_sub(bytes);
        let is_shut = known.send_window <= 0 || self.send_window <= 0;
        self.budgets.answers.earn(1);
        let updates = u32::try_from(len / SMALLEST_UPDATE).unwrap_or(0);
        self.budgets.idle.earn(updates.saturating_add(4));
        if len >= NO_CRUMB {
            self.budgets.crumbs.earn(1);
        } else if len < CRUMB
            && is_shut
            && !end
            && let Err(flood) = self.budgets.crumbs.spend()
        {
            let error = ConnectionError::Flood(flood);
            frame::go_away(self.last_peer, error.code(), &error.to_string(), out);
            self.reading = Reading::Failed(error);
            return Err(error);
        }
        frame::data(len, end, stream.id(), out);
        if end {
            self.end_sending(stream, out);
        }
        Ok(())
    }

    /// Sends the trailer section, which ends our side of the stream. Needs no turn.
    pub fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers, out: &mut Vec<u8>) {
        let is_possible = self
            .streams
            .get(stream)
            .is_some_and(|known| known.sending == Sending::Content);
        if is_possible {
            let encoder = &mut self.encoder;
            frame::field_block(stream.id(), true, self.peer.max_frame_size, out, |out| {
                encoder.begin(out);
                encoder.headers(trailers, false, out);
            });
            self.end_sending(stream, out);
        }
    }

    /// Resets a stream, which is gone then. `NO_ERROR` after a whole answer tells the client to stop
    /// sending content (section 8.1).
    pub fn reset(&mut self, stream: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some() {
            self.forgotten.add(stream.id());
            self.remove(stream, out);
            frame::rst_stream(stream.id(), code, out);
        }
    }

    /// Tells that nobody wants the rest of what the peer sends on a stream. It is taken and thrown away
    /// up to the stream's window, which does not open any more. A peer that has more may be told to
    /// stop by a [`reset`](Self::reset) with `NO_ERROR` (section 8.1), better not at once: some clients
    /// forget the answer over it.
    pub fn abandon(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        let Some(known) = self.streams.get_mut(stream) else {
            return;
        };
        if known.receiving == Receiving::Ended {
            return;
        }
        known.receiving = Receiving::Discarded;
        let unread = std::mem::take(&mut known.unread);
        self.receive.used(unread, out);
    }

    /// Reports content of [`Event::Data`] as used, which opens windows in time.
    pub fn consumed(&mut self, stream: StreamKey, bytes: usize, out: &mut Vec<u8>) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let target = self.receive.stream_target();
        // The unread content of a stream that is gone was given back with it.
        let Some(known) = self.streams.get_mut(stream) else {
            return;
        };
        let bytes = bytes.min(known.unread);
        known.unread = known.unread.saturating_sub(bytes);
        known.give_back(stream.id(), bytes, target, out);
        self.receive.used(bytes, out);
    }

    /// Begins a graceful end (section 6.8): says that no more streams are wanted, and takes those
    /// that were on their way until the peer has answered a PING. [`is_finished`](Self::is_finished)
    /// tells when all is done; [`go_away`](Self::go_away) ends the waiting for a peer that does not
    /// answer.
    pub fn shut_down(&mut self, out: &mut Vec<u8>) {
        if self.ending == Ending::No && !matches!(self.reading, Reading::Failed(_)) {
            self.ending = Ending::Announced;
            if self.role == Role::Client {
                // A server has nothing on its way that would be lost.
                self.go_away(ErrorCode::NO_ERROR, out);
                return;
            }
            frame::go_away(0x7fff_ffff, ErrorCode::NO_ERROR, "", out);
            frame::ping(GOODBYE, false, out);
        }
    }

    /// Ends: says which streams were seen, and why. Later ones are refused, open ones go on.
    pub fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if !matches!(self.ending, Ending::Final(_)) && !matches!(self.reading, Reading::Failed(_)) {
            self.ending = Ending::Final(self.last_peer);
            frame::go_away(self.last_peer, code, "", out);
        }
    }

    /// Sends a PING, to see whether the peer is still there. Nothing if one is on its way.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.awaits_pong, true) {
            frame::ping(KEEP_ALIVE, false, out);
        }
    }

    /// Gives back memory that a connection does not need while no stream is open.
    pub fn rest(&mut self) {
        self.streams.shrink();
        if self.streams.open() == 0 {
            self.schedule.shrink();
        }
    }

    // Getters

    /// Whether [`ping`](Self::ping) was sent and not answered yet.
    pub fn awaits_pong(&self) -> bool {
        self.awaits_pong
    }

    /// Whether a stream is open: not ended by both, not reset.
    pub fn is_open(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Whether the peer has more content or trailers to send on a stream.
    pub fn is_receiving(&self, stream: StreamKey) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|stream| stream.receiving != Receiving::Ended)
    }

    /// How many streams are open.
    pub fn open_streams(&self) -> usize {
        self.streams.open()
    }

    /// Whether [`next_send`](Self::next_send) may have a stream.
    pub fn is_send_due(&self) -> bool {
        self.send_window > 0 && !self.schedule.is_empty()
    }

    /// Whether a stream that wants to send waits for a window, its own or the connection's, which
    /// only the peer can open.
    pub fn is_stalled(&self, stream: StreamKey) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|stream| match stream.turn {
                Turn::Stalled => true,
                Turn::Queued => self.send_window <= 0,
                Turn::None => false,
            })
    }

    /// Whether the peer is in the middle of something that it must not take long for: the preface, or
    /// a field block.
    pub fn is_inside_head(&self) -> bool {
        matches!(
            self.reading,
            Reading::Preface(_) | Reading::FirstFrame | Reading::Block(_)
        )
    }

    /// Whether an end was begun, by us or the peer.
    pub fn is_ending(&self) -> bool {
        self.peer_ending || self.ending != Ending::No
    }

    /// Whether the end is complete: the connection can be closed once `out` was sent.
    pub fn is_finished(&self) -> bool {
        let is_over = self.peer_ending || matches!(self.ending, Ending::Final(_));
        is_over && self.streams.open() == 0
    }
}

/// The payload of a frame that has one length only.
fn exactly<const N: usize>(payload: &[u8]) -> Result<&[u8; N], Fault> {
    payload.try_into().map_err(|_| Fault::FrameSize)
}
