//! The commands of a connection: heads, scheduling and data, resets, and shutdown.

use std::fmt;

use apus_codec::messages::{ExpectedBody, OutgoingRequest, ResponsePlan};
use apus_http::response_head::decimal;
use apus_http::trailers::is_allowed_in_trailers;
use apus_http::{Headers, ResponseHead, is_interim};
use http::StatusCode;

use super::stream::{FrameProgress, Incoming, Outgoing, RequestStream};
use super::{H3Connection, H3Role, H3Shutdown, ID_STEP, StreamKey};
use crate::error::H3ErrorCode;
use crate::{frame, varint};

/// The bytes of data for which a token is put back into the budget for overhead.
const BYTES_PER_TOKEN: usize = 512;

/// The size of the status of a response as a field line.
// Seven of `:status`, three digits, and 32 that each line counts (section 4.2.2).
const STATUS_BYTES: usize = 42;

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The connection is shutting down, or this end is a server.
    ShuttingDown,
    /// There are no [`available_streams`](H3Connection::available_streams).
    TooManyStreams,
    /// The server allows no field section of this size (section 4.2.2).
    HeadTooLarge,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShuttingDown => "the connection accepts no more requests",
            Self::TooManyStreams => "too many requests are open on the connection",
            Self::HeadTooLarge => "the head of the request is larger than the server allows",
        })
    }
}

impl std::error::Error for RequestError {}

impl H3Connection {
    /// Sends a request on a new bidirectional stream of the transport with the identifier `id` (at a client). The
    /// caller ends the stream after `out` if `end`.
    ///
    /// # Errors
    /// Nothing was appended, and the stream is not known to the connection. The caller should check
    /// [`available_streams`](Self::available_streams) before it opens a stream.
    pub fn send_request(
        &mut self,
        id: u64,
        head: OutgoingRequest<'_>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<StreamKey, RequestError> {
        if self.role == H3Role::Server || self.is_shutting_down() {
            return Err(RequestError::ShuttingDown);
        }
        if self.available_streams() == 0 {
            return Err(RequestError::TooManyStreams);
        }
        // Before anything is encoded: what the encoder inserts into its table cannot be taken back.
        let mut size = 0_usize;
        head.for_each_line(|(name, value, _)| size = size.saturating_add(line_size(name, value)));
        if !self.fits_peer(size) {
            return Err(RequestError::HeadTooLarge);
        }
        let encoder = &mut self.encoder;
        frame::headers(out, |out| {
            let mut references = encoder.begin(out);
            head.for_each_line(|line| encoder.line(line, &mut references, out));
            encoder.end(id, references, out);
        });
        self.seen.insert(id / ID_STEP);
        let stream = RequestStream {
            request: head.kind(),
            is_tunnel: head.kind().is_connect(),
            outgoing: if end { Outgoing::Ended } else { Outgoing::Body },
            ..self.new_stream(Incoming::Head)
        };
        Ok(self.streams.insert(id, stream))
    }

    /// Whether the peer allows a field section of this size (SETTINGS_MAX_FIELD_SECTION_SIZE).
    fn fits_peer(&self, section_bytes: usize) -> bool {
        let size = u64::try_from(section_bytes).unwrap_or(u64::MAX);
        size <= self.peer_settings().field_section_bytes
    }

    /// Sends an interim response, such as 100 and 103.
    pub fn send_informational(
        &mut self,
        stream: StreamKey,
        status: StatusCode,
        headers: &Headers,
        out: &mut Vec<u8>,
    ) {
        let is_possible = self
            .streams
            .get(stream)
            .is_some_and(|known| known.outgoing == Outgoing::Head);
        if is_possible
            && self.role == H3Role::Server
            && is_interim(status)
            && self.fits_peer(lines_size(headers).saturating_add(STATUS_BYTES))
        {
            let encoder = &mut self.encoder;
            frame::headers(out, |out| {
                let mut references = encoder.begin(out);
                encoder.status(status, &mut references, out);
                encoder.headers(headers, false, &mut references, out);
                encoder.end(stream.id(), references, out);
            });
        }
    }

    /// Sends the head of a response, without connection-specific fields. A 101 in response to an extended CONNECT
    /// becomes 200, and the data in both directions is the tunnel. Any other 1xx status is not final, so 500 replaces
    /// it, as it does if the fields are larger than the client allows. The caller ends the stream after `out` if there
    /// is no body.
    pub fn send_head(
        &mut self,
        stream: StreamKey,
        head: ResponseHead<'_>,
        out: &mut Vec<u8>,
    ) -> ExpectedBody {
        let size = lines_size(head.headers)
            .saturating_add(STATUS_BYTES)
            .saturating_add(line_size(b"date", head.date))
            .saturating_add(line_size(b"server", head.server.unwrap_or("").as_bytes()))
            .saturating_add(line_size(b"alt-svc", head.alt_svc.unwrap_or("").as_bytes()))
            // A bound: 20 digits are the longest length, and a field that is there already counts twice.
            .saturating_add(line_size(b"content-length", &[0; 20]));
        if !self.fits_peer(size) {
            // Larger than the client accepts (section 4.2.2): it would discard the response, or end the connection.
            let head = ResponseHead {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                headers: &Headers::new(),
                content_length: Some(0),
                ..head
            };
            return self.write_head(stream, head, out);
        }
        self.write_head(stream, head, out)
    }

    fn write_head(
        &mut self,
        stream: StreamKey,
        head: ResponseHead<'_>,
        out: &mut Vec<u8>,
    ) -> ExpectedBody {
        let Some(known) = self.streams.get_mut(stream) else {
            return ExpectedBody::None;
        };
        if known.outgoing != Outgoing::Head || self.role == H3Role::Client {
            return ExpectedBody::None;
        }
        let plan = ResponsePlan::of(&head, known.request);
        let encoder = &mut self.encoder;
        frame::headers(out, |out| {
            let mut references = encoder.begin(out);
            encoder.status(plan.status, &mut references, out);
            encoder.headers(head.headers, plan.keeps_length, &mut references, out);
            if let Some(length) = plan.added_length() {
                let mut digits = Vec::with_capacity(20);
                decimal(length, &mut digits);
                let line = (&b"content-length"[..], digits.as_slice(), false);
                encoder.line(line, &mut references, out);
            }
            if let Some(server) = head.server.filter(|_| !plan.has_server) {
                let line = (&b"server"[..], server.as_bytes(), false);
                encoder.line(line, &mut references, out);
            }
            if let Some(alt_svc) = head.alt_svc.filter(|_| !plan.has_alt_svc) {
                let line = (&b"alt-svc"[..], alt_svc.as_bytes(), false);
                encoder.line(line, &mut references, out);
            }
            if !plan.has_date {
                let line = (&b"date"[..], &head.date[..], false);
                encoder.line(line, &mut references, out);
            }
            encoder.end(stream.id(), references, out);
        });
        known.outgoing = Outgoing::Body;
        known.is_tunnel &= plan.status.is_success();
        if plan.body == ExpectedBody::None {
            self.end_sending(stream);
        }
        plan.body
    }

    /// Schedules a stream that has data to send, and that the transport allows to send it.
    pub fn want_send(&mut self, stream: StreamKey) {
        if let Some(known) = self.streams.get_mut(stream)
            && known.outgoing == Outgoing::Body
            && !std::mem::replace(&mut known.is_scheduled, true)
        {
            self.schedule.insert(stream, known.priority);
        }
    }

    /// Returns the next stream that may send a frame.
    pub fn next_send(&mut self) -> Option<StreamKey> {
        let stream = self.schedule.pop()?;
        if let Some(known) = self.streams.get_mut(stream) {
            known.is_scheduled = false;
        }
        Some(stream)
    }

    /// Appends the header of a DATA frame of `len` bytes, to be followed by the data at once; nothing if `len` is 0. The
    /// caller ends the stream after it if `end`. Returns whether the stream is open, and may send data.
    pub fn send_data(
        &mut self,
        stream: StreamKey,
        len: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let is_possible = self
            .streams
            .get(stream)
            .is_some_and(|known| known.outgoing == Outgoing::Body);
        if is_possible {
            self.budgets.acks.earn(1);
            let tokens = u32::try_from(len / BYTES_PER_TOKEN).unwrap_or(0);
            self.budgets.overhead.earn(tokens.saturating_add(1));
            if len > 0 {
                frame::data(len, out);
            }
            if end {
                self.end_sending(stream);
            }
        }
        is_possible
    }

    /// Sends the trailer section, without the fields that it must not contain; nothing if it has no others, or more than
    /// the peer allows. The caller ends the stream after it.
    pub fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers, out: &mut Vec<u8>) {
        let is_tunnel = self
            .streams
            .get(stream)
            .filter(|known| known.outgoing == Outgoing::Body)
            .map(|known| known.is_tunnel);
        let Some(is_tunnel) = is_tunnel else {
            return;
        };
        let mut lines = trailers
            .hpack_lines()
            .filter(|line| is_allowed_in_trailers(line.0))
            .peekable();
        // A tunnel has DATA frames alone (section 4.4), and trailers that the peer does not accept are left out: the
        // body is whole without them.
        if lines.peek().is_some() && !is_tunnel && self.fits_peer(lines_size(trailers)) {
            let encoder = &mut self.encoder;
            frame::headers(out, |out| {
                let mut references = encoder.begin(out);
                lines.for_each(|line| encoder.line(line, &mut references, out));
                encoder.end(stream.id(), references, out);
            });
        }
        self.end_sending(stream);
    }

    /// Closes a stream in both directions.
    pub fn reset(&mut self, stream: StreamKey, code: H3ErrorCode) {
        if self.role == H3Role::Client && self.is_open(stream) {
            // The origin's response may be in flight, and must not count against the origin.
            self.budgets.overhead.earn(4);
        }
        self.abort(stream, code);
    }

    /// Discards further data from the peer on a stream. It is asked to send no more when this end has ended the stream,
    /// as a complete response does (section 4.1).
    pub fn abandon(&mut self, stream: StreamKey) {
        let Some(known) = self.streams.get_mut(stream) else {
            return;
        };
        if matches!(known.incoming, Incoming::Discarded | Incoming::Ended) {
            return;
        }
        known.incoming = Incoming::Discarded;
        self.buffered = self.buffered.saturating_sub(known.section_bytes());
        known.buffer = Vec::new();
        known.frame = FrameProgress::Start;
        // A section that waits for inserts is not decoded any more. The peer has to know, or it could never evict the
        // entries that the section refers to (RFC 9204 section 2.2.2.2).
        self.blocked.retain(|(id, _)| *id != stream.id());
        self.decoder.cancel(stream.id());
        if known.outgoing == Outgoing::Ended {
            self.stop_receiving(stream);
        }
    }

    /// Starts a graceful shutdown (section 5.2): asks the client to send no more requests, and accepts those in flight.
    /// About one round trip later [`go_away`](Self::go_away) has to follow. A client has no streams of the server to
    /// wait for, so that this is its final GOAWAY.
    pub fn shut_down(&mut self) {
        if self.shutdown == H3Shutdown::Open && self.failure.is_none() {
            if self.role == H3Role::Client {
                return self.go_away();
            }
            self.shutdown = H3Shutdown::Announced;
            // The largest identifier of a request stream.
            frame::go_away(varint::MAX.saturating_sub(3), &mut self.control);
        }
    }

    /// Sends the final GOAWAY with the first request that is not accepted. Later ones are rejected, open ones continue.
    pub fn go_away(&mut self) {
        if !matches!(self.shutdown, H3Shutdown::Final(_)) && self.failure.is_none() {
            let end = match self.role {
                H3Role::Server => self.next_request_id(),
                // A push identifier: none was allowed.
                H3Role::Client => 0,
            };
            self.shutdown = H3Shutdown::Final(end);
            frame::go_away(end, &mut self.control);
        }
    }

    /// Frees memory that the connection does not need while no stream is open.
    pub fn release_memory(&mut self) {
        self.streams.shrink();
        if self.streams.open_count() == 0 {
            self.schedule.shrink();
        }
    }
}

/// The size of a field line (section 4.2.2).
fn line_size(name: &[u8], value: &[u8]) -> usize {
    name.len().saturating_add(value.len()).saturating_add(32)
}

/// The size of field lines. Their HTTP/1.1 form has four bytes more for each than name and value.
fn lines_size(headers: &Headers) -> usize {
    let lines = headers.len().saturating_mul(28);
    headers.wire().len().saturating_add(lines)
}
