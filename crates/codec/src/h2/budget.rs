//! Budgets that honest peers never spend, and attacks do.
//!
//! Each budget is a bucket of tokens: it starts full, an event takes one out, time and useful work put
//! some back. Who finds it empty is an attacker, and the connection ends.
//!
//! Frames that answer content come when the content does, and all at once if it does: what content
//! earned is therefore kept beyond what time gives, for as much content as can be on its way.

use std::fmt;
use std::time::Duration;

/// Which budget a peer spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Streams that were opened for nothing: reset by the peer, or by us because of its faults
    /// (CVE-2023-44487, CVE-2019-9514, CVE-2025-8671).
    Resets,
    /// A field block that goes on over too many or too large frames (CVE-2024-27316,
    /// CVE-2023-45288), or that decompresses to far more than the limit (CVE-2016-6581).
    FieldBlock,
    /// Frames that have to be answered: PING and SETTINGS (CVE-2019-9512, CVE-2019-9515).
    Answers,
    /// Frames that carry nothing: empty DATA, PRIORITY, WINDOW_UPDATE and unknown types, far more
    /// of them than the content sent and received explains (CVE-2019-9513, CVE-2019-9518).
    Idle,
    /// Windows so small that content leaves in crumbs (CVE-2019-9511).
    Crumbs,
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resets => "too many streams were reset",
            Self::FieldBlock => "a field block has no end",
            Self::Answers => "too many PING or SETTINGS frames",
            Self::Idle => "too many frames that carry nothing",
            Self::Crumbs => "windows are too small for any content",
        })
    }
}

/// One bucket.
#[derive(Debug)]
pub(super) struct Budget {
    tokens: u32,
    /// What it starts with, and the most that time fills it to.
    most: u32,
    per_second: u32,
    /// The most that useful work fills it to.
    most_earned: u32,
    flood: Flood,
}

impl Budget {
    const fn new(flood: Flood, most: u32, per_second: u32) -> Self {
        Self {
            tokens: most,
            most,
            per_second,
            most_earned: most,
            flood,
        }
    }

    const fn keeping(self, most_earned: u32) -> Self {
        Self {
            most_earned,
            ..self
        }
    }

    /// Takes a token out.
    pub(super) fn spend(&mut self) -> Result<(), Flood> {
        self.tokens = self.tokens.checked_sub(1).ok_or(self.flood)?;
        Ok(())
    }

    /// Puts tokens back for useful work.
    pub(super) fn earn(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.most_earned);
    }

    fn refill(&mut self, seconds: u32) {
        let tokens = self.per_second.saturating_mul(seconds);
        let filled = self.tokens.saturating_add(tokens).min(self.most);
        self.tokens = self.tokens.max(filled);
    }
}

/// DATA frames that a client may get in one go, after it stood still or over a long path: 256 MiB in
/// frames of 16 KiB, as 10 Gbit/s hold in a fifth of a second.
const FRAMES_UNDER_WAY: u32 = 16_384;

/// The buckets of one connection.
#[derive(Debug)]
pub(super) struct Budgets {
    /// A browser that leaves a page resets what it had open, at most the streams it may have at
    /// once; two such pages at once fit. Each answer that was taken whole puts one back.
    pub(super) resets: Budget,
    /// Clients measure the bandwidth by a PING for each round trip while content flows, which the
    /// DATA frames of both directions pay for.
    pub(super) answers: Budget,
    /// Clients send one or two WINDOW_UPDATE for a DATA frame, and old ones a tree of PRIORITY at the
    /// start.
    pub(super) idle: Budget,
    /// A frame may be small because what was left of a window was small. A frame of some size puts
    /// one back.
    pub(super) crumbs: Budget,
    refilled: Duration,
}

impl Budgets {
    pub(super) const fn new() -> Self {
        Self {
            resets: Budget::new(Flood::Resets, 600, 20),
            answers: Budget::new(Flood::Answers, 200, 20).keeping(FRAMES_UNDER_WAY),
            idle: Budget::new(Flood::Idle, 2_000, 100).keeping(4 * FRAMES_UNDER_WAY),
            crumbs: Budget::new(Flood::Crumbs, 500, 5),
            refilled: Duration::ZERO,
        }
    }

    /// Puts back what whole seconds since the last time give.
    pub(super) fn advance(&mut self, now: Duration) {
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
            &mut self.answers,
            &mut self.idle,
            &mut self.crumbs,
        ] {
            budget.refill(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_spent_and_comes_back_with_time() {
        let mut budgets = Budgets::new();
        let mut spent = 0;
        while budgets.answers.spend().is_ok() {
            spent += 1;
        }
        assert_eq!(spent, 200);
        budgets.advance(Duration::from_millis(900));
        assert_eq!(budgets.answers.spend(), Err(Flood::Answers));
        budgets.advance(Duration::from_millis(1900));
        for _ in 0..20 {
            budgets.answers.spend().unwrap();
        }
        assert_eq!(budgets.answers.spend(), Err(Flood::Answers));
        budgets.advance(Duration::from_secs(1_000_000));
        for _ in 0..200 {
            budgets.answers.spend().unwrap();
        }
        assert_eq!(budgets.answers.spend(), Err(Flood::Answers));
    }

    #[test]
    fn keeps_what_content_earned_and_no_more_than_that() {
        let mut budgets = Budgets::new();
        budgets.idle.earn(u32::MAX);
        budgets.resets.earn(u32::MAX);
        budgets.advance(Duration::from_secs(1_000_000));
        let count = |budget: &mut Budget| (0..).take_while(|_| budget.spend().is_ok()).count();
        assert_eq!(count(&mut budgets.idle), 65_536);
        assert_eq!(count(&mut budgets.resets), 600);
    }
}
