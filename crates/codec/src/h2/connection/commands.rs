//! What this end sends: heads, turns and data, resets, windows, and its end.

use super::{
    CRUMB, Connection, Content, Ending, GOODBYE, KEEP_ALIVE, NO_CRUMB, Reading, Role,
    SMALLEST_UPDATE,
};
use crate::h2::frame::{self, PAYLOAD_ALWAYS};
use crate::h2::streams::{Receiving, RequestKind, Sending, Stream, Turn};
use crate::h2::{ConnectionError, ErrorCode, StreamKey};
use apus_http::grammar::parse_decimal;
use apus_http::response_head::{decimal, is_connection_field};
use apus_http::trailers::may_trail;
use apus_http::{Head, Headers, ResponseHead};
use http::{Method, StatusCode};

/// The head of a request as a client's driver has it.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method. That of an extended CONNECT is left out of account.
    pub method: &'a Method,
    /// `https` or `http`.
    pub scheme: &'a str,
    /// The value of `:authority`.
    pub authority: Option<&'a str>,
    /// The value of `:path`: the target in origin-form, or `*`.
    pub path: &'a str,
    /// The value of `:protocol`, which makes this an extended CONNECT (RFC 8441).
    pub protocol: Option<&'a str>,
    /// The field lines. Those that the rest of this tells, and those that are about one connection,
    /// are left out: `Host`, `Content-Length`, `Expect`, `Connection`, `TE` and their like.
    pub headers: &'a Headers,
    /// Bytes of the content, if that is known and to be told.
    pub content_length: Option<u64>,
    /// Whether trailers are taken.
    pub te_trailers: bool,
    /// Whether the content waits for `100 Continue`.
    pub expects_continue: bool,
}

impl<'a> OutgoingRequest<'a> {
    /// What a head tells: all but an extended CONNECT.
    pub fn of(head: &'a Head, scheme: &'a str) -> Self {
        let headers = &head.headers;
        let is = |name, value: &str| {
            headers
                .get_str(name)
                .is_some_and(|field| field.eq_ignore_ascii_case(value))
        };
        Self {
            method: &head.method,
            scheme,
            authority: head.target.authority().or_else(|| headers.get_str("host")),
            path: head.target.path_and_query(),
            protocol: None,
            headers,
            content_length: headers.get("content-length").and_then(parse_decimal),
            te_trailers: head.hop_by_hop.accepts_trailers || is("te", "trailers"),
            expects_continue: is("expect", "100-continue"),
        }
    }
}

impl Connection {
    /// Opens a stream with a request (at a client): `None` if there is no [`room`](Self::room).
    pub fn send_request(
        &mut self,
        head: OutgoingRequest<'_>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Option<StreamKey> {
        if self.room() == 0 {
            return None;
        }
        let id = self.next_local;
        self.next_local = id.saturating_add(2);
        let (method, kind) = match (head.protocol, head.method) {
            (Some(_), _) => (&Method::CONNECT, RequestKind::ExtendedConnect),
            (None, &Method::HEAD) => (head.method, RequestKind::Head),
            (None, &Method::CONNECT) => (head.method, RequestKind::Connect),
            (None, method) => (method, RequestKind::Usual),
        };
        let encoder = &mut self.encoder;
        frame::field_block(id, end, self.peer.max_frame_size, out, |out| {
            encoder.begin(out);
            encoder.field(b":method", method.as_str().as_bytes(), out);
            if kind != RequestKind::Connect {
                encoder.field(b":scheme", head.scheme.as_bytes(), out);
                encoder.field(b":path", head.path.as_bytes(), out);
            }
            if let Some(authority) = head.authority {
                encoder.field(b":authority", authority.as_bytes(), out);
            }
            if let Some(protocol) = head.protocol {
                encoder.field(b":protocol", protocol.as_bytes(), out);
            }
            for line in head.headers.hpack_lines() {
                let is_left_out = matches!(line.0, b"host" | b"content-length" | b"expect")
                    || is_connection_field(line.0);
                if !is_left_out {
                    encoder.line(line, out);
                }
            }
            if let Some(length) = head.content_length {
                let mut digits = Vec::with_capacity(20);
                decimal(length, &mut digits);
                encoder.field(b"content-length", &digits, out);
            }
            if head.te_trailers {
                encoder.field(b"te", b"trailers", out);
            }
            if head.expects_continue {
                encoder.field(b"expect", b"100-continue", out);
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

    /// Sends the trailer section, which ends our side of the stream. Fields that must not stand there
    /// are left out. Needs no turn.
    pub fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers, out: &mut Vec<u8>) {
        let is_possible = self
            .streams
            .get(stream)
            .is_some_and(|known| known.sending == Sending::Content);
        if is_possible {
            let may_trail = |line: &(&[u8], &[u8], bool)| may_trail(line.0);
            let mut lines = trailers.hpack_lines().filter(may_trail).peekable();
            if lines.peek().is_none() {
                frame::data(0, true, stream.id(), out);
            } else {
                let encoder = &mut self.encoder;
                frame::field_block(stream.id(), true, self.peer.max_frame_size, out, |out| {
                    encoder.begin(out);
                    lines.for_each(|line| encoder.line(line, out));
                });
            }
            self.end_sending(stream, out);
        }
    }

    /// Resets a stream, which is gone then. `NO_ERROR` after a whole answer tells the client to stop
    /// sending content (section 8.1).
    pub fn reset(&mut self, stream: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some() {
            if self.role == Role::Client {
                // The origin's response may be under way, and it is not its fault that nobody
                // wants it. A client has earned as much by its request.
                self.budgets.idle.earn(4);
            }
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

    /// Reports content of [`Event::Data`](super::Event::Data) as used, which opens windows in time.
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
}
