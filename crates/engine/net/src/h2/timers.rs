//! The time limits of an HTTP/2 connection with a client.
//!
//! The nearest one is the deadline in the table of the worker.

use std::io;

use apus_codec::h2::ErrorCode;
use apus_transport::{SendRate, TICK, deadline_from};

use super::half_closed::Http2HalfClose;
use super::{Http2Connection, Http2End};
use crate::connection_table::{ConnectionWait, NEVER, deadline_of};
use crate::linger::LINGER_AT_END;
use crate::streams::IdlePeriod;

/// Times as ticks of the worker's clock; [`NEVER`] if the limit does not apply.
pub(super) struct ServerTimers {
    /// The time of the codec.
    codec: u32,
    idle: IdlePeriod,
    /// Since when a frame or a field block is incomplete.
    partial_since: u32,
    /// When something was read last.
    pub(super) read_at: u32,
    /// When a PING was sent last.
    pinged_at: u32,
    /// Whether the client takes the pending output.
    send_rate: SendRate,
    /// When the shutdown began.
    pub(super) ending_since: u32,
}

impl ServerTimers {
    pub(super) fn new(now: u32) -> Self {
        Self {
            codec: NEVER,
            idle: IdlePeriod::new(now),
            partial_since: NEVER,
            read_at: now,
            pinged_at: 0,
            send_rate: SendRate::default(),
            ending_since: NEVER,
        }
    }

    /// Notes whether a frame or field block is incomplete, and whether it is another one than before.
    pub(super) fn note_partial_input(&mut self, begun: bool, anew: bool, now: u32) {
        if !begun {
            self.partial_since = NEVER;
        } else if anew || self.partial_since == NEVER {
            self.partial_since = now;
        }
    }

    /// Notes that output waits for the client, which has `taken` this number of its bytes before.
    pub(super) fn blocked(&mut self, now: u32, taken: impl FnOnce() -> u64) {
        self.send_rate.block(TICK.saturating_mul(now), taken);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.send_rate.is_blocked()
    }

    pub(super) fn unblocked(&mut self, now: u32) {
        if self.send_rate.is_blocked() {
            self.send_rate.unblock(TICK.saturating_mul(now));
        }
    }
}

impl Http2Connection<'_> {
    /// Advances the clock of the codec.
    pub(super) fn advance_clock(&mut self) {
        let now = self.worker.clock.ticks();
        if self.timers.codec != now {
            self.timers.codec = now;
            self.streams
                .protocol
                .codec
                .advance(TICK.saturating_mul(now));
        }
    }

    /// Sets the deadline of a connection that waits.
    pub(super) fn set_deadline(&mut self) {
        let now = self.worker.clock.ticks();
        let open = self.streams.protocol.codec.open_streams() > 0;
        let examination = self.streams.examination(open, now);
        let timers = &mut self.timers;
        let mut waiting = timers.idle.update(open, self.streams.requests, now);
        if timers.partial_since != NEVER && !open {
            waiting = ConnectionWait::Head {
                since: timers.partial_since,
            };
        }
        if timers.is_blocked() {
            waiting = ConnectionWait::Busy;
        }
        let deadline = self
            .idle_deadline(open)
            .min(self.partial_deadline())
            .min(self.blocked_deadline())
            .min(self.ping_deadline(open))
            .min(self.half_closed_deadline())
            .min(examination)
            .min(self.timers.idle.shrink_deadline());
        self.slot.set_wait(deadline, waiting);
    }

    fn idle_deadline(&self, open: bool) -> u32 {
        let (timers, limits) = (&self.timers, &self.streams.limits);
        match () {
            () if open => NEVER,
            () if timers.ending_since != NEVER => deadline_from(timers.ending_since, LINGER_AT_END)
                .max(deadline_from(timers.idle.since(), LINGER_AT_END)),
            // A frame that is incomplete has its own deadline, which counts as slowness.
            () if self.streams.requests == 0 && timers.partial_since != NEVER => NEVER,
            () if self.streams.requests == 0 => {
                deadline_from(timers.idle.since(), limits.head_timeout)
            }
            () => deadline_from(timers.idle.since(), limits.idle_timeout),
        }
    }

    fn partial_deadline(&self) -> u32 {
        deadline_of(self.timers.partial_since, self.streams.limits.head_timeout)
    }

    fn blocked_deadline(&self) -> u32 {
        let timeout = self.streams.limits.send_timeout;
        match self.timers.send_rate.deadline(timeout) {
            Some(deadline) => deadline_from(0, deadline),
            None => NEVER,
        }
    }

    fn half_closed_deadline(&self) -> u32 {
        let half_closed = self.half_closed.as_ref();
        half_closed.map_or(NEVER, Http2HalfClose::deadline)
    }

    fn ping_deadline(&self, open: bool) -> u32 {
        let interval = self.streams.limits.h2_ping_interval;
        // A client that ended its side cannot acknowledge anything.
        if !open || interval.is_zero() || self.half_closed.is_some() {
            return NEVER;
        }
        // Anything that was read counts as a sign of life: a client that uploads may acknowledge late.
        let since = if self.streams.protocol.codec.awaits_ping_ack() {
            self.timers.read_at.max(self.timers.pinged_at)
        } else {
            self.timers.read_at
        };
        deadline_from(since, interval)
    }

    /// Handles an expired deadline.
    pub(super) fn handle_deadline(&mut self) -> io::Result<()> {
        let now = self.worker.clock.ticks();
        let open = self.streams.protocol.codec.open_streams() > 0;
        if self.slot.is_evicted() {
            // There is no time to wait for the client, but it gets the reason.
            self.go_away(ErrorCode::NO_ERROR, Http2End::Close);
            self.client_left = true;
            return Ok(());
        }
        self.slot.renew();
        if self.blocked_deadline() <= now {
            let taken = self.sent.saturating_sub(self.transport.undelivered());
            let (time, rate) = (TICK.saturating_mul(now), self.streams.limits.send_rate);
            if !self.timers.send_rate.check(time, taken, rate) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        if self.half_closed_deadline() <= now {
            self.look_at_half_closed();
        }
        if self.end.is_some() {
            return Ok(());
        }
        if self.partial_deadline() <= now {
            self.worker.counters.timeouts.add(1);
            tracing::debug!(peer = %self.streams.info.peer, "a frame or field section came too slowly");
            self.go_away(ErrorCode::ENHANCE_YOUR_CALM, Http2End::Linger);
        } else if self.idle_deadline(open) <= now && !self.ending {
            // A request may be on its way: the client learns by the last stream of the GOAWAY whether it was
            // processed, and may send it again if not (RFC 9113 section 6.8).
            self.shut_down();
        } else if self.idle_deadline(open) <= now {
            if self.timers.partial_since != NEVER {
                self.worker.counters.timeouts.add(1);
            }
            self.go_away(ErrorCode::NO_ERROR, Http2End::Linger);
        } else if self.ping_deadline(open) <= now {
            if self.streams.protocol.codec.awaits_ping_ack() {
                tracing::debug!(peer = %self.streams.info.peer, "a client acknowledges no PING");
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.timers.pinged_at = now;
            let (codec, frames) = self.streams.protocol.parts();
            codec.ping(frames);
        }
        if self.timers.idle.shrinks(now) && !open {
            self.shrink();
        }
        Ok(())
    }

    /// Ends the connection with a GOAWAY.
    pub(super) fn go_away(&mut self, code: ErrorCode, end: Http2End) {
        let (codec, frames) = self.streams.protocol.parts();
        codec.go_away(code, frames);
        self.streams.drop_all_streams();
        self.end = Some(end);
    }
}
