//! The limit on wrong passwords of a client for a name.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use apus_access::{Key, KeyTable};
use apus_handler::Error;
use apus_http::{HeaderValue, header};

use crate::client_network::client_network;

/// Wrong passwords of one client for one name in a minute, by default.
const PER_MINUTE: u32 = 10;

/// The clients and names that are counted, of all workers. It is of the process: a reload does not give new attempts.
static FAILURES: LazyLock<KeyTable> = LazyLock::new(|| KeyTable::new(65_536));

/// How many wrong passwords are checked in a minute. They are counted by the generic cell rate algorithm: each one is paid off
/// after its share of the minute.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailureLimit {
    per_minute: u32,
}

/// An attempt that is counted from its begin, so that attempts at the same time do not exceed the limit. It is taken back when
/// this is dropped, unless it was [wrong](Self::was_wrong): a client that does not wait for the result learns nothing.
pub(super) struct CountedAttempt {
    key: Option<Key>,
    share: u64,
}

impl Default for FailureLimit {
    fn default() -> Self {
        Self::per_minute(PER_MINUTE)
    }
}

impl FailureLimit {
    pub(super) fn per_minute(count: u32) -> Self {
        Self { per_minute: count }
    }

    /// Counts an attempt.
    ///
    /// # Errors
    /// 429 with `Retry-After`: there were too many.
    pub(super) fn count(self, client: Option<IpAddr>, name: &str) -> Result<CountedAttempt, Error> {
        let share = 60_000_u64.checked_div(u64::from(self.per_minute));
        let (Some(client), Some(share)) = (client, share) else {
            return Ok(CountedAttempt {
                key: None,
                share: 0,
            });
        };
        let share = share.max(1);
        let most = share.saturating_mul(u64::from(self.per_minute));
        let key = FAILURES.key((client_network(client), name, self.per_minute));
        let now = u64::try_from(apus_clock::monotonic().as_millis()).unwrap_or(u64::MAX);
        // The value is when all attempts so far are paid off.
        let counted = FAILURES.update(key, |held| {
            let next = held.unwrap_or(0).max(now).saturating_add(share);
            match next.saturating_sub(now).checked_sub(most) {
                None | Some(0) => Ok(next),
                Some(wait) => Err(wait),
            }
        });
        match counted {
            Ok(()) => Ok(CountedAttempt {
                key: Some(key),
                share,
            }),
            Err(wait) => Err(too_many(Duration::from_millis(wait))),
        }
    }
}

impl CountedAttempt {
    /// The password was wrong: the attempt stays counted.
    pub(super) fn was_wrong(mut self) {
        self.key = None;
    }
}

impl Drop for CountedAttempt {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let share = self.share;
            let _: Result<(), ()> =
                FAILURES.update(key, |held| Ok(held.unwrap_or(0).saturating_sub(share)));
        }
    }
}

fn too_many(wait: Duration) -> Error {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    Error::too_many_requests("there were too many wrong passwords; please wait a moment")
        .header(header::RETRY_AFTER, HeaderValue::from(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_passwords_are_limited_by_client_and_name_and_right_ones_are_not() {
        let clock = apus_clock::TestClock::default();
        let _entered = clock.enter();
        clock.freeze();
        clock.advance(Duration::from_secs(3600));
        let limit = FailureLimit::per_minute(3);
        let count = |ip: &str, name: &str| limit.count(Some(ip.parse().unwrap()), name);
        for _ in 0..20 {
            drop(count("203.0.113.200", "ada").unwrap());
        }
        for _ in 0..3 {
            count("203.0.113.200", "ada").unwrap().was_wrong();
        }
        let refused = count("203.0.113.200", "ada").err().unwrap();
        assert_eq!(refused.status_code(), 429);
        assert_eq!(refused.fields()[0].1, "20");
        for (ip, name, is_same) in [
            ("::ffff:203.0.113.200", "ada", true),
            ("203.0.113.200", "bob", false),
            ("203.0.113.201", "ada", false),
            ("203.0.113.200", "Ada", false),
        ] {
            assert_eq!(count(ip, name).is_err(), is_same, "{ip} {name}");
        }
        assert!(limit.count(None, "ada").is_ok());
        clock.advance(Duration::from_millis(19_999));
        assert!(count("203.0.113.200", "ada").is_err());
        clock.advance(Duration::from_millis(1));
        count("203.0.113.200", "ada").unwrap().was_wrong();
        assert!(count("203.0.113.200", "ada").is_err());
    }

    #[test]
    fn attempts_at_the_same_time_do_not_exceed_the_limit_on_wrong_passwords() {
        let limit = FailureLimit::per_minute(3);
        let ip = Some("203.0.113.203".parse().unwrap());
        let running: Vec<_> = (0..3).map(|_| limit.count(ip, "ada").unwrap()).collect();
        assert!(limit.count(ip, "ada").is_err());
        drop(running);
        assert!(limit.count(ip, "ada").is_ok());
    }

    #[test]
    fn no_limit_on_wrong_passwords_is_none() {
        let limit = FailureLimit::per_minute(0);
        let ip = Some("203.0.113.202".parse().unwrap());
        for _ in 0..1000 {
            limit.count(ip, "ada").unwrap().was_wrong();
        }
    }
}
