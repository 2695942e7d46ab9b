//! The time in which a connection has no open stream.

use crate::connection_table::{ConnectionWait, NEVER};

/// Ticks without an open stream after which the tables of streams are released.
// About a second: a browser that asks for the next resource of the page does not meet tables that have to grow again.
const SHRINK_AFTER: u32 = 4;

/// Since when a connection has no open stream.
pub(crate) struct IdlePeriod {
    /// A tick of the worker's clock; [`NEVER`] while a stream is open.
    since: u32,
    /// The number of requests at that time.
    requests: u64,
    /// Whether memory was released since a stream was open.
    has_shrunk: bool,
}

impl IdlePeriod {
    pub(crate) fn new(now: u32) -> Self {
        Self {
            since: now,
            requests: 0,
            has_shrunk: true,
        }
    }

    /// Notes whether a stream is open, and the number of requests. Returns what the connection waits for.
    pub(crate) fn update(&mut self, open: bool, requests: u64, now: u32) -> ConnectionWait {
        if open {
            self.since = NEVER;
            return ConnectionWait::Busy;
        }
        // A stream may have been opened and closed meanwhile.
        if self.since == NEVER || self.requests != requests {
            *self = Self {
                since: now,
                requests,
                has_shrunk: false,
            };
        }
        let since = self.since;
        match requests {
            0 => ConnectionWait::FirstRequest { since },
            _ => ConnectionWait::Kept { since },
        }
    }

    pub(crate) fn since(&self) -> u32 {
        self.since
    }

    /// When memory is released.
    pub(crate) fn shrink_deadline(&self) -> u32 {
        if self.has_shrunk {
            NEVER
        } else {
            self.since.saturating_add(SHRINK_AFTER)
        }
    }

    /// Whether memory has to be released now, which is so once.
    pub(crate) fn shrinks(&mut self, now: u32) -> bool {
        let is_due = self.shrink_deadline() <= now;
        self.has_shrunk |= is_due;
        is_due
    }
}
