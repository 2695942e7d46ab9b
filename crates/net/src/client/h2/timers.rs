//! The time limits of an HTTP/2 connection to an origin.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h2::StreamKey;
use apus_http::BodyError;

use super::driver::{CloseReason, Http2ClientDriver};
use crate::client::deadline::{DeadlineTimer, after};
use crate::client::{FailureCause, Timeouts};
use crate::clock::{TICK, coarse_now};

/// After so many round trips without input, although requests are open, the origin gets a PING.
const SILENT_ROUND_TRIPS: u32 = 2;

/// The time until the next PING if only the acknowledgement of the last one arrived since. gRPC servers treat
/// more than two PINGs in five minutes as abuse, and a stream may be silent for hours; TCP's keep-alive
/// notices a machine that is down by then.
const QUIET: Duration = Duration::from_secs(310);

/// Times of a connection; `None` if the limit does not apply.
pub(super) struct ClientTimers {
    deadline: DeadlineTimer,
    /// When the deadlines of the streams have to be checked.
    examine_at: Option<Instant>,
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
            examine_at: None,
            read_at: now,
            pinged_at: now,
            is_quiet: false,
            write_by: None,
            write: timeouts.write,
            round_trip: timeouts.connect,
        }
    }

    /// Schedules a check of the streams.
    pub(super) fn examine_by(&mut self, at: Instant) {
        self.examine_at = Some(self.examine_at.map_or(at, |known| known.min(at)));
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
        let deadlines = [timers.examine_at, timers.write_by, ping_at];
        match deadlines.into_iter().flatten().min() {
            Some(at) => timers.deadline.poll(cx, at),
            None => Poll::Pending,
        }
    }

    /// When to send a PING, or to give up waiting for its acknowledgement.
    fn ping_at(&self) -> Option<Instant> {
        let is_asked = self.codec.open_streams() > 0 || !self.shared.queue.borrow().is_empty();
        let timers = &self.timers;
        if !is_asked {
            return None;
        }
        let at = match self.codec.awaits_ping_ack() {
            true => timers.read_at.max(timers.pinged_at) + timers.round_trip,
            false if timers.is_quiet => timers.read_at + QUIET,
            false => timers.read_at + timers.round_trip * SILENT_ROUND_TRIPS,
        };
        Some(at + TICK)
    }

    /// Handles the deadlines that have passed.
    pub(super) fn handle_deadline(&mut self, now: Instant) -> Result<(), CloseReason> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.write_by) {
            return Err(CloseReason::TimedOut);
        }
        if is_due(self.ping_at()) {
            if self.codec.awaits_ping_ack() {
                tracing::debug!("an origin acknowledges no PING");
                return Err(CloseReason::TimedOut);
            }
            self.timers.pinged_at = now;
            self.timers.is_quiet = true;
            let frames = self.out.frames(&self.buffers);
            self.codec.ping(frames);
        }
        if is_due(self.timers.examine_at) {
            self.timers.examine_at = None;
            for key in self.streams.keys() {
                if let Some(at) = self.examine(key, now) {
                    self.timers.examine_by(at);
                }
            }
        }
        Ok(())
    }

    /// Ends a stream whose deadline has passed; returns when to check it again.
    fn examine(&mut self, key: StreamKey, now: Instant) -> Option<Instant> {
        let is_stalled = self.codec.is_stalled(key);
        let stream = self.streams.get(key)?;
        let request_body = &stream.request_body;
        if request_body.held_until.is_some_and(|until| until <= now) {
            self.begin_sending(key);
            return Some(now);
        }
        let write_by = match (request_body.ended, is_stalled) {
            (true, _) => None,
            (false, true) => Some(request_body.moved_at + stream.timeouts.write + TICK),
            (false, false) => Some(now + stream.timeouts.write),
        };
        let deadlines = [request_body.held_until, stream.receive_by, write_by];
        let next = deadlines.into_iter().flatten().min();
        if next.is_none_or(|next| next > now) {
            return next;
        }
        if let Some(stream) = self.cancel(key) {
            self.fail(stream, FailureCause::TimedOut, BodyError::TimedOut);
        }
        None
    }
}
