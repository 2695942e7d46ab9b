//! The exponentially weighted moving average of a node's response time.

use std::time::{Duration, Instant};

/// How fast the past fades: what is this old counts a third.
const FADE: Duration = Duration::from_secs(10);

/// A mean that times are added to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    state: Option<(f64, Instant)>,
}

impl Latency {
    /// Adds how long an answer took. A slower answer than the mean counts at once, so that a node in
    /// trouble is left alone before many requests wait for it.
    pub(crate) fn add(&mut self, took: Duration, now: Instant) {
        let took = took.as_secs_f64();
        let mean = match self.state {
            Some((mean, at)) if took < mean => {
                let kept = kept(at, now);
                mean * kept + took * (1.0 - kept)
            }
            _ => took,
        };
        self.state = Some((mean, now));
    }

    /// The mean in seconds; `None` before the first answer. It fades while nothing is added: a node
    /// that was slow is tried again some day.
    pub(crate) fn seconds(&self, now: Instant) -> Option<f64> {
        self.state.map(|(mean, at)| mean * kept(at, now))
    }
}

fn kept(at: Instant, now: Instant) -> f64 {
    let age = now.saturating_duration_since(at).as_secs_f64();
    (-age / FADE.as_secs_f64()).exp()
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
    fn fades_while_nothing_is_asked() {
        let start = Instant::now();
        let mut latency = Latency::default();
        latency.add(Duration::from_secs(1), start);
        assert!(latency.seconds(start + FADE * 5).unwrap() < 0.01);
    }
}
