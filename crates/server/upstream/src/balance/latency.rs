//! The exponentially weighted moving average of a node's response time.

use std::time::{Duration, Instant};

/// The time after which a sample counts a third.
// As the peak EWMA of Finagle and linkerd.
const DECAY_TIME: Duration = Duration::from_secs(10);

/// A moving average of response times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    state: Option<(f64, Instant)>,
}

impl Latency {
    /// Adds a response time, and returns the new mean in seconds. One above the mean replaces it at once, so
    /// that a node that becomes slow gets fewer requests before many wait for it.
    pub(crate) fn add(&mut self, took: Duration, now: Instant) -> f64 {
        let took = took.as_secs_f64();
        let mean = match self.state {
            Some((mean, at)) if took < mean => {
                let weight = decay(at, now);
                mean * weight + took * (1.0 - weight)
            }
            _ => took,
        };
        self.state = Some((mean, now));
        mean
    }

    /// Returns the mean in seconds; `None` before the first response. It decays while nothing is added, so
    /// that a node that was slow is tried again.
    pub(crate) fn seconds(&self, now: Instant) -> Option<f64> {
        self.state.map(|(mean, at)| mean * decay(at, now))
    }
}

fn decay(at: Instant, now: Instant) -> f64 {
    let age = now.saturating_duration_since(at).as_secs_f64();
    (-age / DECAY_TIME.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rises_at_once_and_falls_slowly() {
        let start = Instant::now();
        let mut latency = Latency::default();
        assert_eq!(latency.seconds(start), None);
        latency.add(10 * MS, start);
        latency.add(100 * MS, start);
        assert_eq!(latency.seconds(start), Some(0.1));
        latency.add(10 * MS, start + Duration::from_secs(1));
        let mean = latency.seconds(start + Duration::from_secs(1)).unwrap();
        assert!((0.08..0.1).contains(&mean), "{mean}");
    }

    #[test]
    fn decays_while_nothing_is_added() {
        let start = Instant::now();
        let mut latency = Latency::default();
        latency.add(Duration::from_secs(1), start);
        assert!(latency.seconds(start + DECAY_TIME * 5).unwrap() < 0.01);
    }
}
