//! The state machine of an HTTP/3 connection at a server or a client (RFC 9114).

mod commands;
mod control;
mod messages;
mod request_stream;
mod stream;

pub use self::commands::RequestError;

use std::collections::VecDeque;
use std::time::Duration;

use apus_codec::flood::{Flood, FloodBudgets};
use apus_codec::messages::{HeadRefusal, IncomingRequest, RequestKind, SectionBuffers};
use apus_codec::priority::Priority;
use apus_codec::schedule::Schedule;
use apus_codec::stream_table::StreamTable;
use apus_http::Headers;
use bytes::Bytes;
use http::StatusCode;

use self::control::PeerStream;
use self::stream::{Incoming, Outgoing, RequestStream};
use crate::error::{H3Error, H3ErrorCode, H3Fault};
use crate::qpack::{QpackDecoder, QpackEncoder};
use crate::seen_streams::SeenStreams;
use crate::settings::{H3Config, H3PeerSettings};
use crate::varint;

/// Identifies a request stream while it is open.
pub type StreamKey = apus_codec::stream_table::StreamKey<u64>;

/// One end of a connection: it decodes the peer's messages and encodes the messages of this end.
///
/// It owns no socket, no bodies, no clock and no QUIC connection. It has five kinds of methods:
///
/// - **Input**: [`handle_stream`](Self::handle_stream), with the bytes of any stream in their order, until it returns
///   [`H3Event::Incomplete`] or [`H3Event::Blocked`]; [`handle_reset`](Self::handle_reset) and
///   [`handle_stop_sending`](Self::handle_stop_sending) for what the peer aborts. [`advance`](Self::advance) passes
///   the time, coarsely.
/// - **Actions**: after any input or command, [`next_action`](Self::next_action) until there is none, and
///   [`output`](Self::output) of the three local streams, which the caller opens at the start of the connection. It
///   writes their output before the output of request streams.
/// - **Commands**, which append the bytes of one request stream to `out`, in the order in which they have to be sent:
///   heads, headers of DATA frames, trailers. On a stream that was closed meanwhile they do nothing, and report it by
///   their return value. They do not end the stream of QUIC: the caller does so where they say that it ends.
/// - **Scheduling**: data is sent in the order of priorities. [`want_send`](Self::want_send) schedules a stream that
///   has data and may send it; [`next_send`](Self::next_send) returns the next one; [`send_data`](Self::send_data)
///   appends the frame header, after which the caller puts the data; then `want_send` again if there is more. A
///   stream whose flow control is exhausted is scheduled again by the caller when it is not any more.
/// - **Getters**.
///
/// A [`StreamKey`] identifies a request stream. Its [`slot`](StreamKey::slot) is a small number that is unique among
/// open streams, so that callers can keep their own state in a table. A stream is closed, and its slot free, once both
/// ends have ended it or one has reset it: see [`is_open`](Self::is_open).
#[derive(Debug)]
pub struct H3Connection {
    role: H3Role,
    config: H3Config,
    failure: Option<H3Error>,
    decoder: QpackDecoder,
    encoder: QpackEncoder,
    scratch: SectionBuffers,
    /// `None` before the SETTINGS of the peer.
    peer: Option<H3PeerSettings>,
    streams: StreamTable<u64, RequestStream>,
    schedule: Schedule<u64>,
    seen: SeenStreams,
    /// The unidirectional streams of the peer that are read, and those that were seen.
    peer_streams: Vec<PeerStream>,
    seen_peer_streams: SeenStreams,
    /// Output of the control stream.
    control: Vec<u8>,
    actions: VecDeque<StreamAction>,
    budgets: FloodBudgets,
    /// The streams whose field section waits for inserts, with the number of inserts.
    blocked: Vec<(u64, u64)>,
    /// Bytes of field sections that are not decoded yet.
    buffered: usize,
    /// Priorities of streams that were not opened yet (RFC 9218 section 7).
    early_priorities: VecDeque<(u64, Priority)>,
    shutdown: H3Shutdown,
    /// The identifier of the peer's last GOAWAY.
    peer_go_away: Option<u64>,
    /// The peer's last MAX_PUSH_ID.
    max_push_id: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum H3Role {
    Server,
    Client,
}

/// The progress of this end's graceful shutdown (section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum H3Shutdown {
    Open,
    /// The first GOAWAY was sent.
    Announced,
    /// The last GOAWAY was sent. Streams from this identifier on are rejected.
    Final(u64),
}

/// A stream that this end opens at the start, besides request streams (section 6.2, RFC 9204 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalStream {
    /// The control stream.
    Control,
    /// The stream of the QPACK encoder.
    QpackEncoder,
    /// The stream of the QPACK decoder.
    QpackDecoder,
}

impl LocalStream {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Control, Self::QpackEncoder, Self::QpackDecoder];
}

/// What the caller has to do with a stream of QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// Reset the sending side of the stream (RESET_STREAM), unless it is complete already.
    Reset {
        /// The identifier of the stream.
        id: u64,
        /// The code.
        code: H3ErrorCode,
    },
    /// Ask the peer to send no more on the stream (STOP_SENDING), and drop what arrives.
    StopSending {
        /// The identifier of the stream.
        id: u64,
        /// The code.
        code: H3ErrorCode,
    },
    /// Pass the kept input of a stream that was [`H3Event::Blocked`] again, even if it is empty.
    Resume {
        /// The identifier of the stream.
        id: u64,
    },
}

/// An event in the input.
#[derive(Debug)]
pub enum H3Event {
    /// All input of the stream was consumed.
    Incomplete,
    /// A field section waits for inserts (RFC 9204 section 2.2.1). The caller keeps the rest of the input, and passes
    /// it again after [`StreamAction::Resume`].
    Blocked,
    /// The peer's SETTINGS were received.
    Settings,
    /// A request (at a server).
    Request(IncomingRequest<StreamKey>),
    /// A request that was refused because of its size or its `Expect`. The caller has to respond with
    /// [`HeadRefusal::status`]; further data on the stream is discarded.
    Refused {
        /// Its stream.
        stream: StreamKey,
        /// Why.
        why: HeadRefusal,
    },
    /// A message was malformed, and its stream is closed (section 4.1.2).
    Malformed {
        /// Its stream, which the caller may not know.
        stream: StreamKey,
        /// Why.
        fault: H3Fault,
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
    /// Data of a body, empty only if `end`.
    Data {
        /// Its stream.
        stream: StreamKey,
        /// A part of the input.
        data: Bytes,
        /// Whether it ends the message.
        end: bool,
    },
    /// The trailer section, which ends the message.
    Trailers {
        /// Its stream.
        stream: StreamKey,
        /// The fields.
        trailers: Box<Headers>,
    },
    /// The peer aborted a stream, which is closed now.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// Why.
        code: H3ErrorCode,
    },
    /// The server needs no more of a request's body (at a client). The response may follow.
    BodyRefused {
        /// The stream.
        stream: StreamKey,
        /// Why; `H3_NO_ERROR` if the response does not depend on the rest.
        code: H3ErrorCode,
    },
    /// The client changed the priority of a stream (at a server).
    PriorityUpdate {
        /// The stream.
        stream: StreamKey,
    },
    /// The peer shuts the connection down. A server does not process requests from `id` on.
    GoAway {
        /// A stream identifier of a server, or a push identifier of a client.
        id: u64,
    },
}

/// The stream types of unidirectional streams (section 6.2, RFC 9204 section 4.2).
const CONTROL_STREAM: u8 = 0x0;
const ENCODER_STREAM: u8 = 0x2;
const DECODER_STREAM: u8 = 0x3;

/// The distance of the identifiers of two request streams (RFC 9000 section 2.1).
const ID_STEP: u64 = 4;

/// Maximum bytes of output of the decoder stream: a peer that lets none of it through is an attacker.
const MAX_DECODER_OUTPUT: usize = 65_536;

impl H3Connection {
    /// The end of a server.
    pub fn server(config: H3Config) -> Self {
        Self::new(H3Role::Server, config)
    }

    /// The end of a client.
    pub fn client(config: H3Config) -> Self {
        Self::new(H3Role::Client, config)
    }

    fn new(role: H3Role, config: H3Config) -> Self {
        let mut control = vec![CONTROL_STREAM];
        config.encode(role == H3Role::Server, &mut control);
        let mut decoder = QpackDecoder::new(config.decoder_table_bytes);
        let mut encoder = QpackEncoder::new(config.encoder_table_bytes);
        decoder.output().push(DECODER_STREAM);
        encoder.output().push(ENCODER_STREAM);
        Self {
            role,
            failure: None,
            decoder,
            encoder,
            scratch: SectionBuffers::default(),
            peer: None,
            streams: StreamTable::default(),
            schedule: Schedule::default(),
            seen: SeenStreams::default(),
            peer_streams: Vec::new(),
            seen_peer_streams: SeenStreams::default(),
            control,
            actions: VecDeque::new(),
            budgets: FloodBudgets::new(),
            blocked: Vec::new(),
            buffered: 0,
            early_priorities: VecDeque::new(),
            shutdown: H3Shutdown::Open,
            peer_go_away: None,
            max_push_id: None,
            config,
        }
    }

    /// Passes the time since the start of the connection, which refills the budgets. One call per quarter of a second
    /// is enough.
    pub fn advance(&mut self, now: Duration) {
        self.budgets.advance(now);
    }

    /// Handles bytes of a stream, which it removes from `input`, and returns the event that it found. To be called
    /// again with the rest, until it returns [`H3Event::Incomplete`] or [`H3Event::Blocked`]. `fin` says whether the
    /// stream ends after `input`. The input of streams that are closed is dropped.
    ///
    /// # Errors
    /// The connection has to be closed with the code of the error.
    pub fn handle_stream(
        &mut self,
        id: u64,
        input: &mut Bytes,
        fin: bool,
    ) -> Result<H3Event, H3Error> {
        // The two lowest bits say who opened the stream, and whether it has one direction (RFC 9000 section 2.1).
        self.fallible(|connection| match (connection.role, id & 0x3) {
            (_, 0x0) => connection.handle_request_stream(id, input, fin),
            (_, 0x1) => Err(H3Fault::ServerStream.into()),
            (H3Role::Server, 0x2) | (H3Role::Client, 0x3) => {
                connection.handle_peer_stream(id, input, fin)
            }
            // A stream on which only this end sends.
            _ => {
                input.clear();
                Ok(H3Event::Incomplete)
            }
        })
    }

    /// Handles the reset of a stream by the peer (RESET_STREAM).
    ///
    /// # Errors
    /// The connection has to be closed with the code of the error.
    pub fn handle_reset(&mut self, id: u64, code: H3ErrorCode) -> Result<Option<H3Event>, H3Error> {
        self.fallible(|connection| match id & 0x3 {
            0x0 => connection.handle_request_reset(id, code),
            0x1 => Err(H3Fault::ServerStream.into()),
            _ => connection.handle_peer_stream_reset(id).map(|()| None),
        })
    }

    /// Handles the request of the peer to send no more on a stream (STOP_SENDING).
    ///
    /// # Errors
    /// The connection has to be closed with the code of the error.
    pub fn handle_stop_sending(
        &mut self,
        id: u64,
        code: H3ErrorCode,
    ) -> Result<Option<H3Event>, H3Error> {
        self.fallible(|connection| match id & 0x3 {
            0x0 => connection.handle_request_stop(id, code),
            // The control stream or a QPACK stream of this end (section 6.2.1).
            _ => Err(H3Fault::ClosedCriticalStream.into()),
        })
    }

    fn fallible<T>(
        &mut self,
        handle: impl FnOnce(&mut Self) -> Result<T, H3Error>,
    ) -> Result<T, H3Error> {
        // After an error the reader may stand in the middle of a frame, and input may come until the caller has
        // closed the connection.
        if let Some(error) = self.failure {
            return Err(error);
        }
        let mut result = handle(self);
        if result.is_ok() && self.decoder.output().len() > MAX_DECODER_OUTPUT {
            result = Err(Flood::Acks.into());
        }
        self.failure = result.as_ref().err().copied();
        result
    }

    /// What the caller has to do with a stream next.
    pub fn next_action(&mut self) -> Option<StreamAction> {
        self.actions.pop_front()
    }

    /// The bytes to send on a local stream, which the caller removes when it has sent them. The first ones are the
    /// type of the stream.
    pub fn output(&mut self, stream: LocalStream) -> &mut Vec<u8> {
        match stream {
            LocalStream::Control => &mut self.control,
            LocalStream::QpackEncoder => self.encoder.output(),
            LocalStream::QpackDecoder => self.decoder.output(),
        }
    }

    /// Closes a stream because of a fault of the peer, and returns the event for the caller.
    fn fail_stream(&mut self, key: StreamKey, fault: H3Fault) -> Result<H3Event, H3Error> {
        // A malformed request makes this end reset its stream, which costs a client as little as a reset of its own
        // (CVE-2023-44487, CVE-2025-8671). A client opens the streams itself.
        if self.role == H3Role::Server {
            self.budgets.resets.spend()?;
        }
        self.abort(key, fault.code());
        Ok(H3Event::Malformed { stream: key, fault })
    }

    /// Closes a stream in both directions.
    fn abort(&mut self, key: StreamKey, code: H3ErrorCode) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let id = key.id();
        if stream.outgoing != Outgoing::Ended {
            self.actions.push_back(StreamAction::Reset { id, code });
        }
        if stream.incoming != Incoming::Ended {
            self.actions
                .push_back(StreamAction::StopSending { id, code });
            // RFC 9204 section 2.2.2.2: sections of the stream that will not be decoded hold entries of the peer's
            // table.
            self.decoder.cancel(id);
        }
        self.remove(key);
    }

    /// Records that the peer ended a stream.
    fn end_receiving(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.incoming = Incoming::Ended;
            if stream.outgoing == Outgoing::Ended {
                self.close(key);
            }
        }
    }

    /// Records that this end ended a stream.
    fn end_sending(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.outgoing = Outgoing::Ended;
            if std::mem::take(&mut stream.is_scheduled) {
                self.schedule.remove(key, stream.priority);
            }
            match stream.incoming {
                Incoming::Ended => self.close(key),
                Incoming::Discarded => self.stop_receiving(key),
                Incoming::Head | Incoming::Body | Incoming::Complete => {}
            }
        }
    }

    /// Asks the peer to send no more on a stream that this end has ended, and closes it (section 4.1.1).
    fn stop_receiving(&mut self, key: StreamKey) {
        self.actions.push_back(StreamAction::StopSending {
            id: key.id(),
            code: H3ErrorCode::NO_ERROR,
        });
        self.close(key);
    }

    /// Closes a stream that both ends have ended.
    fn close(&mut self, key: StreamKey) {
        self.budgets.resets.earn(1);
        self.remove(key);
    }

    fn remove(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key) {
            if stream.is_scheduled {
                self.schedule.remove(key, stream.priority);
            }
            self.buffered = self.buffered.saturating_sub(stream.section_bytes());
            stream.buffer = Vec::new();
            self.blocked.retain(|(id, _)| *id != key.id());
            self.streams.remove(key);
        }
    }

    /// Whether a stream is open: not ended by both ends, and not reset.
    pub fn is_open(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Whether the peer may send more data or trailers on a stream.
    pub fn is_receiving(&self, stream: StreamKey) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|stream| stream.incoming != Incoming::Ended)
    }

    /// The priority of a response.
    pub fn priority(&self, stream: StreamKey) -> Priority {
        self.streams
            .get(stream)
            .map_or(Priority::DEFAULT, |stream| stream.priority)
    }

    /// How many requests may be sent now (at a client), if the transport allows their streams.
    pub fn available_streams(&self) -> usize {
        if self.role == H3Role::Client && !self.is_shutting_down() {
            self.config
                .max_streams()
                .saturating_sub(self.streams.open_count())
        } else {
            0
        }
    }

    /// Whether the server allows extended CONNECT (RFC 9220 section 3).
    pub fn allows_extended_connect(&self) -> bool {
        self.peer_settings().extended_connect
    }

    /// Whether the SETTINGS frame of the peer was received.
    pub fn has_peer_settings(&self) -> bool {
        self.peer.is_some()
    }

    fn peer_settings(&self) -> H3PeerSettings {
        self.peer.unwrap_or(H3PeerSettings::INITIAL)
    }

    /// How many request streams are open.
    pub fn open_streams(&self) -> usize {
        self.streams.open_count()
    }

    /// Whether [`next_send`](Self::next_send) returns a stream.
    pub fn is_send_due(&self) -> bool {
        !self.schedule.is_empty()
    }

    /// Whether a server has read nothing of a stream of the client.
    fn is_silent(&self, id: u64) -> bool {
        self.role == H3Role::Server
            && match id & 0x3 {
                0x0 => !self.seen.contains(id / ID_STEP),
                0x2 => !self.seen_peer_streams.contains(id / ID_STEP),
                _ => false,
            }
    }

    /// Ends a stream of the client of which a server could read nothing until the deadline of its head: the transport
    /// discards what it holds behind a gap. Returns whether it was such a stream.
    ///
    /// # Errors
    /// The connection has to be closed with the code of the error.
    pub fn reject_silent(&mut self, id: u64) -> Result<bool, H3Error> {
        self.fallible(|connection| {
            if !connection.is_silent(id) {
                return Ok(false);
            }
            connection.budgets.resets.spend()?;
            match id & 0x3 {
                0x0 => {
                    connection.seen.insert(id / ID_STEP);
                    connection.reject(id);
                }
                _ => connection.ignore_peer_stream(id),
            }
            Ok(true)
        })
    }

    /// Rejects a request of which nothing is kept.
    fn reject(&mut self, id: u64) {
        self.take_early_priority(id);
        let code = H3ErrorCode::REQUEST_REJECTED;
        self.actions
            .push_back(StreamAction::StopSending { id, code });
        self.actions.push_back(StreamAction::Reset { id, code });
        // Nothing was decoded, but the sections of the request may refer to entries, which the peer cannot evict
        // before.
        self.decoder.cancel(id);
    }

    /// Whether the peer has to complete the head of a request, or a field section that it began, on a stream, which has
    /// a deadline. At a server that begins when the transport reports the stream, also if nothing of it can be read. So it
    /// does for the type of a unidirectional stream. The SETTINGS frame has a deadline, too: see
    /// [`has_peer_settings`](Self::has_peer_settings).
    pub fn is_inside_head(&self, id: u64) -> bool {
        if self.is_silent(id) || self.is_untyped(id) {
            return true;
        }
        let stream = self.streams.find(id);
        stream
            .and_then(|key| self.streams.get(key))
            .is_some_and(|stream| {
                self.role == H3Role::Server && stream.incoming == Incoming::Head
                    || stream.is_inside_section()
            })
    }

    /// Whether this end or the peer started a shutdown.
    pub fn is_shutting_down(&self) -> bool {
        self.peer_go_away.is_some() || self.shutdown != H3Shutdown::Open
    }

    /// Whether the shutdown is complete: the connection can be closed with `H3_NO_ERROR` once all output was sent.
    ///
    /// A request that the final GOAWAY accepted may still be on its way, if one that was sent later has arrived.
    /// Until it comes the shutdown is not complete; how long to wait for it is up to the caller, because a client may
    /// leave streams unused.
    pub fn is_finished(&self) -> bool {
        let is_shut_down =
            self.peer_go_away.is_some() || matches!(self.shutdown, H3Shutdown::Final(_));
        let may_come = self.role == H3Role::Server && self.seen.has_gaps();
        is_shut_down && !may_come && self.streams.open_count() == 0
    }

    /// The first request identifier that a final GOAWAY would reject.
    fn next_request_id(&self) -> u64 {
        self.seen.end().saturating_mul(ID_STEP).min(varint::MAX)
    }

    fn new_stream(&self, incoming: Incoming) -> RequestStream {
        RequestStream {
            incoming,
            outgoing: Outgoing::Head,
            frame: stream::FrameProgress::Start,
            buffer: Vec::new(),
            body_left: None,
            priority: Priority::DEFAULT,
            request: RequestKind::Other,
            is_tunnel: false,
            is_scheduled: false,
        }
    }
}
