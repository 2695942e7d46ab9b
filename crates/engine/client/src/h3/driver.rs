//! The task of an HTTP/3 connection to an origin.
//!
//! It handles the events of QUIC, reads the streams, opens streams for queued requests, polls those that were woken, passes
//! their data to QUIC, and repeats.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use apus_h3::{H3Error, H3ErrorCode, H3Event};
use apus_h3_quic::{CHUNK, number_of};
use apus_quic::{QuicEvent, StreamEvent, StreamId};
use apus_transport::{PollBudget, yield_to_events};
use bytes::Bytes;

use super::endpoint::ClientEndpoint;
use super::fault::Http3Fault;
use super::protocol::Http3ClientProtocol;
use crate::Timeouts;
use crate::deadline::{DeadlineTimer, after, earliest};
use crate::streams::{ClientProtocol, CloseReason, OriginStreams};

/// The task's side of a connection.
pub(super) struct Http3ClientDriver {
    streams: OriginStreams<Http3ClientProtocol>,
    budget: PollBudget,
    deadline: DeadlineTimer,
    /// By when the settings of the origin have to come, which requests for tunnels wait for.
    settings_by: Option<Instant>,
    /// Why the connection ends.
    end: Option<CloseReason<Http3Fault>>,
    /// Whether what QUIC has received is read before that.
    is_draining: bool,
    /// Exists as long as the connection.
    _endpoint: Rc<ClientEndpoint>,
}

impl Http3ClientDriver {
    /// A connection over which nothing was sent or received.
    pub(super) fn new(
        streams: OriginStreams<Http3ClientProtocol>,
        timeouts: &Timeouts,
        endpoint: Rc<ClientEndpoint>,
    ) -> Self {
        Self {
            streams,
            budget: PollBudget::default(),
            deadline: DeadlineTimer::default(),
            settings_by: Some(after(timeouts.connect)),
            end: None,
            is_draining: false,
            _endpoint: endpoint,
        }
    }

    /// Notes streams that the origin has opened.
    pub(super) fn note_readable(&mut self, streams: Vec<StreamId>) {
        for stream in streams {
            self.streams.protocol.input.note_readable(number_of(stream));
        }
    }

    /// Drives the connection to its end.
    pub(super) async fn run(mut self) {
        let reason = poll_fn(|cx| self.poll(cx)).await;
        if !matches!(reason, CloseReason::Closed) {
            tracing::debug!(error = %reason.cause(), "a connection to an origin ended");
        }
        self.streams.fail_all(&reason);
        let (code, text) = match &reason {
            CloseReason::Protocol(Http3Fault::Codec(error)) => (error.code(), error.to_string()),
            _ => (H3ErrorCode::NO_ERROR, String::new()),
        };
        let quic = &self.streams.protocol.transport.quic;
        quic.close(code.0, Bytes::from(text));
    }

    /// Polls the connection until there is no progress, or until its share of the worker is spent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason<Http3Fault>> {
        self.streams.watch(cx);
        self.budget = PollBudget::default();
        let age = self.streams.age();
        self.streams.protocol.transport.codec.advance(age);
        loop {
            self.budget.rounds += 1;
            let progress = self.round(cx);
            self.streams.update_capacity(self.end.is_some());
            if let Some(reason) = self.ended() {
                return Poll::Ready(reason);
            }
            if progress {
                if self.budget.is_spent() {
                    yield_to_events(cx);
                    return Poll::Pending;
                }
                continue;
            }
            ready!(self.poll_timer(cx));
            self.handle_deadline(Instant::now());
        }
    }

    /// Reads, polls the streams and writes; returns whether there was any progress.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = self.poll_events(cx);
        progress |= self.read_streams();
        self.streams.deliver_pending();
        // Streams that end free their slots for queued requests, whose first data leaves with their heads.
        progress |= self.streams.poll_streams();
        self.streams.protocol.reserve_streams();
        if self.streams.open_queued() {
            progress = true;
            self.streams.poll_streams();
        }
        progress |= self.fill();
        let protocol = &self.streams.protocol;
        progress | protocol.input.is_due(&protocol.transport)
    }

    /// Handles the events of QUIC; returns whether there were any.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.end.is_none()
            && let Poll::Ready(event) = self.streams.protocol.transport.quic.poll_event(cx)
        {
            any = true;
            let protocol = &mut self.streams.protocol;
            match event {
                QuicEvent::Stream(StreamEvent::Opened(stream) | StreamEvent::Readable(stream)) => {
                    protocol.input.note_readable(number_of(stream));
                }
                QuicEvent::Stream(StreamEvent::Writable(stream)) => {
                    if let Some(stream) = protocol.transport.note_writable(number_of(stream)) {
                        self.streams.note_sent(stream);
                    }
                }
                QuicEvent::Stream(StreamEvent::Stopped { stream, code }) => {
                    let (id, code) = (number_of(stream), H3ErrorCode(code));
                    let event = protocol.transport.codec.handle_stop_sending(id, code);
                    protocol.transport.forget_output(id);
                    match event {
                        Ok(Some(event)) => self.handle(event),
                        Ok(None) => {}
                        Err(error) => self.fail(error),
                    }
                }
                QuicEvent::Closed(reason) => {
                    // A whole response may have come before the end, and its reader be slow.
                    protocol.input.read_all();
                    self.is_draining = true;
                    self.end_with(reason.into());
                }
                QuicEvent::Connected { .. }
                | QuicEvent::Stream(StreamEvent::Finished(_) | StreamEvent::Available(_)) => {}
            }
        }
        self.streams.protocol.transport.continue_outputs();
        any
    }

    /// Reads the streams that have data, up to the share of this poll; returns whether there were any.
    fn read_streams(&mut self) -> bool {
        let Http3ClientProtocol {
            transport, input, ..
        } = &mut self.streams.protocol;
        let any = input.is_due(transport);
        input.begin_round();
        while (self.end.is_none() || self.is_draining) && !self.budget.is_spent() {
            let Http3ClientProtocol {
                transport, input, ..
            } = &mut self.streams.protocol;
            // Slow field sections are limited by the deadlines of their requests, not by ticks.
            let event = input.next_event(transport, 0);
            self.budget.bytes += input.take_read();
            match event {
                Some(Ok(event)) => self.handle(event),
                Some(Err(error)) => self.fail(error),
                None => break,
            }
        }
        any
    }

    fn handle(&mut self, event: H3Event) {
        match event {
            H3Event::Informational {
                stream,
                status,
                headers,
            } => self.streams.take_interim(stream, status, *headers),
            H3Event::Response {
                stream,
                status,
                headers,
                end,
            } => self.streams.take_head(stream, status, headers, end),
            H3Event::Data { stream, data, end } => self.streams.take_data(stream, &data, end),
            H3Event::Trailers { stream, trailers } => {
                self.streams.take_end(stream, Some(*trailers));
            }
            H3Event::Reset { stream, code } => {
                tracing::debug!(%code, "an origin reset a stream");
                self.streams
                    .take_reset(stream, code == H3ErrorCode::REQUEST_REJECTED);
            }
            // The origin did not process the request (RFC 9114 section 4.1.1); its reset of the response may come
            // later than this.
            H3Event::BodyRefused { stream, code } if code == H3ErrorCode::REQUEST_REJECTED => {
                self.streams.refuse(|id| id == stream.id());
            }
            H3Event::BodyRefused { stream, .. } => self.streams.take_body_refused(stream),
            H3Event::Malformed { stream, fault } => {
                self.streams.take_malformed(stream, Box::new(fault));
            }
            H3Event::GoAway { id } => {
                tracing::debug!(id, "an origin ends its connection");
                // It does not process requests from this one on (section 5.2).
                self.streams.refuse(|stream| stream >= id);
            }
            // Handled by the input, without consequence here, or events of a server.
            H3Event::Incomplete
            | H3Event::Blocked
            | H3Event::Settings
            | H3Event::Request(_)
            | H3Event::Refused { .. }
            | H3Event::PriorityUpdate { .. } => {}
        }
    }

    /// Passes data of the scheduled streams to QUIC, until its windows or the share of this poll are full; returns
    /// whether there was any.
    fn fill(&mut self) -> bool {
        let mut any = false;
        while !self.budget.is_spent()
            && let Some(stream) = self.streams.protocol.transport.codec.next_send()
        {
            any = true;
            self.streams.send_some(stream, CHUNK);
            self.budget.bytes += self.streams.protocol.flush();
        }
        self.budget.bytes += self.streams.protocol.flush();
        any
    }

    /// Why the connection ends, if it has.
    fn ended(&mut self) -> Option<CloseReason<Http3Fault>> {
        let protocol = &self.streams.protocol;
        if self.end.is_some() {
            let is_drained = !self.is_draining || !protocol.input.is_due(&protocol.transport);
            return self.end.take_if(|_| is_drained);
        }
        let is_unused = !self.streams.is_used() && self.streams.is_unwanted();
        is_unused.then_some(CloseReason::Closed)
    }

    /// The origin broke the protocol, or spent a budget.
    fn fail(&mut self, error: H3Error) {
        // The codec returns its error again for all further input.
        self.is_draining = false;
        self.end_with(CloseReason::Protocol(Http3Fault::Codec(error)));
    }

    fn end_with(&mut self, reason: CloseReason<Http3Fault>) {
        self.streams.protocol.is_ended = true;
        // The first reason stays, as later ones follow from it.
        self.end.get_or_insert(reason);
    }

    /// Waits for the next deadline.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.streams.protocol.has_peer_settings() {
            self.settings_by = None;
        }
        match earliest(self.streams.examine_at, self.settings_by) {
            Some(at) => self.deadline.poll(cx, at),
            None => Poll::Pending,
        }
    }

    /// Handles the deadlines that have passed.
    fn handle_deadline(&mut self, now: Instant) {
        // A client must not wait for SETTINGS without end (RFC 9114 section 7.2.4.2).
        if self.settings_by.is_some_and(|by| by <= now) {
            tracing::debug!("an origin sends no SETTINGS");
            self.streams.protocol.are_settings_late = true;
        }
        self.streams.examine_if_due(now);
    }
}
