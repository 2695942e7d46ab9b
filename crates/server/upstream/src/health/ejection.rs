//! Outlier ejection: a node with more failures than its group is out of service for a growing time.

use std::time::{Duration, Instant};

use super::RequestTotals;
use crate::plan::EjectionPlan;

/// Whether one more node may be ejected from a group of `nodes`, of which `ejected` are already.
pub(crate) fn may_eject(plan: &EjectionPlan, nodes: usize, ejected: usize) -> bool {
    let most = nodes * usize::from(plan.max_percent) / 100;
    // One node of a small group may be ejected, even if that is more than the percentage.
    let most = if plan.max_percent > 0 { most.max(1) } else { 0 };
    ejected < most.min(nodes.saturating_sub(plan.keep))
}

/// Returns how long a node is ejected the `times`th time, counted from 1.
pub(crate) fn ejected_for(plan: &EjectionPlan, times: u32) -> Duration {
    // A longest time that is shorter than the first one is a mistake of the plan: the first one counts.
    plan.time
        .saturating_mul(times)
        .min(plan.max_time)
        .max(plan.time)
}

/// The schedule of the comparisons of the nodes of a group.
#[derive(Debug, Default)]
pub(crate) struct OutlierSchedule {
    since: Option<Instant>,
}

/// The requests and failures of one node since the last comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntervalTotals {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
}

impl IntervalTotals {
    /// Returns the difference of two totals.
    pub(crate) fn between(before: RequestTotals, after: RequestTotals) -> Self {
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

/// What has to be done with the totals of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonAction {
    /// Nothing yet.
    Wait,
    /// Start a new interval without a comparison: the last one was too long.
    Restart,
    /// Compare the nodes, then start a new interval.
    Compare,
}

impl OutlierSchedule {
    /// Returns what has to be done after a failed request.
    pub(crate) fn next_action(&mut self, interval: Duration, now: Instant) -> ComparisonAction {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        let action = match age {
            Some(age) if age < interval => return ComparisonAction::Wait,
            // Comparisons are made when a request fails, so an interval may have lasted for hours, and says nothing
            // about now.
            Some(age) if age < interval * 3 => ComparisonAction::Compare,
            _ => ComparisonAction::Restart,
        };
        self.since = Some(now);
        action
    }
}

/// Returns the nodes with more failures than the others, the worst first: nodes with at least `min_requests`
/// whose failure rate is at least `margin` percent higher than the rate of the others together.
pub(crate) fn outliers(intervals: &[IntervalTotals], margin: u8, min_requests: u32) -> Vec<usize> {
    let all = intervals.iter().fold(
        IntervalTotals {
            requests: 0,
            failures: 0,
        },
        |sum, interval| IntervalTotals {
            requests: sum.requests + interval.requests,
            failures: sum.failures + interval.failures,
        },
    );
    let mut found: Vec<(u64, usize)> = Vec::new();
    for (index, interval) in intervals.iter().enumerate() {
        let others = IntervalTotals {
            requests: all.requests - interval.requests,
            failures: all.failures - interval.failures,
        };
        // Of two requests, one failure is half: a rate needs a number of them.
        let is_outlier = interval.requests >= u64::from(min_requests)
            // Compared with the others and not with a limit: when all fail, as by a bad request, nobody is an outlier.
            && others.requests > 0
            && interval.percent() >= others.percent() + u64::from(margin);
        if is_outlier {
            found.push((interval.percent(), index));
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
    fn keeps_enough_nodes() {
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
    fn finds_nodes_with_more_failures_than_the_others() {
        let interval = |requests, failures| IntervalTotals { requests, failures };
        let intervals = [
            interval(100, 2),
            interval(100, 40),
            interval(100, 90),
            interval(5, 5),
        ];
        assert_eq!(outliers(&intervals, 30, 20), [2]);
        // All fail alike, so none is an outlier.
        let intervals = [interval(100, 80), interval(100, 85), interval(100, 90)];
        assert_eq!(outliers(&intervals, 30, 20), [] as [usize; 0]);
        // There is no other node to compare with.
        assert_eq!(outliers(&[interval(100, 100)], 30, 20), [] as [usize; 0]);
        assert_eq!(outliers(&[], 30, 20), [] as [usize; 0]);
    }

    #[test]
    fn compares_once_an_interval_and_never_over_a_long_time() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut schedule = OutlierSchedule::default();
        let mut action = |seconds| schedule.next_action(10 * second, start + second * seconds);
        assert_eq!(action(0), ComparisonAction::Restart);
        assert_eq!(action(9), ComparisonAction::Wait);
        assert_eq!(action(12), ComparisonAction::Compare);
        assert_eq!(action(15), ComparisonAction::Wait);
        assert_eq!(action(300), ComparisonAction::Restart);
        assert_eq!(action(310), ComparisonAction::Compare);
    }
}
