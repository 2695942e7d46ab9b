//! Points in time in milliseconds, without a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_http::fields::{http_date, http_date_text};

/// Milliseconds since 1970. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last second that an HTTP date can name: the end of the year 9999.
    const LAST_DATE: u64 = 253_402_300_799;

    /// From milliseconds since 1970.
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// From seconds since 1970.
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970.
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970.
    pub const fn as_unix_seconds(self) -> u64 {
        self.0 / 1000
    }

    /// Reads an HTTP date (RFC 9110 section 5.6.7).
    pub fn from_http_date(value: &[u8]) -> Option<Self> {
        http_date(value).map(Self::from)
    }

    /// As an HTTP date.
    pub fn to_http_date(self) -> String {
        let seconds = self.as_unix_seconds().min(Self::LAST_DATE);
        http_date_text(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// This time plus a duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// This time minus a duration.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, millis))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_millis(time.0)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
