//! The commands of a connection: heads, scheduling and data, resets, window updates, and shutdown.

use super::{
    Http2Codec, KEEP_ALIVE_PING, MIN_UPDATE, ReadState, Role, SHUTDOWN_PING, SIZEABLE_FRAME,
    ShutdownState, TINY_FRAME,
};
use crate::h2::frame::{self, DEFAULT_MAX_PAYLOAD};
use crate::h2::streams::{ReceiveState, ScheduleState, SendState, StreamState};
use crate::h2::{ConnectionError, ErrorCode, StreamKey};
use crate::messages::{ExpectedBody, OutgoingRequest, ResponsePlan};
use apus_http::response_head::decimal;
use apus_http::trailers::is_allowed_in_trailers;
use apus_http::{Headers, ResponseHead, is_interim};
use http::StatusCode;

impl Http2Codec {
    /// Opens a stream with a request (at a client): `None` if there are no
    /// [`available_streams`](Self::available_streams).
    pub fn send_request(
        &mut self,
        head: OutgoingRequest<'_>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Option<StreamKey> {
        if self.available_streams() == 0 {
            return None;
        }
        let id = self.next_local;
        self.next_local = id.saturating_add(2);
        let kind = head.kind();
        let encoder = &mut self.encoder;
        frame::field_block(id, end, self.peer.max_frame_size, out, |out| {
            encoder.begin(out);
            head.for_each_line(|line| encoder.line(line, out));
        });
        let stream = StreamState {
            request: kind,
            sending: if end {
                SendState::Ended
            } else {
                SendState::Body
            },
            ..self.new_stream(ReceiveState::Head)
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
        if known.sending == SendState::Head && is_interim(status) {
            let encoder = &mut self.encoder;
            frame::field_block(stream.id(), false, self.peer.max_frame_size, out, |out| {
                encoder.begin(out);
                encoder.status(status, out);
                encoder.headers(headers, false, out);
            });
        }
    }

    /// Sends the head of a response, without connection-specific fields. A 101 in response to an extended
    /// CONNECT becomes 200, and the data in both directions is the tunnel. Any other 1xx status is not
    /// final, so 500 replaces it.
    pub fn send_head(
        &mut self,
        stream: StreamKey,
        head: ResponseHead<'_>,
        out: &mut Vec<u8>,
    ) -> ExpectedBody {
        let Some(known) = self.streams.get_mut(stream) else {
            return ExpectedBody::None;
        };
        if known.sending != SendState::Head || self.role == Role::Client {
            return ExpectedBody::None;
        }
        let plan = ResponsePlan::of(&head, known.request);
        // END_STREAM on the head saves the frame of 9 bytes that 304 and HEAD would need beside it.
        let end = plan.body == ExpectedBody::None;
        let encoder = &mut self.encoder;
        frame::field_block(stream.id(), end, self.peer.max_frame_size, out, |out| {
            encoder.begin(out);
            encoder.status(plan.status, out);
            encoder.headers(head.headers, plan.keeps_length, out);
            if let Some(length) = plan.added_length() {
                let mut digits = Vec::with_capacity(20);
                decimal(length, &mut digits);
                encoder.field(b"content-length", &digits, out);
            }
            if let Some(server) = head.server.filter(|_| !plan.has_server) {
                encoder.server(server.as_bytes(), out);
            }
            if let Some(alt_svc) = head.alt_svc.filter(|_| !plan.has_alt_svc) {
                encoder.field(b"alt-svc", alt_svc.as_bytes(), out);
            }
            if !plan.has_date {
                encoder.date(head.date, out);
            }
        });
        known.sending = SendState::Body;
        if end {
            self.end_sending(stream, out);
        }
        plan.body
    }

    /// Schedules a stream that has data to send.
    pub fn want_send(&mut self, stream: StreamKey) {
        if let Some(known) = self.streams.get_mut(stream)
            && known.schedule_state == ScheduleState::Idle
            && known.sending == SendState::Body
        {
            if known.send_window > 0 {
                known.schedule_state = ScheduleState::Queued;
                self.schedule.insert(stream, known.priority);
            } else {
                known.schedule_state = ScheduleState::Stalled;
            }
        }
    }

    /// Returns the next stream, and how many bytes its next frame may have (at least 1). `None` if no
    /// stream has data to send, or windows are closed.
    pub fn next_send(&mut self) -> Option<(StreamKey, usize)> {
        let connection = usize::try_from(self.send_window).unwrap_or(0);
        if connection == 0 {
            return None;
        }
        loop {
            let key = self.schedule.pop()?;
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let window = usize::try_from(stream.send_window).unwrap_or(0);
            if window == 0 {
                // SETTINGS closed the window after the stream was scheduled.
                stream.schedule_state = ScheduleState::Stalled;
                continue;
            }
            stream.schedule_state = ScheduleState::Idle;
            // At most 16 KiB, even if the peer allows more: the next frame may be of a more urgent stream.
            return Some((key, window.min(connection).min(DEFAULT_MAX_PAYLOAD)));
        }
    }

    /// Appends the header of a DATA frame of `len` bytes, at most what
    /// [`next_send`](Self::next_send) gave, to be followed by the data at once. An empty frame
    /// that ends the stream needs no scheduling.
    ///
    /// # Errors
    /// The client keeps its windows so small that data leaves in tiny frames. The connection has to be
    /// closed after the GOAWAY in `out` was sent.
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
        if known.sending != SendState::Body {
            return Ok(());
        }
        let bytes = i32::try_from(len).unwrap_or(i32::MAX);
        known.send_window = known.send_window.saturating_sub(bytes);
        self.send_window = self.send_window.saturating_sub(bytes);
        let is_window_closed = known.send_window <= 0 || self.send_window <= 0;
        // What this end sends pays for what the peer has to say about it: PING by which clients measure the bandwidth,
        // and updates of both windows.
        self.budgets.acks.earn(1);
        let updates = u32::try_from(len / MIN_UPDATE).unwrap_or(0);
        self.budgets.overhead.earn(updates.saturating_add(4));
        if len >= SIZEABLE_FRAME {
            self.budgets.tiny_windows.earn(1);
        } else if len < TINY_FRAME
            // A small frame alone is no attack: bodies of events or of the end of a file are small. It is one if the
            // window was the reason (CVE-2019-9511).
            && is_window_closed
            && !end
            && let Err(flood) = self.budgets.tiny_windows.spend()
        {
            let error = ConnectionError::Flood(flood);
            frame::go_away(self.last_peer, error.code(), &error.to_string(), out);
            self.reading = ReadState::Failed(error);
            return Err(error);
        }
        frame::data(len, end, stream.id(), out);
        if end {
            self.end_sending(stream, out);
        }
        Ok(())
    }

    /// Sends the trailer section, without the fields that it must not contain, and ends this end's side of
    /// the stream. Needs no scheduling.
    pub fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers, out: &mut Vec<u8>) {
        let is_possible = self
            .streams
            .get(stream)
            .is_some_and(|known| known.sending == SendState::Body);
        if is_possible {
            let is_allowed_in_trailers =
                |line: &(&[u8], &[u8], bool)| is_allowed_in_trailers(line.0);
            let mut lines = trailers
                .hpack_lines()
                .filter(is_allowed_in_trailers)
                .peekable();
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

    /// Resets a stream and closes it. `NO_ERROR` after a complete response asks the client to stop sending
    /// the request body (section 8.1).
    pub fn reset(&mut self, stream: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some() {
            if self.role == Role::Client {
                // The origin's response may be in flight, and must not count against the origin. A
                // server's budget gets the same tokens for a request.
                self.budgets.overhead.earn(4);
            }
            self.closed_streams.add_reset(stream.id());
            self.remove(stream, out);
            frame::rst_stream(stream.id(), code, out);
        }
    }

    /// Discards further data from the peer on a stream, up to the stream's window, which is not enlarged
    /// any more. A [`reset`](Self::reset) with `NO_ERROR` (section 8.1) can ask the peer to stop, but
    /// should be delayed: some clients drop the response when they receive it.
    pub fn abandon(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        let Some(known) = self.streams.get_mut(stream) else {
            return;
        };
        if known.receiving == ReceiveState::Ended {
            return;
        }
        // The window of the stream stays closed, so that the client sends no more than it may already; the window of
        // the connection opens again, as the other streams need it.
        known.receiving = ReceiveState::Discarded;
        let unread = std::mem::take(&mut known.unread);
        self.receive_window.release(unread, out);
    }

    /// Reports data of [`Http2Event::Data`](super::Http2Event::Data) as consumed, which opens windows.
    pub fn consumed(&mut self, stream: StreamKey, bytes: usize, out: &mut Vec<u8>) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let target = self.receive_window.stream_target();
        // The unconsumed data of a closed stream was released when it was closed.
        let Some(known) = self.streams.get_mut(stream) else {
            return;
        };
        let bytes = bytes.min(known.unread);
        known.unread = known.unread.saturating_sub(bytes);
        known.release(stream.id(), bytes, target, out);
        self.receive_window.release(bytes, out);
    }

    /// Starts a graceful shutdown (section 6.8): asks the peer to open no more streams, and accepts the
    /// streams in flight until the peer has acknowledged a PING. [`is_finished`](Self::is_finished)
    /// returns when it is complete; [`go_away`](Self::go_away) stops waiting for a peer that does not
    /// acknowledge.
    pub fn shut_down(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == ShutdownState::Open && !matches!(self.reading, ReadState::Failed(_)) {
            self.shutdown = ShutdownState::Announced;
            if self.role == Role::Client {
                // A server does not open streams, so none can be in flight.
                self.go_away(ErrorCode::NO_ERROR, out);
                return;
            }
            // The largest identifier first, and the real one after a round trip: requests that are on their way are
            // then served, and not lost (section 6.8).
            frame::go_away(0x7fff_ffff, ErrorCode::NO_ERROR, "", out);
            frame::ping(SHUTDOWN_PING, false, out);
        }
    }

    /// Sends the final GOAWAY with the last accepted stream. Later streams are refused, open ones continue.
    pub fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if !matches!(self.shutdown, ShutdownState::Final(_))
            && !matches!(self.reading, ReadState::Failed(_))
        {
            self.shutdown = ShutdownState::Final(self.last_peer);
            frame::go_away(self.last_peer, code, "", out);
        }
    }

    /// Sends a PING to check that the peer is alive, unless one is in flight.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.awaits_ping_ack, true) {
            frame::ping(KEEP_ALIVE_PING, false, out);
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
