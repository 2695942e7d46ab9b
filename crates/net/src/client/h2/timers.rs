//! How long a connection waits for what.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h2::StreamKey;
use apus_http::BodyError;

use super::driver::{CloseReason, Http2ClientDriver};
use crate::client::deadline::{DeadlineTimer, after};
use crate::client::{FailureCause, Timeouts};
use crate::clock::{TICK, coarse_now};

/// An origin that says nothing for so many round trips, though it is asked something, is asked whether
/// it is still there.
const SILENT_ROUND_TRIPS: u32 = 2;

/// How long to wait for the next PING, if since the last one nothing came but its answer. Origins of
/// gRPC take more than two in five minutes for abuse, and a stream may be silent for hours; a machine
/// that is gone by then is noticed by TCP's keep-alive.
const QUIET: Duration = Duration::from_secs(310);

/// Times of a connection; `None` where nothing runs.
pub(super) struct ClientTimers {
    deadline: DeadlineTimer,
    /// When the streams have to be looked at.
    examine_at: Option<Instant>,
    /// When something was read last.
    read_at: Instant,
    /// When a PING was sent last.
    pinged_at: Instant,
    /// Whether nothing of a response came since then.
    is_quiet: bool,
    /// By when the origin has to take some of what is to be written.
    write_by: Option<Instant>,
    /// How long it may take nothing.
    write: Duration,
    /// How long a PING and its answer may take.
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

    /// Has the streams looked at by then.
    pub(super) fn examine_by(&mut self, at: Instant) {
        self.examine_at = Some(self.examine_at.map_or(at, |known| known.min(at)));
    }

    pub(super) fn note_read(&mut self) {
        self.read_at = coarse_now();
    }

    /// Notes that some of a response came.
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

    /// When to send a PING, or to give up on its answer.
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

    /// Does what is due.
    pub(super) fn on_deadline(&mut self, now: Instant) -> Result<(), CloseReason> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.write_by) {
            return Err(CloseReason::TimedOut);
        }
        if is_due(self.ping_at()) {
            if self.codec.awaits_ping_ack() {
                tracing::debug!("an origin answers no PING");
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

    /// Ends what a stream has waited for too long; gives the time to look at it again.
    fn examine(&mut self, key: StreamKey, now: Instant) -> Option<Instant> {
        let is_stalled = self.codec.is_stalled(key);
        let stream = self.streams.get(key)?;
        let sending = &stream.sending;
        if sending.held_until.is_some_and(|until| until <= now) {
            self.begin_sending(key);
            return Some(now);
        }
        let write_by = match (sending.ended, is_stalled) {
            (true, _) => None,
            (false, true) => Some(sending.moved_at + stream.timeouts.write + TICK),
            (false, false) => Some(now + stream.timeouts.write),
        };
        let deadlines = [sending.held_until, stream.receive_by, write_by];
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
