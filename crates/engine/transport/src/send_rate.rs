//! The least rate at which a peer has to take what is sent to it.

use std::time::Duration;

/// Measures how much a peer takes while the sender waits for it.
///
/// A time limit that begins anew with each byte lets a peer hold a response for ever by taking one byte now and
/// then. So the time in which the sender is blocked is divided into periods, and in each of them the peer has to
/// take as much as the rate demands. What it took counts as a whole: the buffers of a socket report progress in
/// steps of hundreds of kilobytes, for which a slow but honest client may need minutes.
///
/// Times may come from any clock that is the same one for all calls.
#[derive(Debug, Default)]
pub struct SendRate {
    period: Option<SendPeriod>,
}

#[derive(Debug)]
struct SendPeriod {
    /// What the peer had taken when the period began.
    taken: u64,
    /// How long the sender was blocked before `since`.
    blocked: Duration,
    /// Since when it is blocked.
    since: Option<Duration>,
}

impl SendRate {
    /// The bytes that a peer has to take in some time.
    pub fn least(rate: u64, time: Duration) -> u64 {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        rate.saturating_mul(millis) / 1000
    }

    /// Notes that the sender waits for the peer. `taken` is called if a period begins.
    pub fn block(&mut self, now: Duration, taken: impl FnOnce() -> u64) {
        // A period does not begin anew when the peer takes something. It did once, and a client held a response
        // for ever by opening the window of its stream by one byte now and then.
        let period = self.period.get_or_insert_with(|| SendPeriod {
            taken: taken(),
            blocked: Duration::ZERO,
            since: None,
        });
        period.since.get_or_insert(now);
    }

    /// Notes that the sender no longer waits.
    pub fn unblock(&mut self, now: Duration) {
        if let Some(period) = &mut self.period
            && let Some(since) = period.since.take()
        {
            period.blocked = period.blocked.saturating_add(now.saturating_sub(since));
        }
    }

    /// Whether the sender waits for the peer.
    pub fn is_blocked(&self) -> bool {
        self.deadline(Duration::ZERO).is_some()
    }

    /// When [`SendRate::check`] has to be called next, if the sender waits: after periods of `timeout`.
    pub fn deadline(&self, timeout: Duration) -> Option<Duration> {
        let period = self.period.as_ref()?;
        Some(period.since? + timeout.saturating_sub(period.blocked))
    }

    /// At the deadline, begins the next period. Returns whether the peer took enough in the last one: at least one
    /// byte, and `rate` bytes per second.
    pub fn check(&mut self, now: Duration, taken: u64, rate: u64) -> bool {
        self.unblock(now);
        let Some(period) = self.period.take() else {
            return true;
        };
        // A rate of 0 demands no speed, but progress all the same.
        let least = Self::least(rate, period.blocked).max(1);
        let is_enough = taken.saturating_sub(period.taken) >= least;
        self.block(now, || taken);
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Whether a peer may go on that takes `bytes` each `every` seconds, for an hour in which the sender waits.
    fn passes(bytes: u64, every: u64, rate: u64) -> bool {
        let mut send_rate = SendRate::default();
        let mut taken = 0;
        for now in 0..3600 {
            if now > 0 && now % every == 0 {
                // A write succeeds, and the next one waits again.
                taken += bytes;
                send_rate.unblock(seconds(now));
            }
            send_rate.block(seconds(now), || taken);
            let is_due = send_rate
                .deadline(TIMEOUT)
                .is_some_and(|deadline| deadline <= seconds(now));
            if is_due && !send_rate.check(seconds(now), taken, rate) {
                return false;
            }
        }
        true
    }

    #[test]
    fn a_byte_now_and_then_does_not_begin_the_time_limit_anew() {
        assert!(!passes(1, 5, 128));
        assert!(!passes(127, 1, 128));
        assert!(passes(128, 1, 128));
        assert!(passes(129, 1, 128));
        assert!(passes(7680, 60, 128));
    }

    #[test]
    fn without_a_rate_one_byte_in_each_period_is_enough() {
        assert!(passes(1, 59, 0));
        assert!(!passes(0, 59, 0));
        assert!(!passes(1, 121, 0));
    }

    #[test]
    fn time_in_which_nothing_waits_for_the_peer_does_not_count() {
        let mut send_rate = SendRate::default();
        for hour in 0..59 {
            let now = seconds(hour * 3600);
            send_rate.block(now, || 0);
            assert!(
                send_rate
                    .deadline(TIMEOUT)
                    .is_some_and(|deadline| deadline > now)
            );
            send_rate.unblock(now + seconds(1));
            assert_eq!(send_rate.deadline(TIMEOUT), None);
        }
    }
}
