//! The time limits of an HTTP/2 connection to an origin.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_transport::{TICK, coarse_now};

use crate::Timeouts;
use crate::deadline::{DeadlineTimer, after};

/// The round trips without input after which the origin gets a PING, while requests are open.
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

    /// When to send a PING, or to give up waiting for its acknowledgement.
    pub(super) fn ping_at(&self, awaits_ack: bool) -> Instant {
        let at = if awaits_ack {
            // Any input is a sign of life: on a slow path, the acknowledgement waits behind data.
            self.read_at.max(self.pinged_at) + self.round_trip
        } else if self.is_quiet {
            self.read_at + QUIET
        } else {
            self.read_at + self.round_trip * SILENT_ROUND_TRIPS
        };
        // The times above may be a tick old.
        at + TICK
    }

    pub(super) fn note_ping(&mut self, now: Instant) {
        self.pinged_at = now;
        self.is_quiet = true;
    }

    /// Whether the origin took none of the output for too long.
    pub(super) fn is_write_overdue(&self, now: Instant) -> bool {
        self.write_by.is_some_and(|at| at <= now)
    }

    /// Waits for the first of these times and of the limit of writing.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, others: [Option<Instant>; 2]) -> Poll<()> {
        let deadlines = others.into_iter().chain([self.write_by]);
        match deadlines.flatten().min() {
            Some(at) => self.deadline.poll(cx, at),
            None => Poll::Pending,
        }
    }
}
