//! What is known of a load while it goes on.

use std::collections::VecDeque;

use apus_bench::{LoadProgress, format_rate};

/// The most intervals that are kept: more than terminals have columns.
pub(crate) const MAX_INTERVALS: usize = 512;

/// The rate that is shown covers the last second, or the time in which this number of responses comes on average.
const RATE_SECONDS: f64 = 1.0;
const RATE_RESPONSES: f64 = 10.0;

/// The course of a load until now.
#[derive(Default)]
pub(crate) struct LoadCourse {
    pub(crate) intervals: VecDeque<LoadProgress>,
    pub(crate) good: u64,
    pub(crate) failed: u64,
    seconds: f64,
    /// Of the last interval with responses.
    p50_ms: f64,
    p99_ms: f64,
}

impl LoadCourse {
    pub(crate) fn add(&mut self, progress: LoadProgress) {
        if self
            .intervals
            .back()
            .is_some_and(|last| last.seconds > progress.seconds)
        {
            // Another load of a search.
            *self = Self::default();
        }
        self.good += progress.good;
        self.failed += progress.failed;
        self.seconds += progress.interval;
        if progress.good > 0 {
            (self.p50_ms, self.p99_ms) = (progress.p50_ms, progress.p99_ms);
        }
        if self.intervals.len() == MAX_INTERVALS {
            self.intervals.pop_front();
        }
        self.intervals.push_back(progress);
    }

    /// Good responses per second of late. One interval of a slow load has none, and the next one has a response or two.
    pub(crate) fn rate(&self) -> f64 {
        let average = self.good as f64 / self.seconds;
        let enough = (RATE_RESPONSES / average).max(RATE_SECONDS);
        let (mut good, mut seconds) = (0, 0.0);
        for interval in self.intervals.iter().rev() {
            good += interval.good;
            seconds += interval.interval;
            // Lengths are rounded: ten of 0.1 s are a second.
            if seconds >= enough * 0.999 {
                break;
            }
        }
        match good {
            0 => 0.0,
            good => good as f64 / seconds,
        }
    }

    /// Two percentiles of the latencies of late.
    pub(crate) fn percentiles(&self) -> String {
        format!("p50 {:.2} ms  p99 {:.2} ms", self.p50_ms, self.p99_ms)
    }

    /// The load in a line.
    pub(crate) fn line(&self) -> String {
        let seconds = self.intervals.back().map_or(0.0, |last| last.seconds);
        format!(
            "{seconds:>6.1} s  {:>10}/s  {}  {} failed",
            format_rate(self.rate()),
            self.percentiles(),
            self.failed,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line after intervals of 0.1 s with as many good responses.
    fn line(counts: impl IntoIterator<Item = u64>) -> String {
        let mut course = LoadCourse::default();
        for (number, good) in (1..).zip(counts) {
            course.add(LoadProgress {
                seconds: f64::from(number) / 10.0,
                good,
                failed: 1,
                interval: 0.1,
                p50_ms: if good > 0 { 1.0 } else { 0.0 },
                p99_ms: if good > 0 { 2.0 } else { 0.0 },
                bands: Vec::new(),
            });
        }
        course.line()
    }

    #[test]
    fn the_rate_of_a_fast_load_is_that_of_the_last_second() {
        let steady = [1000; 30];
        assert_eq!(
            line(steady),
            "   3.0 s      10,000/s  p50 1.00 ms  p99 2.00 ms  30 failed"
        );
        let slower = line(steady.into_iter().chain([500; 5]));
        assert!(slower.contains("       7,500/s  "), "{slower}");
        let slower = line(steady.into_iter().chain([500; 10]));
        assert!(slower.contains("       5,000/s  "), "{slower}");
        // A server that stopped has no rate a second later.
        let stopped = line(steady.into_iter().chain([0; 9]));
        assert!(stopped.contains("       1,000/s  "), "{stopped}");
        let stopped = line(steady.into_iter().chain([0; 10]));
        assert!(stopped.contains("           0/s  p50 1.00"), "{stopped}");
    }

    #[test]
    fn another_load_of_a_search_begins_anew() {
        let mut course = LoadCourse::default();
        for (seconds, good) in [(0.1, 1000), (0.2, 1000), (0.1, 10)] {
            course.add(LoadProgress {
                seconds,
                good,
                failed: 0,
                interval: 0.1,
                p50_ms: 1.0,
                p99_ms: 2.0,
                bands: Vec::new(),
            });
        }
        let line = course.line();
        assert!(line.contains("         100/s  "), "{line}");
    }

    #[test]
    fn the_rate_of_a_slow_load_is_that_of_a_time_with_responses() {
        // One response in 2.5 s: 24 of 25 intervals have none.
        let slow = (1..=300).map(|number| u64::from(number % 25 == 0));
        assert_eq!(
            line(slow),
            "  30.0 s         0.4/s  p50 1.00 ms  p99 2.00 ms  300 failed"
        );
        let first = line([0, 0, 0, 1]);
        assert!(first.contains("         2.5/s  "), "{first}");
        let none = line([0; 50]);
        assert!(none.contains("           0/s  p50 0.00"), "{none}");
        let empty = line([]);
        assert!(empty.contains("   0.0 s           0/s  "), "{empty}");
    }
}
