//! The input of an HTTP/3 connection: its events, and those that the codec finds in its streams.

use std::task::{Context, Poll};
use std::time::Instant;

use apus_codec::messages::RequestKind;
use apus_h3::{H3Error, H3ErrorCode, H3Event, IncomingRequest, StreamKey};
use apus_h3_quic::number_of;
use apus_http::{BodyError, Glitch, HeaderName, HeaderValue, Method, ResponseOutcome, StatusCode};
use apus_quic::{QuicCloseReason, QuicEvent, StreamEvent};

use super::Http3Connection;

/// The field that tells origins of early data (RFC 8470 section 5.1).
const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

impl Http3Connection<'_> {
    /// Handles the events of the connection; returns whether there were any.
    pub(super) fn poll_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while !self.closed
            && let Poll::Ready(event) = self.streams.protocol.transport.quic.poll_event(cx)
        {
            any = true;
            match event {
                QuicEvent::Connected { .. } => {
                    self.worker.counters.handshakes.add(1);
                    self.streams.is_client_proven = true;
                }
                QuicEvent::Stream(StreamEvent::Opened(stream) | StreamEvent::Readable(stream)) => {
                    self.input.note_readable(number_of(stream));
                }
                QuicEvent::Stream(StreamEvent::Writable(stream)) => {
                    let transport = &mut self.streams.protocol.transport;
                    transport.note_writable(number_of(stream));
                }
                QuicEvent::Stream(StreamEvent::Finished(stream)) => {
                    let protocol = &mut self.streams.protocol;
                    protocol.report(number_of(stream), ResponseOutcome::Complete);
                }
                QuicEvent::Stream(StreamEvent::Stopped { stream, code }) => {
                    let id = number_of(stream);
                    let codec = &mut self.streams.protocol.transport.codec;
                    let event = codec.handle_stop_sending(id, H3ErrorCode(code));
                    self.streams.protocol.forget_output(id);
                    self.handle_result(event);
                }
                QuicEvent::Stream(StreamEvent::Available(_)) => {}
                QuicEvent::Closed(reason) => self.note_closed(&reason),
            }
        }
        self.streams.protocol.transport.continue_outputs();
        if any {
            self.timers.read_at = self.worker.clock.ticks();
            self.streams.arrived = Instant::now();
        }
        any
    }

    /// Reads the streams that have data, up to the share of this poll; returns whether there were any.
    pub(super) fn read_streams(&mut self) -> bool {
        let any = self.input.is_due(&self.streams.protocol.transport);
        let now = self.worker.clock.ticks();
        self.input.begin_round();
        while !self.closed && !self.streams.budget.is_full_of_requests() {
            let transport = &mut self.streams.protocol.transport;
            match self.input.next_event(transport, now) {
                Some(Ok(event)) => self.handle(event),
                Some(Err(error)) => self.fail(error),
                None => break,
            }
        }
        self.worker
            .counters
            .bytes_in
            .add(self.input.take_read() as u64);
        any
    }

    /// Notes what the services have read; returns whether there is anything to read.
    pub(super) fn resume_inputs(&mut self) -> bool {
        let protocol = &mut self.streams.protocol;
        for (id, bytes) in protocol.consumed.drain(..) {
            self.input.note_consumed(id, bytes);
        }
        self.input.is_due(&protocol.transport)
    }

    fn handle_result(&mut self, result: Result<Option<H3Event>, H3Error>) {
        match result {
            Ok(Some(event)) => self.handle(event),
            Ok(None) => {}
            Err(error) => self.fail(error),
        }
    }

    fn handle(&mut self, event: H3Event) {
        match event {
            H3Event::Request(request) => self.handle_request(request),
            H3Event::Refused { stream, why } => self.streams.refuse(stream, why.status(), &why),
            H3Event::Malformed { stream, fault } => {
                self.streams.count_malformed();
                tracing::debug!(peer = %self.streams.info.peer, error = %fault, "refused a request");
                self.streams.fail_body(stream, BodyError::Malformed);
                self.streams.drop_stream(stream);
            }
            H3Event::Data { stream, data, end } => {
                self.streams.take_data(stream, &data, end);
            }
            H3Event::Trailers { stream, trailers } => {
                self.streams.take_trailers(stream, *trailers);
            }
            H3Event::Reset { stream, code } => {
                tracing::debug!(peer = %self.streams.info.peer, %code, "a client reset a stream");
                self.streams.drop_reset_stream(stream);
            }
            H3Event::PriorityUpdate { stream } => {
                self.streams.protocol.transport.set_priority(stream);
            }
            H3Event::GoAway { .. } => {
                tracing::debug!(peer = %self.streams.info.peer, "a client ends its connection");
            }
            // Handled by the caller, without consequence here, or events of a client.
            H3Event::Incomplete
            | H3Event::Blocked
            | H3Event::Settings
            | H3Event::Informational { .. }
            | H3Event::Response { .. }
            | H3Event::BodyRefused { .. } => {}
        }
    }

    /// Calls the service for a request. Early data may have been sent by an attacker again, so that requests with
    /// effects wait for the handshake: their clients repeat them (RFC 8470 section 5.2).
    fn handle_request(&mut self, mut request: IncomingRequest<StreamKey>) {
        if self.streams.protocol.transport.quic.is_early() {
            // RFC 8470 section 4: only what may be repeated without harm.
            let is_safe = matches!(
                request.head.method,
                Method::GET | Method::HEAD | Method::OPTIONS
            );
            if !is_safe || !request.end || request.kind == RequestKind::ExtendedConnect {
                let why = "the request could be a replay";
                return self
                    .streams
                    .refuse(request.stream, StatusCode::TOO_EARLY, &why);
            }
            let (name, value) = (EARLY_DATA, HeaderValue::from_static("1"));
            request.head.headers.insert(&name, &value);
        }
        self.update_address();
        self.streams.call(request);
    }

    /// Notes the end of the connection. A client that has a whole response may close before it acknowledges that.
    fn note_closed(&mut self, reason: &QuicCloseReason) {
        tracing::debug!(peer = %self.streams.info.peer, %reason, "an HTTP/3 connection ended");
        self.closed = true;
        match reason {
            QuicCloseReason::Evicted => self.worker.counters.evicted.add(1),
            QuicCloseReason::Local => {}
            QuicCloseReason::Transport { .. } => self.streams.note_glitch(Glitch::Protocol),
            _ => self.streams.note_client_left(),
        }
        // 0 is no error code of HTTP/3 (RFC 9114 section 8.1), but libraries such as quinn close with it when a program
        // drops its connection.
        let is_content = matches!(
            reason,
            QuicCloseReason::Application { code, .. }
                if *code == 0 || *code == H3ErrorCode::NO_ERROR.0
        );
        if is_content {
            self.streams.protocol.report_all(ResponseOutcome::Complete);
        }
    }
}
