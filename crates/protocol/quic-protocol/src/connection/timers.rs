//! The timers of a connection.

use std::time::Instant;

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionTimer {
    /// Packets are lost, or a probe is sent (RFC 9002 section 6).
    Loss,
    /// The idle timeout (RFC 9000 section 10.1).
    Idle,
    /// A PING keeps the connection alive.
    KeepAlive,
    /// The end of the closing or draining state (RFC 9000 section 10.2).
    Close,
    /// The validation of a path has failed (RFC 9000 section 8.2.4).
    PathValidation,
    /// Old keys are discarded (RFC 9001 section 6.5).
    KeyDiscard,
    /// An acknowledgement is due (RFC 9000 section 13.2.1).
    AckDelay,
    /// The pacer allows more packets.
    Pacing,
    /// Nothing was sent for some seconds: memory is returned.
    Shrink,
}

impl ConnectionTimer {
    pub(crate) const ALL: [Self; 9] = [
        Self::Loss,
        Self::Idle,
        Self::KeepAlive,
        Self::Close,
        Self::PathValidation,
        Self::KeyDiscard,
        Self::AckDelay,
        Self::Pacing,
        Self::Shrink,
    ];
}

/// When each timer expires.
// Nine slots that are scanned: a heap or a tree costs more for so few, and a connection sets timers for each run of
// packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers([Option<Instant>; ConnectionTimer::ALL.len()]);

impl Timers {
    #[inline]
    pub(crate) fn set(&mut self, timer: ConnectionTimer, at: Option<Instant>) {
        if let Some(slot) = self.0.get_mut(timer as usize) {
            *slot = at;
        }
    }

    #[inline]
    pub(crate) fn get(&self, timer: ConnectionTimer) -> Option<Instant> {
        self.0.get(timer as usize).copied().flatten()
    }

    /// The earliest one.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Stops a timer that has expired; `false` if it has not.
    pub(crate) fn take_expired(&mut self, timer: ConnectionTimer, now: Instant) -> bool {
        let is_expired = self.get(timer).is_some_and(|at| at <= now);
        if is_expired {
            self.set(timer, None);
        }
        is_expired
    }

    /// Stops all timers.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
