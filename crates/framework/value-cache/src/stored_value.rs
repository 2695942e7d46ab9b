//! `StoredValue`: a value as JSON, with the times until which it is fresh, and may be used at all.

use std::time::Duration;

use bytes::Bytes;

/// A stored value. Times are milliseconds of the clock of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredValue {
    /// Until then it is used as it is.
    pub(crate) fresh_until: u64,
    /// Until then it is used while it is computed again.
    pub(crate) expires: u64,
    /// JSON (RFC 8259).
    pub(crate) json: Bytes,
}

/// How long a value is fresh, and how long it may be used while it is computed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueLifetimes {
    pub(crate) fresh: Duration,
    pub(crate) stale: Duration,
}

impl StoredValue {
    pub(crate) fn new(json: Bytes, now: u64, lifetimes: ValueLifetimes) -> Self {
        let fresh_until = now.saturating_add(milliseconds(lifetimes.fresh));
        Self {
            fresh_until,
            expires: fresh_until.saturating_add(milliseconds(lifetimes.stale)),
            json,
        }
    }

    pub(crate) fn is_fresh(&self, now: u64) -> bool {
        now < self.fresh_until
    }

    pub(crate) fn is_usable(&self, now: u64) -> bool {
        now < self.expires
    }
}

/// Whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
