//! A client that ended its side of the connection and waits for the responses of its open streams.
//!
//! It looks like one that is gone, which is found out by a PING: the system of a client that is gone responds with a
//! reset.

use std::time::Duration;

use super::Http2Connection;
use crate::connection_table::NEVER;

/// How long responses may take before a PING is sent.
const PROBE: Duration = Duration::from_secs(1);

/// The time between two looks at the connection.
const LOOK: Duration = Duration::from_millis(500);

/// The state of a connection whose client has ended its side.
pub(super) struct Http2HalfClose {
    /// The tick of the probe; [`NEVER`] once it was sent.
    probe_at: u32,
    /// The tick of the next look.
    look_at: u32,
}

impl Http2HalfClose {
    /// The tick at which [`Http2Connection::look_at_half_closed`] has to be called.
    pub(super) fn deadline(&self) -> u32 {
        self.probe_at.min(self.look_at)
    }
}

impl Http2Connection<'_> {
    /// Notes that the client has ended its side. Without its `close_notify`, a client of TLS did not end but was cut off.
    pub(super) fn begin_half_close(&mut self) {
        if self.transport.is_cut_off() {
            self.client_left = true;
            return;
        }
        self.transport.watch_half_closed();
        self.half_closed = Some(Http2HalfClose {
            probe_at: self.worker.clock.deadline(PROBE),
            look_at: self.worker.clock.deadline(LOOK),
        });
    }

    /// Finds out whether a client that ended its side is gone.
    pub(super) fn look_at_half_closed(&mut self) {
        let now = self.worker.clock.ticks();
        let look_at = self.worker.clock.deadline(LOOK);
        let Some(half_closed) = &mut self.half_closed else {
            return;
        };
        half_closed.look_at = look_at;
        if self.transport.is_gone() {
            self.client_left = true;
        } else if half_closed.probe_at <= now {
            half_closed.probe_at = NEVER;
            let (codec, frames) = self.streams.protocol.parts();
            codec.ping(frames);
        }
    }
}
