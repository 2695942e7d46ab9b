//! Outlier ejection: a node that fails more than its group is left out for a growing time.
//!
//! Never so many are left out that too few stay.

use std::time::{Duration, Instant};

use super::Totals;
use crate::plan::EjectionPlan;

/// Whether one more node may be ejected from a group of `nodes`, of which `ejected` are.
pub(crate) fn may_eject(plan: &EjectionPlan, nodes: usize, ejected: usize) -> bool {
    let most = nodes * usize::from(plan.max_percent) / 100;
    // One may go from a group so small that no part of it is a whole node.
    let most = if plan.max_percent > 0 { most.max(1) } else { 0 };
    ejected < most.min(nodes.saturating_sub(plan.keep))
}

/// How long a node is ejected the `times`th time, counted from 1.
pub(crate) fn ejected_for(plan: &EjectionPlan, times: u32) -> Duration {
    plan.time
        .saturating_mul(times)
        .min(plan.max_time)
        .max(plan.time)
}

/// Compares the nodes of a group with each other, once an interval.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    since: Option<Instant>,
}

/// What one node did since the last comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
}

impl Share {
    /// What the node did from `before` to `after`.
    pub(crate) fn between(before: Totals, after: Totals) -> Self {
        Self {
            requests: after.requests.saturating_sub(before.requests),
            failures: after.failures.saturating_sub(before.failures),
        }
    }

    fn percent(self) -> u64 {
        (self.failures * 100)
            .checked_div(self.requests)
            .unwrap_or(0)
    }
}

/// What there is to do with what the nodes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    No,
    /// Begin to count anew: what was counted is of too long a time.
    Restart,
    /// Compare, then begin to count anew.
    Compare,
}

impl Outliers {
    /// What is due, asked when a request failed.
    pub(crate) fn due(&mut self, interval: Duration, now: Instant) -> Due {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        let due = match age {
            Some(age) if age < interval => return Due::No,
            Some(age) if age < interval * 3 => Due::Compare,
            _ => Due::Restart,
        };
        self.since = Some(now);
        due
    }
}

/// The nodes that failed more requests than the others did, the worst first: at least `margin` percent
/// of their requests more than the others together, and no fewer than `min_requests`.
pub(crate) fn outliers(shares: &[Share], margin: u8, min_requests: u32) -> Vec<usize> {
    let all = shares.iter().fold(
        Share {
            requests: 0,
            failures: 0,
        },
        |sum, share| Share {
            requests: sum.requests + share.requests,
            failures: sum.failures + share.failures,
        },
    );
    let mut found: Vec<(u64, usize)> = Vec::new();
    for (index, share) in shares.iter().enumerate() {
        let others = Share {
            requests: all.requests - share.requests,
            failures: all.failures - share.failures,
        };
        let is_outlier = share.requests >= u64::from(min_requests)
            && others.requests > 0
            && share.percent() >= others.percent() + u64::from(margin);
        if is_outlier {
            found.push((share.percent(), index));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(max_percent: u8, keep: usize) -> EjectionPlan {
        EjectionPlan {
            consecutive: 5,
            rate: None,
            time: Duration::from_secs(30),
            max_time: Duration::from_secs(100),
            max_percent,
            keep,
        }
    }

    #[test]
    fn keeps_the_floor() {
        for (percent, keep, nodes, ejected, expected) in [
            (50, 1, 4, 0, true),
            (50, 1, 4, 1, true),
            (50, 1, 4, 2, false),
            (100, 1, 3, 2, false),
            (100, 2, 3, 1, false),
            (10, 1, 2, 0, true),
            (10, 1, 1, 0, false),
            (0, 0, 5, 0, false),
            (100, 0, 1, 0, true),
        ] {
            let may = may_eject(&plan(percent, keep), nodes, ejected);
            assert_eq!(may, expected, "{percent} {keep} {nodes} {ejected}");
        }
    }

    #[test]
    fn grows_the_time_up_to_the_most() {
        let plan = plan(50, 1);
        let times = [1, 2, 3, 4, u32::MAX].map(|times| ejected_for(&plan, times).as_secs());
        assert_eq!(times, [30, 60, 90, 100, 100]);
    }

    #[test]
    fn finds_those_that_fail_more_than_the_rest() {
        let share = |requests, failures| Share { requests, failures };
        let shares = [share(100, 2), share(100, 40), share(100, 90), share(5, 5)];
        assert_eq!(outliers(&shares, 30, 20), [2]);
        // All fail alike: the trouble is not theirs.
        let shares = [share(100, 80), share(100, 85), share(100, 90)];
        assert_eq!(outliers(&shares, 30, 20), [] as [usize; 0]);
        // Nobody to compare with.
        assert_eq!(outliers(&[share(100, 100)], 30, 20), [] as [usize; 0]);
        assert_eq!(outliers(&[], 30, 20), [] as [usize; 0]);
    }

    #[test]
    fn compares_once_an_interval_and_never_over_a_long_time() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut outliers = Outliers::default();
        let mut due = |seconds| outliers.due(10 * second, start + second * seconds);
        assert_eq!(due(0), Due::Restart);
        assert_eq!(due(9), Due::No);
        assert_eq!(due(12), Due::Compare);
        assert_eq!(due(15), Due::No);
        assert_eq!(due(300), Due::Restart);
        assert_eq!(due(310), Due::Compare);
    }
}
