//! Active health checks: a node goes up or down after a number of equal results in a row.

use std::time::Duration;

/// The state of one node by its health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveHealth {
    up: bool,
    /// Results in a row that contradict the state.
    against: u32,
}

impl Default for ActiveHealth {
    fn default() -> Self {
        Self {
            // Up until checks say otherwise: a server that starts, or gets a new node, would serve nothing for the
            // first interval.
            up: true,
            against: 0,
        }
    }
}

impl ActiveHealth {
    /// Records the result of one check. Returns whether the node went up or down.
    pub(crate) fn record(&mut self, good: bool, rise: u32, fall: u32) -> bool {
        if good == self.up {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = if self.up { fall } else { rise };
        let changes = self.against >= needed;
        if changes {
            *self = Self {
                up: good,
                against: 0,
            };
        }
        changes
    }

    /// Whether the node is up.
    pub(crate) fn is_up(self) -> bool {
        self.up
    }
}

/// Returns the time to the next check: `interval`, up to `percent` of it more or less by a random `fraction`
/// from 0 to 1, so that servers that start together do not check together.
pub(crate) fn jittered(interval: Duration, percent: u8, fraction: f64) -> Duration {
    let spread = f64::from(percent.min(100)) / 100.0;
    interval.mul_f64(1.0 - spread + 2.0 * spread * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_and_rises_after_results_in_a_row() {
        let mut health = ActiveHealth::default();
        let changes: Vec<bool> = [false, true, false, false, true, false, true, true, true]
            .into_iter()
            .map(|good| health.record(good, 3, 2))
            .collect();
        assert_eq!(
            changes,
            [false, false, false, true, false, false, false, false, true]
        );
        assert!(health.is_up());
    }

    #[test]
    fn changes_with_one_result_where_one_is_enough() {
        let mut health = ActiveHealth::default();
        assert!(health.record(false, 1, 1) && !health.is_up());
        assert!(health.record(true, 1, 1) && health.is_up());
    }

    #[test]
    fn spreads_checks_around_the_interval() {
        let interval = Duration::from_secs(10);
        let seconds = |percent, fraction| jittered(interval, percent, fraction).as_secs_f64();
        assert_eq!((seconds(0, 0.9), seconds(20, 0.5)), (10.0, 10.0));
        assert_eq!((seconds(20, 0.0), seconds(20, 1.0)), (8.0, 12.0));
    }
}
