//! The task of an HTTP/2 connection to an origin.
//!
//! It reads the input, opens streams for queued requests, polls the streams that were woken, writes once, and
//! repeats.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use apus_codec::h2::{ConnectionError, ErrorCode};
use apus_transport::write_batch::MAX_UNSENT;
use apus_transport::{InputBuffer, PollBudget, Transport, yield_to_events};

use super::protocol::Http2ClientProtocol;
use super::timers::ClientTimers;
use crate::Timeouts;
use crate::streams::{CloseReason, OriginStreams};

/// The time limit of the last write.
// The last frame is GOAWAY, which nobody waits for: an origin that reads nothing must not hold the socket longer for
// it.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The task's side of a connection.
pub(super) struct Http2ClientDriver {
    pub(super) streams: OriginStreams<Http2ClientProtocol>,
    pub(super) transport: Transport,
    pub(super) input: InputBuffer,
    /// Whether the input may have complete frames.
    pub(super) unhandled: bool,
    /// Whether the last write may have filled the socket.
    pub(super) wrote_much: bool,
    pub(super) timers: ClientTimers,
    pub(super) budget: PollBudget,
}

impl Http2ClientDriver {
    /// A connection over a transport on which nothing was sent or received.
    pub(super) fn new(
        mut transport: Transport,
        timeouts: &Timeouts,
        streams: OriginStreams<Http2ClientProtocol>,
    ) -> Self {
        transport.limit_unsent(MAX_UNSENT);
        Self {
            streams,
            transport,
            input: InputBuffer::default(),
            unhandled: false,
            wrote_much: false,
            timers: ClientTimers::new(timeouts),
            budget: PollBudget::default(),
        }
    }

    /// Drives the connection to its end.
    pub(super) async fn run(mut self) {
        let reason = poll_fn(|cx| self.poll(cx)).await;
        if !matches!(reason, CloseReason::Closed) {
            tracing::debug!(error = %reason.cause(), "a connection to an origin ended");
        }
        // Before the last write, for which their senders do not have to wait.
        self.streams.fail_all(&reason);
        // After an error of the socket or a timeout, nothing can be written.
        if matches!(reason, CloseReason::Closed | CloseReason::Protocol(_)) {
            let _ = tokio::time::timeout(END_WITHIN, poll_fn(|cx| self.poll_shutdown(cx))).await;
        }
    }

    /// Polls the connection until there is no progress, or until its share of the worker is spent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason<ConnectionError>> {
        self.streams.watch(cx);
        self.budget = PollBudget::default();
        let age = self.streams.age();
        self.streams.protocol.codec.advance(age);
        loop {
            self.budget.rounds += 1;
            let progress = match self.round(cx) {
                Ok(progress) => progress,
                Err(reason) => return Poll::Ready(reason),
            };
            let ends = self.streams.protocol.end.is_some();
            self.streams.update_capacity(ends);
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
            let protocol = &mut self.streams.protocol;
            // While it waits, the connection holds no buffers.
            self.input.release(&protocol.buffers);
            protocol.out.release(&protocol.buffers);
            ready!(self.poll_timer(cx));
            if let Err(reason) = self.handle_deadline(Instant::now()) {
                return Poll::Ready(reason);
            }
        }
    }

    /// Reads, polls the streams and writes; returns whether there was any progress.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason<ConnectionError>> {
        let mut progress = self.poll_input(cx)?;
        // Streams that end free their slots for queued requests, whose first data leaves with their heads.
        progress |= self.streams.poll_streams();
        if self.streams.open_queued() {
            progress = true;
            self.streams.poll_streams();
        }
        progress |= self.poll_output(cx)?;
        Ok(progress)
    }

    /// Waits for the next deadline.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ping_at = self.ping_at();
        self.timers.poll(cx, [self.streams.examine_at, ping_at])
    }

    /// When to send a PING, or to give up waiting for its acknowledgement; `None` while no request is open.
    fn ping_at(&self) -> Option<Instant> {
        let awaits_ack = self.streams.protocol.codec.awaits_ping_ack();
        let is_used = self.streams.is_used();
        // Nobody waits for an idle connection, and a gRPC server takes PINGs without streams for abuse.
        is_used.then(|| self.timers.ping_at(awaits_ack))
    }

    /// Handles the deadlines that have passed.
    fn handle_deadline(&mut self, now: Instant) -> Result<(), CloseReason<ConnectionError>> {
        if self.timers.is_write_overdue(now) {
            return Err(CloseReason::TimedOut);
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            let protocol = &mut self.streams.protocol;
            if protocol.codec.awaits_ping_ack() {
                tracing::debug!("an origin acknowledges no PING");
                return Err(CloseReason::TimedOut);
            }
            self.timers.note_ping(now);
            let frames = protocol.out.frames(&protocol.buffers);
            protocol.codec.ping(frames);
        }
        self.streams.examine_if_due(now);
        Ok(())
    }

    /// Why the connection ends, if it has.
    fn ended(&mut self) -> Option<CloseReason<ConnectionError>> {
        let is_unused = !self.streams.is_used() && self.streams.is_unwanted();
        let protocol = &mut self.streams.protocol;
        if protocol.end.is_some() {
            return protocol.end.take();
        }
        if is_unused {
            let frames = protocol.out.frames(&protocol.buffers);
            protocol.codec.go_away(ErrorCode::NO_ERROR, frames);
            return Some(CloseReason::Closed);
        }
        None
    }

    /// Writes the remaining bytes, and ends our side.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Http2ClientProtocol { out, buffers, .. } = &mut self.streams.protocol;
        while !out.is_empty() {
            ready!(out.poll_write(cx, &mut self.transport, buffers))?;
        }
        ready!(self.transport.poll_flush(cx))?;
        self.transport.poll_shutdown(cx)
    }
}
