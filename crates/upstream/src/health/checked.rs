//! What active checks say of a node: up after so many good ones in a row, down after so many bad ones.

use std::time::Duration;

/// The standing of one node with its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    up: bool,
    /// Results in a row that contradict the standing.
    against: u32,
}

impl Default for Checked {
    fn default() -> Self {
        Self {
            up: true,
            against: 0,
        }
    }
}

impl Checked {
    /// Takes the result of one check. Tells whether the standing changed.
    pub(crate) fn result(&mut self, good: bool, rise: u32, fall: u32) -> bool {
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

/// The time to the next check: `interval`, up to `percent` of it more or less, as `fraction` from 0 to 1
/// says. Servers that were started together do not check together.
pub(crate) fn jittered(interval: Duration, percent: u8, fraction: f64) -> Duration {
    let spread = f64::from(percent.min(100)) / 100.0;
    interval.mul_f64(1.0 - spread + 2.0 * spread * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_and_rises_after_results_in_a_row() {
        let mut checked = Checked::default();
        let changes: Vec<bool> = [false, true, false, false, true, false, true, true, true]
            .into_iter()
            .map(|good| checked.result(good, 3, 2))
            .collect();
        assert_eq!(
            changes,
            [false, false, false, true, false, false, false, false, true]
        );
        assert!(checked.is_up());
    }

    #[test]
    fn changes_with_one_result_where_one_is_enough() {
        let mut checked = Checked::default();
        assert!(checked.result(false, 1, 1) && !checked.is_up());
        assert!(checked.result(true, 1, 1) && checked.is_up());
    }

    #[test]
    fn spreads_checks_around_the_interval() {
        let interval = Duration::from_secs(10);
        let seconds = |percent, fraction| jittered(interval, percent, fraction).as_secs_f64();
        assert_eq!((seconds(0, 0.9), seconds(20, 0.5)), (10.0, 10.0));
        assert_eq!((seconds(20, 0.0), seconds(20, 1.0)), (8.0, 12.0));
    }
}
