//! The time limits of an HTTP/2 connection to an origin.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h2::ConnectionError;
use apus_transport::{TICK, coarse_now};

use super::driver::Http2ClientDriver;
use crate::Timeouts;
use crate::deadline::{DeadlineTimer, after};
use crate::streams::CloseReason;

/// After so many round trips without input, although requests are open, the origin gets a PING.
const SILENT_ROUND_TRIPS: u32 = 2;

/// The time until the next PING if only the acknowledgement of the last one arrived since. gRPC servers treat
/// more than two PINGs in five minutes as abuse, and a stream may be silent for hours; TCP's keep-alive
/// notices a machine that is down by then.
const QUIET: Duration = Duration::from_secs(310);

/// Times of a connection; `None` if the limit does not apply.
pub(super) struct ClientTimers {
    deadline: DeadlineTimer,
    /// When something was read last.
    read_at: Instant,
    /// When a PING was sent last.
    pinged_at: Instant,
    /// Whether no part of a response arrived since then.
    is_quiet: bool,
    /// By when the origin has to take some of the pending output.
    write_by: Option<Instant>,
    /// How long it may take none of it.
    write: Duration,
    /// The limit of a PING's round trip.
    round_trip: Duration,
}

impl ClientTimers {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let now = coarse_now();
        Self {
            deadline: DeadlineTimer::default(),
            read_at: now,
            pinged_at: now,
            is_quiet: false,
            write_by: None,
            write: timeouts.write,
            round_trip: timeouts.connect,
        }
    }

    pub(super) fn note_read(&mut self) {
        self.read_at = coarse_now();
    }

    /// Notes that a part of a response arrived.
    pub(super) fn note_response(&mut self) {
        self.is_quiet = false;
    }

    pub(super) fn blocked(&mut self) {
        if self.write_by.is_none() {
            self.write_by = Some(after(self.write));
        }
    }

    pub(super) fn unblocked(&mut self) {
        self.write_by = None;
    }
}

impl Http2ClientDriver {
    /// Waits for the next deadline.
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ping_at = self.ping_at();
        let timers = &mut self.timers;
        let deadlines = [self.streams.examine_at, timers.write_by, ping_at];
        match deadlines.into_iter().flatten().min() {
            Some(at) => timers.deadline.poll(cx, at),
            None => Poll::Pending,
        }
    }

    /// When to send a PING, or to give up waiting for its acknowledgement.
    fn ping_at(&self) -> Option<Instant> {
        let timers = &self.timers;
        if !self.streams.is_used() {
            return None;
        }
        let at = match self.streams.protocol.codec.awaits_ping_ack() {
            true => timers.read_at.max(timers.pinged_at) + timers.round_trip,
            false if timers.is_quiet => timers.read_at + QUIET,
            false => timers.read_at + timers.round_trip * SILENT_ROUND_TRIPS,
        };
        Some(at + TICK)
    }

    /// Handles the deadlines that have passed.
    pub(super) fn handle_deadline(
        &mut self,
        now: Instant,
    ) -> Result<(), CloseReason<ConnectionError>> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.write_by) {
            return Err(CloseReason::TimedOut);
        }
        if is_due(self.ping_at()) {
            let protocol = &mut self.streams.protocol;
            if protocol.codec.awaits_ping_ack() {
                tracing::debug!("an origin acknowledges no PING");
                return Err(CloseReason::TimedOut);
            }
            self.timers.pinged_at = now;
            self.timers.is_quiet = true;
            let frames = protocol.out.frames(&protocol.buffers);
            protocol.codec.ping(frames);
        }
        self.streams.examine_if_due(now);
        Ok(())
    }
}
