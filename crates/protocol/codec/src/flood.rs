//! Limits floods of costly frames with token buckets that legitimate peers never exhaust.
//!
//! Each budget is a token bucket. It starts full, an event takes a token out, and time and useful work put
//! tokens back. A peer that exhausts a bucket is an attacker, and the connection is closed.
//!
//! Acknowledgements of data arrive when the data does, and all at once if the data did. Tokens that data
//! earned are therefore kept above the limit for time, for as much data as can be in flight.

use std::fmt;
use std::time::Duration;

/// The kind of flood, by the budget that the peer exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Streams that were reset by the peer, or by this end because of the peer's faults
    /// (CVE-2023-44487, CVE-2019-9514, CVE-2025-8671).
    Resets,
    /// A field block in too many or too large frames (CVE-2024-27316, CVE-2023-45288), or one that
    /// decompresses to far more than the limit (CVE-2016-6581).
    FieldBlock,
    /// What has to be acknowledged: PING and SETTINGS (CVE-2019-9512, CVE-2019-9515), and inserts into the table
    /// of QPACK.
    Acks,
    /// Frames without data: empty DATA, PRIORITY, WINDOW_UPDATE and unknown types, far more of them than
    /// the transferred data needs (CVE-2019-9513, CVE-2019-9518).
    Overhead,
    /// Windows so small that data leaves in tiny frames (CVE-2019-9511).
    TinyWindows,
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resets => "too many streams were reset",
            Self::FieldBlock => "a field block is too large",
            Self::Acks => "too much that has to be acknowledged",
            Self::Overhead => "too many frames without data",
            Self::TinyWindows => "the flow-control windows are too small",
        })
    }
}

/// A token bucket.
#[derive(Debug)]
pub struct FloodBudget {
    tokens: u32,
    /// The initial tokens, and the limit for tokens that time puts back.
    max: u32,
    per_second: u32,
    /// The limit for tokens that useful work puts back.
    max_earned: u32,
    flood: Flood,
}

impl FloodBudget {
    const fn new(flood: Flood, max: u32, per_second: u32) -> Self {
        Self {
            tokens: max,
            max,
            per_second,
            max_earned: max,
            flood,
        }
    }

    const fn with_max_earned(self, max_earned: u32) -> Self {
        Self { max_earned, ..self }
    }

    /// Takes a token out.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn spend(&mut self) -> Result<(), Flood> {
        self.tokens = self.tokens.checked_sub(1).ok_or(self.flood)?;
        Ok(())
    }

    /// Puts tokens back for useful work.
    #[inline]
    pub fn earn(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.max_earned);
    }

    fn refill(&mut self, seconds: u32) {
        let tokens = self.per_second.saturating_mul(seconds);
        // Time fills up to `max` only: a connection that was idle for an hour must not be owed an hour of events.
        let filled = self.tokens.saturating_add(tokens).min(self.max);
        self.tokens = self.tokens.max(filled);
    }
}

/// DATA frames that can be in flight to a client, after a stall or on a long path: 256 MiB in frames of
/// 16 KiB, which is 10 Gbit/s for a fifth of a second.
const FRAMES_IN_FLIGHT: u32 = 16_384;

/// The token buckets of one connection.
#[derive(Debug)]
pub struct FloodBudgets {
    /// A browser that leaves a page resets its open streams, at most as many as may be concurrent. The
    /// budget allows for two such pages. Each complete response puts a token back.
    pub resets: FloodBudget,
    /// Clients measure the bandwidth with a PING per round trip while data flows. The DATA frames of both
    /// directions pay for them.
    pub acks: FloodBudget,
    /// Clients send one or two WINDOW_UPDATE frames per DATA frame, and old clients a tree of PRIORITY
    /// frames at the start.
    pub overhead: FloodBudget,
    /// A frame may be small because little was left of a window. A frame of normal size puts a token
    /// back.
    pub tiny_windows: FloodBudget,
    refilled: Duration,
}

impl Default for FloodBudgets {
    fn default() -> Self {
        Self::new()
    }
}

impl FloodBudgets {
    /// The full budgets of a new connection.
    pub const fn new() -> Self {
        Self {
            // Rapid Reset (CVE-2023-44487). Counting open streams does not find it, as a stream that is reset at once
            // is never open beside another one.
            resets: FloodBudget::new(Flood::Resets, 600, 20),
            acks: FloodBudget::new(Flood::Acks, 200, 20).with_max_earned(FRAMES_IN_FLIGHT),
            overhead: FloodBudget::new(Flood::Overhead, 2_000, 100)
                .with_max_earned(4 * FRAMES_IN_FLIGHT),
            tiny_windows: FloodBudget::new(Flood::TinyWindows, 500, 5),
            refilled: Duration::ZERO,
        }
    }

    /// Puts back the tokens for the whole seconds since the last call.
    pub fn advance(&mut self, now: Duration) {
        let Some(seconds) = now
            .checked_sub(self.refilled)
            .map(|elapsed| elapsed.as_secs())
            .filter(|seconds| *seconds > 0)
        else {
            return;
        };
        self.refilled = now;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        for budget in [
            &mut self.resets,
            &mut self.acks,
            &mut self.overhead,
            &mut self.tiny_windows,
        ] {
            budget.refill(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exhausted_by_events_and_refilled_by_time() {
        let mut budgets = FloodBudgets::new();
        let mut spent = 0;
        while budgets.acks.spend().is_ok() {
            spent += 1;
        }
        assert_eq!(spent, 200);
        budgets.advance(Duration::from_millis(900));
        assert_eq!(budgets.acks.spend(), Err(Flood::Acks));
        budgets.advance(Duration::from_millis(1900));
        for _ in 0..20 {
            budgets.acks.spend().unwrap();
        }
        assert_eq!(budgets.acks.spend(), Err(Flood::Acks));
        budgets.advance(Duration::from_secs(1_000_000));
        for _ in 0..200 {
            budgets.acks.spend().unwrap();
        }
        assert_eq!(budgets.acks.spend(), Err(Flood::Acks));
    }

    #[test]
    fn keeps_tokens_that_data_earned_up_to_the_limit() {
        let mut budgets = FloodBudgets::new();
        budgets.overhead.earn(u32::MAX);
        budgets.resets.earn(u32::MAX);
        budgets.advance(Duration::from_secs(1_000_000));
        let count = |budget: &mut FloodBudget| (0..).take_while(|_| budget.spend().is_ok()).count();
        assert_eq!(count(&mut budgets.overhead), 65_536);
        assert_eq!(count(&mut budgets.resets), 600);
    }
}
