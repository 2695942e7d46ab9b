//! Limits on bandwidth: who sends reserves a piece, and the time at which it is due. One number for each key says when all that was
//! reserved is sent.

use std::convert::Infallible;
use std::time::Duration;

use crate::key_table::{Key, KeyTable};

/// Bytes in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    bytes_per_second: u64,
}

/// A piece that may be sent after a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthShare {
    /// The bytes of the piece.
    pub bytes: u64,
    /// How long it has to wait.
    pub wait: Duration,
}

const SECOND: u64 = 1_000_000_000;
/// How long the pieces of one sender last, in nanoseconds: short enough for an even flow, and long enough for few wake-ups.
const PIECE: u64 = SECOND / 20;
/// The smallest and the largest piece, in bytes.
const PIECE_BYTES: (u64, u64) = (64, 256 * 1024);
/// By how much a sender that was woken late may catch up, in nanoseconds.
const CATCH_UP: u64 = SECOND / 10;
/// The longest time that is reserved ahead, beyond which what is in the table comes from a slower limit, before a reload.
const MAX_AHEAD: u64 = 3600 * SECOND;

impl Bandwidth {
    /// So many bytes in a second. At least one.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
        }
    }

    /// The bytes in a second.
    pub fn bytes_per_second(self) -> u64 {
        self.bytes_per_second
    }

    /// Reserves the next piece of `bytes` that are to be sent, at least one byte. Senders with the same key get their pieces in the order of
    /// these calls; the more there are, the smaller are the pieces, so that none waits for long.
    pub fn reserve(self, table: &KeyTable, key: Key, bytes: u64, now: Duration) -> BandwidthShare {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut share = BandwidthShare {
            bytes: 1,
            wait: Duration::ZERO,
        };
        let _ = table.update(key, |held| {
            let begin = match held {
                None => now,
                Some(held) if held.saturating_sub(now) > MAX_AHEAD => now,
                Some(held) => held.max(now.saturating_sub(CATCH_UP)),
            };
            let ahead = begin.saturating_sub(now);
            let piece = self.piece(ahead);
            share = BandwidthShare {
                bytes: bytes.clamp(1, piece),
                wait: Duration::from_nanos(ahead),
            };
            Ok::<_, Infallible>(begin.saturating_add(self.time(share.bytes)))
        });
        share
    }

    /// Gives bytes back that were reserved and are not sent.
    pub fn give_back(self, table: &KeyTable, key: Key, bytes: u64) {
        let time = self.time(bytes);
        let _ = table.update(key, |held| {
            held.map(|held| held.saturating_sub(time)).ok_or(())
        });
    }

    /// The size of a piece, when so much time is reserved already.
    fn piece(self, ahead: u64) -> u64 {
        let (least, most) = PIECE_BYTES;
        let others = (ahead / PIECE).saturating_add(1);
        let whole = self.bytes_per_second.saturating_mul(PIECE) / SECOND;
        (whole.min(most) / others).clamp(least, most)
    }

    /// The time of bytes, in nanoseconds.
    fn time(self, bytes: u64) -> u64 {
        let time = u128::from(bytes) * u128::from(SECOND) / u128::from(self.bytes_per_second);
        u64::try_from(time).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these senders with one key have sent after ten seconds, each of which is woken this late.
    fn sent(rate: u64, senders: usize, late: Duration) -> Vec<u64> {
        let (table, bandwidth) = (KeyTable::new(10), Bandwidth::new(rate));
        let key = table.key("a");
        let start = Duration::from_secs(7);
        let end = start + Duration::from_secs(10);
        let mut next: Vec<_> = vec![(start, 0); senders];
        let mut sent = vec![0; senders];
        loop {
            let first = (0..senders).min_by_key(|at| next[*at].0).unwrap();
            let (now, bytes) = next[first];
            if now >= end {
                return sent;
            }
            sent[first] += bytes;
            let share = bandwidth.reserve(&table, key, u64::MAX, now);
            let wait = if share.wait.is_zero() {
                Duration::ZERO
            } else {
                share.wait + late
            };
            next[first] = (now + wait, share.bytes);
        }
    }

    #[test]
    fn in_ten_seconds_the_bandwidth_is_used_to_within_two_percent() {
        for rate in [2_000, 100_000, 1 << 20, 33_333_333, 500_000_000] {
            for senders in [1, 2, 20] {
                for late in [0, 20].map(Duration::from_millis) {
                    let sent = sent(rate, senders, late);
                    let all: u64 = sent.iter().sum();
                    let expected = 10 * rate;
                    // What each sender still waits for is reserved, and not sent.
                    let waiting = senders as u64 * if senders > 1 { PIECE_BYTES.0 * 2 } else { 0 };
                    let about = format!("{rate} {senders} {late:?}: {all}");
                    assert!(all.abs_diff(expected) <= expected / 50 + waiting, "{about}");
                }
            }
        }
    }

    #[test]
    fn senders_of_one_key_get_their_shares_and_none_waits_for_long() {
        let sent = sent(1 << 20, 200, Duration::from_millis(1));
        let least = sent.iter().min().unwrap();
        // Those that came first had the bandwidth for themselves.
        let share = 10 * (1 << 20) / 200;
        assert!(*least >= share * 4 / 5, "{least} {share}");
        let (table, bandwidth) = (KeyTable::new(10), Bandwidth::new(1 << 20));
        let key = table.key("a");
        for _ in 0..1000 {
            let share = bandwidth.reserve(&table, key, u64::MAX, Duration::from_secs(1));
            assert!(share.wait < Duration::from_secs(4), "{share:?}");
        }
    }

    #[test]
    fn a_pause_is_not_saved_up_and_what_is_given_back_is_free_again() {
        let (table, bandwidth) = (KeyTable::new(10), Bandwidth::new(1_000_000));
        let key = table.key("a");
        let first = bandwidth.reserve(&table, key, u64::MAX, Duration::from_secs(1));
        assert_eq!((first.bytes, first.wait), (50_000, Duration::ZERO));
        let second = bandwidth.reserve(&table, key, 10, Duration::from_secs(1));
        assert_eq!((second.bytes, second.wait), (10, Duration::from_millis(50)));
        bandwidth.give_back(&table, key, 10);
        let again = bandwidth.reserve(&table, key, 10, Duration::from_secs(1));
        assert_eq!(again.wait, Duration::from_millis(50));
        let mut free = 0;
        let later = Duration::from_secs(600);
        loop {
            let share = bandwidth.reserve(&table, key, u64::MAX, later);
            if !share.wait.is_zero() {
                break;
            }
            free += share.bytes;
        }
        assert_eq!(free, 150_000);
    }
}
