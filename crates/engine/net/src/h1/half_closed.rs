//! A client that ended its side of the connection and waits for its responses (RFC 9112 section 9.6).
//!
//! It looks like one that is gone, which is found out by a write: the system of a client that is gone responds with a
//! reset.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use apus_transport::deadline_from;

use super::Http1Connection;

/// How long a response may take before the client gets an interim response as a probe.
const FIRST_PROBE: Duration = Duration::from_secs(1);

/// The time between further probes.
const NEXT_PROBE: Duration = Duration::from_secs(30);

/// The time between two looks at the connection.
const LOOK: Duration = Duration::from_millis(500);

/// The state of a connection whose client has ended its side.
pub(super) struct Http1HalfClose {
    /// The tick of the next probe.
    probe_at: u32,
}

impl Http1Connection<'_> {
    /// Notes that the client has ended its side. Without its `close_notify`, a client of TLS did not end but was cut off.
    pub(super) fn begin_half_close(&mut self) -> io::Result<()> {
        if self.transport.is_cut_off() {
            // Whoever cuts a connection of TLS off on the way could otherwise make a truncated request look
            // complete.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.transport.watch_half_closed();
        self.half_closed = Some(Http1HalfClose {
            probe_at: self.worker.clock.deadline(FIRST_PROBE),
        });
        Ok(())
    }

    /// Whether the client has ended its side, and no further request has come before that.
    pub(super) fn is_at_last_request(&self) -> bool {
        self.half_closed.is_some() && self.input.is_empty()
    }

    /// Finds out whether a client that ended its side is gone, while it waits for a response. Always pending.
    pub(super) fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let Some(half_closed) = &mut self.half_closed else {
            return Ok(Poll::Pending);
        };
        if self.transport.is_gone() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let now = self.worker.clock.ticks();
        if half_closed.probe_at <= now {
            // An interim response is the only thing that may be sent before the response (RFC 9110 section 15.2).
            // Many clients end their side after a request, so a half-closed one is no reason to cancel its
            // handler.
            half_closed.probe_at = deadline_from(now, NEXT_PROBE);
            self.codec.send_probe(&mut self.out);
        }
        if !self.is_flushed() && self.poll_flush_out(cx)?.is_pending() {
            return Ok(Poll::Pending);
        }
        self.slot.renew();
        self.slot.set_busy(&self.worker.clock, LOOK);
        Ok(Poll::Pending)
    }
}
