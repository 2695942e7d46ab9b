//! The state machine of one HTTP/2 connection (RFC 9113), for either side of it.

mod commands;
mod input;

pub use self::commands::OutgoingRequest;

use std::ops::Range;
use std::time::Duration;

use http::StatusCode;

use super::budget::Budgets;
use super::flow::Receive;
use super::frame::{self, PREFACE};
use super::head::Scratch;
use super::hpack::{Decoder, Encoder};
use super::priority::Priority;
use super::schedule::Schedule;
use super::settings::PeerSettings;
use super::streams::{Forgotten, Receiving, RequestKind, Sending, Stream, Streams, Turn};
use super::{Config, ConnectionError, ErrorCode, Fault, HeadRefusal, StreamKey};
use apus_http::{Head, Headers};

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
            receive: match role {
                Role::Server => Receive::new(config.receive_window, out),
                Role::Client => {
                    Receive::undivided(config.receive_window, config.streams_most(), out)
                }
            },
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
        if self.role == Role::Server {
            self.budgets.resets.spend()?;
        }
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

    /// How many streams may be opened now (at a client).
    pub fn room(&self) -> usize {
        let allowed = usize::try_from(self.peer.max_concurrent_streams).unwrap_or(usize::MAX);
        let is_possible =
            self.role == Role::Client && !self.is_ending() && self.next_local <= 0x7fff_ffff;
        match is_possible {
            true => allowed
                .min(self.config.streams_most())
                .saturating_sub(self.streams.open()),
            false => 0,
        }
    }

    /// Whether the server takes extended CONNECT (RFC 8441 section 3).
    pub fn takes_extended_connect(&self) -> bool {
        self.peer.extended_connect
    }

    /// Whether the peer's settings have come.
    pub fn is_settled(&self) -> bool {
        !matches!(self.reading, Reading::Preface(_) | Reading::FirstFrame)
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
