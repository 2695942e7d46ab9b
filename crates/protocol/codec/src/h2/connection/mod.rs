//! The state machine of an HTTP/2 connection at a server or a client (RFC 9113).

mod commands;
mod input;

use std::ops::Range;
use std::time::Duration;

use http::StatusCode;

use super::flow::ReceiveWindow;
use super::frame::{self, PREFACE};
use super::hpack::{HpackDecoder, HpackEncoder};
use super::settings::PeerSettings;
use super::streams::{ClosedStreams, ReceiveState, ScheduleState, SendState, StreamState};
use super::{ConnectionError, ErrorCode, Fault, HeadRefusal, Http2Config, StreamKey};
use crate::flood::FloodBudgets;
use crate::messages::{IncomingRequest, RequestKind, SectionBuffers};
use crate::priority::Priority;
use crate::schedule::Schedule;
use crate::stream_table::StreamTable;
use apus_http::Headers;

/// The size of the decoder's dynamic table (RFC 7541 section 4.2), which is the default.
// A larger table is memory that each peer could claim.
const DECODER_TABLE_BYTES: usize = 4096;

/// Maximum CONTINUATION frames of one field block.
// The CONTINUATION flood (CVE-2024-27316, CVE-2023-45288) needs neither large frames nor an end: empty frames that
// each cost a read have to be counted, not only bytes.
const MAX_CONTINUATIONS: u32 = 32;
/// Up to this multiple of the limit of a field section, a field block is decoded and its sender gets an
/// error response.
// A head that is a little too large gets its 431, and the connection lives on; for that it has to be decoded, as later
// blocks depend on the table.
const BLOCK_SIZE_FACTOR: usize = 2;

/// A DATA frame below this size that fills a window counts against the budget for tiny windows.
const TINY_FRAME: usize = 256;
/// A DATA frame of at least this size puts a token back into that budget.
const SIZEABLE_FRAME: usize = 1024;

/// Legitimate clients send no WINDOW_UPDATE for less data than this.
const MIN_UPDATE: usize = 512;

/// The opaque data of the PING frames of this end, which identifies their acknowledgements.
const KEEP_ALIVE_PING: [u8; 8] = *b"alive\0\0\0";
const SHUTDOWN_PING: [u8; 8] = *b"goodbye\0";
const BANDWIDTH_PING: [u8; 8] = *b"sample\0\0";

/// One end of a connection: it decodes the peer's messages and encodes the messages of this end.
///
/// It owns no socket, no bodies and no clock. It has four kinds of methods:
///
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet, until it returns [`Http2Event::Incomplete`]. Automatic responses, such as
///   acknowledgements, are appended to `out`. [`advance`](Self::advance) passes the time, coarsely.
/// - **Commands**, which append the bytes to send to `out`, in the order in which they have to be
///   sent: heads, headers of DATA frames, resets, window updates. On a stream that was closed meanwhile
///   they do nothing, and report it by their return value.
/// - **Scheduling**: data is sent in the order of priorities. [`want_send`](Self::want_send) schedules
///   a stream that has data; [`next_send`](Self::next_send) returns the next stream and how much it
///   may send; [`send_data`](Self::send_data) appends the frame header, after which the caller puts
///   the data; then `want_send` again if there is more. A stream that waits for its window is
///   scheduled again when the window opens.
/// - **Getters**.
///
/// A [`StreamKey`] identifies a stream. Its [`slot`](StreamKey::slot) is a small number that is unique
/// among open streams, so that callers can keep their own state in a table. A stream is closed, and its
/// slot free, once both ends have ended it or one has reset it: see [`is_open`](Self::is_open). Its
/// unconsumed data then counts as consumed.
#[derive(Debug)]
pub struct Http2Codec {
    role: Role,
    config: Http2Config,
    reading: ReadState,
    decoder: HpackDecoder,
    encoder: HpackEncoder,
    scratch: SectionBuffers,
    peer: PeerSettings,
    /// SETTINGS frames that the peer has not acknowledged yet.
    unacknowledged: u32,
    streams: StreamTable<u32, StreamState>,
    schedule: Schedule<u32>,
    closed_streams: ClosedStreams,
    /// Bytes that the peer allows this end to send over the whole connection.
    send_window: i32,
    receive_window: ReceiveWindow,
    budgets: FloodBudgets,
    /// The highest identifier of the streams that the peer opened.
    last_peer: u32,
    /// The identifier of the next stream that this end opens.
    next_local: u32,
    shutdown: ShutdownState,
    /// Whether the peer sent GOAWAY.
    peer_is_closing: bool,
    awaits_ping_ack: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

/// What the connection expects from its input.
#[derive(Debug)]
enum ReadState {
    /// The preface, of which this many bytes were read.
    Preface(usize),
    /// The first frame, which has to be SETTINGS.
    FirstFrame,
    Frame,
    /// The data of a DATA frame, and the padding after it.
    Data {
        /// `None` if the data is discarded.
        stream: Option<StreamKey>,
        left: usize,
        padding: usize,
        end: bool,
    },
    /// A field block that continues in CONTINUATION frames.
    FieldBlock(Box<FieldBlock>),
    Failed(ConnectionError),
}

#[derive(Debug)]
struct FieldBlock {
    headers_frame: HeadersFrame,
    bytes: Vec<u8>,
    frames: u32,
}

/// The stream and the END_STREAM flag of a HEADERS frame.
#[derive(Clone, Copy, Debug)]
struct HeadersFrame {
    stream: u32,
    end: bool,
}

/// The progress of this end's graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownState {
    Open,
    /// The first GOAWAY was sent, and a PING whose acknowledgement shows that the peer has read it.
    Announced,
    /// The last GOAWAY was sent. Streams beyond this identifier are refused.
    Final(u32),
}

/// An event in the input.
#[derive(Debug)]
pub enum Http2Event {
    /// More input is needed.
    Incomplete,
    /// A request (at a server).
    Request(IncomingRequest<StreamKey>),
    /// A request that was rejected because of its size or its `Expect`. The caller has to respond with
    /// [`HeadRefusal::status`]; further data on the stream is discarded.
    Refused {
        /// Its stream.
        stream: StreamKey,
        /// Why.
        why: HeadRefusal,
    },
    /// A message was malformed and its stream was reset (section 8.1.1). If the caller knew the stream,
    /// it is closed.
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
        /// The status, 1xx except 101.
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
        /// Whether there is no body.
        end: bool,
    },
    /// Data of a body: this range of the input. The caller has to report it to
    /// [`consumed`](Http2Codec::consumed) when it was used or discarded. The range may be empty if
    /// `end`.
    Data {
        /// Its stream.
        stream: StreamKey,
        /// The range of the input.
        range: Range<usize>,
        /// Whether it ends the stream.
        end: bool,
    },
    /// The trailer section, which ends the stream.
    Trailers {
        /// Its stream.
        stream: StreamKey,
        /// The fields.
        trailers: Box<Headers>,
    },
    /// The peer reset a stream, which is closed now.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// Why.
        code: ErrorCode,
    },
    /// The peer shuts the connection down and does not process streams beyond `last`.
    GoAway {
        /// The highest stream identifier that the peer processed or may process.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
}

impl Http2Codec {
    /// The end of a server, before the client's preface. Appends the server's preface.
    pub fn server(config: Http2Config, out: &mut Vec<u8>) -> Self {
        Self::new(Role::Server, config, out)
    }

    /// The end of a client. Appends the client's preface.
    pub fn client(config: Http2Config, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        Self::new(Role::Client, config, out)
    }

    fn new(role: Role, config: Http2Config, out: &mut Vec<u8>) -> Self {
        config.encode(role == Role::Server, out);
        Self {
            role,
            reading: match role {
                Role::Server => ReadState::Preface(0),
                Role::Client => ReadState::FirstFrame,
            },
            decoder: HpackDecoder::new(DECODER_TABLE_BYTES),
            encoder: HpackEncoder::new(),
            scratch: SectionBuffers::default(),
            peer: PeerSettings::initial(),
            // The SETTINGS frame of the preface.
            unacknowledged: 1,
            streams: StreamTable::default(),
            schedule: Schedule::default(),
            closed_streams: ClosedStreams::default(),
            // No setting changes the window that a connection begins with (section 6.9.2).
            send_window: 65_535,
            receive_window: match role {
                Role::Server => ReceiveWindow::for_server(&config, out),
                Role::Client => ReceiveWindow::for_client(&config, out),
            },
            budgets: FloodBudgets::new(),
            last_peer: 0,
            next_local: 1,
            shutdown: ShutdownState::Open,
            peer_is_closing: false,
            awaits_ping_ack: false,
            config,
        }
    }

    /// Passes the time since the start of the connection, which refills the budgets. One call per quarter
    /// of a second is enough.
    pub fn advance(&mut self, now: Duration) {
        self.budgets.advance(now);
    }

    /// Parses the input that was not consumed yet. Returns how many bytes it consumed and the event that
    /// it found; with [`Http2Event::Incomplete`] some bytes may be consumed too. The rest has to be
    /// passed again, followed by more input. A frame other than DATA has to fit into the input, which
    /// needs at most [`Http2Config::max_frame_size`] and 9 bytes.
    ///
    /// # Errors
    /// The connection has to be closed after the GOAWAY in `out` was sent.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Http2Event), ConnectionError> {
        let mut consumed = 0_usize;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            match self.read_event(rest, out) {
                Ok((used, event)) => {
                    let start = consumed;
                    consumed = consumed.saturating_add(used);
                    match event {
                        Some(Http2Event::Data { stream, range, end }) => {
                            let range = Range {
                                start: range.start.saturating_add(start),
                                end: range.end.saturating_add(start),
                            };
                            return Ok((consumed, Http2Event::Data { stream, range, end }));
                        }
                        Some(event) => return Ok((consumed, event)),
                        None if used == 0 => return Ok((consumed, Http2Event::Incomplete)),
                        None => {}
                    }
                }
                Err(error) => {
                    if !matches!(self.reading, ReadState::Failed(_)) {
                        // The text is in the debug data (section 6.8), where whoever looks for the mistake finds it,
                        // with Wireshark for example.
                        frame::go_away(self.last_peer, error.code(), &error.to_string(), out);
                        self.reading = ReadState::Failed(error);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// The open stream with this identifier; `None` if it is closed.
    fn find(&self, id: u32) -> Result<Option<StreamKey>, Fault> {
        match self.streams.find(id) {
            Some(key) => Ok(Some(key)),
            None if self.is_idle(id) => Err(Fault::IdleStream),
            None => Ok(None),
        }
    }

    /// Whether the stream was not opened yet.
    fn is_idle(&self, id: u32) -> bool {
        let is_clients = !id.is_multiple_of(2);
        match (self.role, is_clients) {
            (Role::Server, true) => id > self.last_peer,
            (Role::Client, true) => id >= self.next_local,
            // Streams with even identifiers would be pushed ones, which are disabled.
            (_, false) => true,
        }
    }

    /// The state of a stream before this end sent anything.
    fn new_stream(&self, receiving: ReceiveState) -> StreamState {
        StreamState {
            send_window: i32::try_from(self.peer.initial_window).unwrap_or(i32::MAX),
            receive_window: i32::try_from(self.receive_window.stream_target()).unwrap_or(i32::MAX),
            unread: 0,
            unreleased: 0,
            body_left: None,
            priority: Priority::DEFAULT,
            receiving,
            sending: SendState::Head,
            schedule_state: ScheduleState::Idle,
            request: RequestKind::Other,
        }
    }

    /// Resets a stream because of a fault of the peer, and returns the event for the caller.
    fn reset_malformed(
        &mut self,
        key: StreamKey,
        fault: Fault,
        out: &mut Vec<u8>,
    ) -> Result<Http2Event, ConnectionError> {
        if self.role == Role::Server {
            // Streams that this end resets count as those that the peer resets: MadeYouReset (CVE-2025-8671) makes the
            // server do it by frames that are faults of a stream.
            self.budgets.resets.spend()?;
        }
        self.reset(key, fault.code(), out);
        Ok(Http2Event::Malformed {
            stream: Some(key),
            fault,
        })
    }

    /// Records that the peer ended a stream.
    fn end_receiving(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.receiving = ReceiveState::Ended;
            if stream.sending == SendState::Ended {
                self.close(key, out);
            }
        }
    }

    /// Records that this end ended a stream.
    fn end_sending(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.sending = SendState::Ended;
            stream.schedule_state = ScheduleState::Idle;
            if stream.receiving == ReceiveState::Ended {
                self.close(key, out);
            }
        }
    }

    /// Closes a stream that both ends have ended.
    fn close(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        // What a client finishes pays for what it resets, so that a browser that leaves page after page is never taken
        // for an attack.
        self.budgets.resets.earn(1);
        self.closed_streams.add_ended(key.id());
        self.remove(key, out);
    }

    fn remove(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get(key) {
            if stream.schedule_state == ScheduleState::Queued {
                self.schedule.remove(key, stream.priority);
            }
            // The caller will not report it as consumed.
            self.receive_window.release(stream.unread, out);
            self.streams.remove(key);
        }
    }

    /// Whether a [`ping`](Self::ping) was sent and not acknowledged yet.
    pub fn awaits_ping_ack(&self) -> bool {
        self.awaits_ping_ack
    }

    /// Whether a stream is open: not ended by both ends, and not reset.
    pub fn is_open(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Whether the peer may send more data or trailers on a stream.
    pub fn is_receiving(&self, stream: StreamKey) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|stream| stream.receiving != ReceiveState::Ended)
    }

    /// How many streams may be opened now (at a client).
    pub fn available_streams(&self) -> usize {
        let allowed = usize::try_from(self.peer.max_concurrent_streams).unwrap_or(usize::MAX);
        let is_possible =
            self.role == Role::Client && !self.is_shutting_down() && self.next_local <= 0x7fff_ffff;
        if is_possible {
            allowed
                .min(self.config.max_streams())
                .saturating_sub(self.streams.open_count())
        } else {
            0
        }
    }

    /// Whether the server allows extended CONNECT (RFC 8441 section 3).
    pub fn allows_extended_connect(&self) -> bool {
        self.peer.extended_connect
    }

    /// Whether the first SETTINGS frame of the peer was received.
    pub fn has_peer_settings(&self) -> bool {
        !matches!(self.reading, ReadState::Preface(_) | ReadState::FirstFrame)
    }

    /// How many streams are open.
    pub fn open_streams(&self) -> usize {
        self.streams.open_count()
    }

    /// Whether [`next_send`](Self::next_send) may return a stream.
    pub fn is_send_due(&self) -> bool {
        self.send_window > 0 && !self.schedule.is_empty()
    }

    /// Whether a stream that has data waits for the peer to open its window or the connection's.
    pub fn is_stalled(&self, stream: StreamKey) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|stream| match stream.schedule_state {
                ScheduleState::Stalled => true,
                ScheduleState::Queued => self.send_window <= 0,
                ScheduleState::Idle => false,
            })
    }

    /// Whether the window of the connection is closed.
    pub fn is_connection_stalled(&self) -> bool {
        self.send_window <= 0
    }

    /// Whether the peer has to complete the preface or a field block, which has a deadline.
    pub fn is_inside_head(&self) -> bool {
        matches!(
            self.reading,
            ReadState::Preface(_) | ReadState::FirstFrame | ReadState::FieldBlock(_)
        )
    }

    /// Whether this end or the peer started a shutdown.
    pub fn is_shutting_down(&self) -> bool {
        self.peer_is_closing || self.shutdown != ShutdownState::Open
    }

    /// Whether the shutdown is complete: the connection can be closed once `out` was sent.
    pub fn is_finished(&self) -> bool {
        let is_shut_down = self.peer_is_closing || matches!(self.shutdown, ShutdownState::Final(_));
        is_shut_down && self.streams.open_count() == 0
    }
}
