//! The time limits of an HTTP/3 connection with a client.
//!
//! The nearest one is the deadline in the table of the worker. The timers of QUIC are its own.

use std::time::Duration;

use apus_h3::H3ErrorCode;
use apus_transport::{SendRate, TICK, deadline_from};

use super::{Http3Connection, Http3Shutdown};
use crate::connection_table::{ConnectionWait, NEVER, deadline_of};
use crate::linger::LINGER_AT_END;
use crate::streams::IdlePeriod;

/// Ticks after the first GOAWAY, in which requests that were sent before it arrive.
// Half a second: unlike HTTP/2, there is no frame whose acknowledgement says that the client has read the first
// GOAWAY.
const GOAWAY_AFTER: u32 = 2;

/// Times as ticks of the worker's clock; [`NEVER`] if the limit does not apply.
pub(super) struct Http3Timers {
    /// The time of the codec.
    codec: u32,
    /// When the connection began.
    started: u32,
    idle: IdlePeriod,
    /// When something was read last.
    pub(super) read_at: u32,
    /// When a PING was sent last.
    pinged_at: u32,
    /// Since when QUIC takes nothing of some stream that is complete here.
    stalled_since: u32,
}

impl Http3Timers {
    pub(super) fn new(now: u32) -> Self {
        Self {
            codec: NEVER,
            started: now,
            idle: IdlePeriod::new(now),
            read_at: now,
            pinged_at: now,
            stalled_since: NEVER,
        }
    }
}

impl Http3Connection<'_> {
    /// Advances the clock of the codec.
    pub(super) fn advance_clock(&mut self) {
        let now = self.worker.clock.ticks();
        if self.timers.codec != now {
            self.timers.codec = now;
            let codec = &mut self.streams.protocol.transport.codec;
            codec.advance(TICK.saturating_mul(now));
        }
    }

    fn has_open_streams(&self) -> bool {
        self.streams.protocol.transport.codec.open_streams() > 0
    }

    /// Sets the deadline of a connection that waits.
    pub(super) fn set_deadline(&mut self) {
        let unread = self.streams.unread.get();
        self.streams.protocol.transport.quic.set_unread(unread);
        let now = self.worker.clock.ticks();
        let open = self.has_open_streams();
        let examination = self.streams.examination(open, now);
        if self.streams.protocol.transport.is_any_blocked() {
            self.timers.stalled_since = self.timers.stalled_since.min(now);
        } else {
            self.timers.stalled_since = NEVER;
        }
        let incomplete_since = self.incomplete_since();
        let timers = &mut self.timers;
        let mut waiting = timers.idle.update(open, self.streams.requests, now);
        if self.streams.protocol.transport.is_any_blocked() {
            waiting = ConnectionWait::Busy;
        } else if incomplete_since != NEVER && self.streams.protocol.transport.is_acknowledged() {
            waiting = ConnectionWait::Head {
                since: incomplete_since,
            };
        }
        let deadline = self
            .idle_deadline(open)
            .min(self.incomplete_deadline())
            .min(self.stalled_deadline())
            .min(self.ping_deadline(open))
            .min(self.shutdown_deadline())
            .min(examination)
            .min(self.timers.idle.shrink_deadline());
        self.slot.set_wait(deadline, waiting);
    }

    /// The tick since which a head, or the SETTINGS frame, is incomplete.
    fn incomplete_since(&self) -> u32 {
        let settings = if self.streams.protocol.transport.codec.has_peer_settings() {
            NEVER
        } else {
            self.timers.started
        };
        let of_streams = self.input.incomplete_since().unwrap_or(NEVER);
        of_streams.min(settings)
    }

    fn idle_deadline(&self, open: bool) -> u32 {
        let (timers, limits) = (&self.timers, &self.streams.limits);
        match self.streams.requests {
            _ if open || self.ending != Http3Shutdown::None => NEVER,
            0 => deadline_from(timers.idle.since(), limits.head_timeout),
            _ => deadline_from(timers.idle.since(), limits.idle_timeout),
        }
    }

    fn incomplete_deadline(&self) -> u32 {
        deadline_of(self.incomplete_since(), self.streams.limits.head_timeout)
    }

    fn stalled_deadline(&self) -> u32 {
        deadline_of(self.timers.stalled_since, self.streams.limits.send_timeout)
    }

    /// When the client is asked for a sign of life: QUIC ends connections without packets, also while a service works.
    fn ping_deadline(&self, open: bool) -> u32 {
        // Half of it, so that one lost PING does not end the connection of a client that waits for a slow service.
        let interval = self.max_idle_timeout / 2;
        if !open || interval.is_zero() {
            NEVER
        } else {
            deadline_from(self.timers.read_at.max(self.timers.pinged_at), interval)
        }
    }

    fn shutdown_deadline(&self) -> u32 {
        match self.ending {
            Http3Shutdown::None => NEVER,
            Http3Shutdown::Announced(since) => since.saturating_add(GOAWAY_AFTER),
            Http3Shutdown::Final(_) if self.has_open_streams() => NEVER,
            Http3Shutdown::Final(since) => {
                let since = since.max(deadline_of(self.timers.idle.since(), Duration::ZERO));
                match since {
                    NEVER => NEVER,
                    since => deadline_from(since, LINGER_AT_END),
                }
            }
        }
    }

    /// Ends the streams of which nothing could be read, which may hold data behind a gap. A client may also have left them
    /// unused.
    fn reject_silent_streams(&mut self, now: u32) {
        let timeout = deadline_from(0, self.streams.limits.head_timeout);
        let late = self.input.incomplete_until(now.saturating_sub(timeout));
        for id in late {
            let codec = &mut self.streams.protocol.transport.codec;
            match codec.reject_silent(id) {
                Ok(true) => {
                    tracing::debug!(peer = %self.streams.info.peer, stream = id, "a stream did not begin in time");
                    self.input.forget(id);
                }
                Ok(false) => {}
                Err(error) => return self.fail(error),
            }
        }
        self.streams.protocol.flush();
    }

    /// Handles an expired deadline.
    pub(super) fn handle_deadline(&mut self) {
        let now = self.worker.clock.ticks();
        let open = self.has_open_streams();
        if self.slot.is_evicted() {
            return self.close(H3ErrorCode::NO_ERROR, "");
        }
        self.slot.renew();
        if self.incomplete_deadline() <= now {
            self.worker.counters.timeouts.add(1);
            self.reject_silent_streams(now);
        }
        if self.closed {
            return;
        }
        if self.incomplete_deadline() <= now {
            tracing::debug!(peer = %self.streams.info.peer, "a field section came too slowly");
            return self.close(H3ErrorCode::EXCESSIVE_LOAD, "a request came too slowly");
        }
        if self.idle_deadline(open) <= now {
            self.shut_down();
        }
        if self.shutdown_deadline() <= now {
            match self.ending {
                Http3Shutdown::Announced(_) => {
                    self.ending = Http3Shutdown::Final(now);
                    self.streams.protocol.transport.codec.go_away();
                }
                Http3Shutdown::None | Http3Shutdown::Final(_) => {
                    return self.close(H3ErrorCode::NO_ERROR, "");
                }
            }
        }
        if self.stalled_deadline() <= now {
            let timeout = self.streams.limits.send_timeout;
            let oldest = now.saturating_sub(deadline_from(0, timeout));
            // As for streams that are not complete, the rate is measured over the connection.
            let least = SendRate::least(self.streams.limits.send_rate, timeout);
            let open = self.streams.protocol.transport.codec.open_streams().max(1) as u64;
            let least = usize::try_from((least / open).max(1)).unwrap_or(usize::MAX);
            let (stalled, since) = self.streams.protocol.reset_stalled(now, oldest, least);
            self.worker.counters.stalled_streams.add(stalled);
            self.timers.stalled_since = since;
        }
        if self.ping_deadline(open) <= now {
            self.timers.pinged_at = now;
            self.streams.protocol.transport.quic.ping();
        }
        if self.timers.idle.shrinks(now) && !open {
            self.streams.shrink();
            self.streams.protocol.shrink();
            self.input.shrink();
        }
        self.streams.examine(now);
    }
}
