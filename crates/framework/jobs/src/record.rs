//! Jobs as stores keep them. Times are milliseconds since 1970-01-01 (UTC).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_tokens::{Hexadecimal, sha256};

/// The identity of a job in its queue: 32 hexadecimal digits, in the order of their creation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub(crate) String);

impl JobId {
    pub(crate) fn new(now: i64) -> Self {
        Self(format!("{:012x}{:020x}", now.max(0), random_bits()))
    }

    /// The job with this identity, as a page of the application got it.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 80 random bits.
fn random_bits() -> u128 {
    fastrand::u128(..) >> 48
}

/// Identifies one attempt: only the runner that has it may end the job.
pub(crate) fn new_token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// A job that is added.
#[derive(Clone, Debug)]
pub(crate) struct JobRecord {
    pub(crate) id: JobId,
    pub(crate) name: &'static str,
    /// A digest of the key, of which the queue has no other.
    pub(crate) unique: Option<String>,
    pub(crate) payload: String,
    #[cfg_attr(
        not(any(feature = "sql", feature = "redis")),
        expect(dead_code, reason = "the memory of a process does not keep it")
    )]
    pub(crate) created: i64,
    pub(crate) due: i64,
}

/// The form of a unique key in stores, which is bounded and has no letters of two cases.
pub(crate) fn unique_digest(key: &str) -> String {
    Hexadecimal(&sha256(key.as_bytes())).to_string()
}

/// A job that a runner got.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedJob {
    pub(crate) id: JobId,
    pub(crate) name: String,
    pub(crate) payload: String,
    /// With this one.
    pub(crate) attempts: u32,
    pub(crate) token: String,
}

/// A job that failed too often.
#[derive(Clone, Debug)]
pub struct DeadJob {
    /// Its identity, for [`Jobs::requeue`](crate::Jobs::requeue).
    pub id: JobId,
    /// The [`Job::NAME`](crate::Job::NAME) of its type.
    pub name: String,
    /// The job as JSON.
    pub payload: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The last error.
    pub error: String,
    /// When it failed last.
    pub failed: SystemTime,
}

/// How many jobs a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Those that are due.
    pub ready: u64,
    /// Those that are due later: delayed ones, and those that failed and are tried again.
    pub delayed: u64,
    /// Those that run.
    pub running: u64,
    /// Those that failed too often.
    pub dead: u64,
}

/// The time of the application.
pub(crate) fn now() -> i64 {
    of_duration(apus_clock::unix_time())
}

pub(crate) fn of_duration(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn of_system(time: SystemTime) -> i64 {
    of_duration(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn to_system(time: i64) -> SystemTime {
    let since = Duration::from_millis(time.max(0).unsigned_abs());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_the_order_of_their_creation() {
        let ids: Vec<JobId> = (1..20).map(|time| JobId::new(time * 1000)).collect();
        assert!(ids.is_sorted());
        for id in &ids {
            assert_eq!(JobId::parse(&id.to_string()).as_ref(), Some(id));
        }
        for text in ["", "1", "../../../../../../../etc/passwd1"] {
            assert_eq!(JobId::parse(text), None);
        }
    }

    #[test]
    fn unique_keys_are_digests() {
        let digest = unique_digest("user 7");
        assert_eq!(digest.len(), 64);
        assert_ne!(digest, unique_digest("User 7"));
    }

    #[test]
    fn an_identity_has_32_hexadecimal_digits() {
        for (length, is_id) in [(31, false), (32, true), (33, false)] {
            assert_eq!(
                JobId::parse(&"a".repeat(length)).is_some(),
                is_id,
                "{length}"
            );
        }
        let digits = "0123456789ABCDEFabcdef0123456789";
        let id = JobId::parse(digits).unwrap();
        assert_eq!(id.to_string(), digits.to_ascii_lowercase());
        assert_eq!(JobId::parse(&format!("{}g", "a".repeat(31))), None);
    }

    #[test]
    fn times_are_milliseconds_since_1970() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        for (time, expected) in [(0, 0), (1, 1), (1_800_000_000_123, 1_800_000_000_123)] {
            assert_eq!(of_system(at(time)), expected);
            assert_eq!(to_system(expected), at(time));
        }
        // Before 1970, and beyond what a store can keep.
        assert_eq!(of_system(UNIX_EPOCH - Duration::from_millis(1)), 0);
        assert_eq!(to_system(-1), UNIX_EPOCH);
        assert_eq!(of_duration(Duration::MAX), i64::MAX);
        assert_eq!(of_duration(Duration::from_nanos(999_999)), 0);
    }
}
