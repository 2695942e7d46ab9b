//! What the generator itself consumed, and whether it was the bottleneck.

use std::fs;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// A thread that is busy for more than this share of the time cannot send more.
const BUSY: f64 = 0.9;

/// A schedule that was missed by more than this for one in a hundred requests was not kept.
const MAX_LAG: Duration = Duration::from_millis(5);

/// A reading of the thread that calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadReading {
    at: Instant,
    /// CPU time of the thread.
    cpu: Duration,
    /// Time for which it was ready to run and had no CPU.
    waited: Duration,
}

impl ThreadReading {
    pub(crate) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(
            u64::try_from(cpu.tv_sec).unwrap_or(0),
            u32::try_from(cpu.tv_nsec).unwrap_or(0),
        );
        let waited = fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0);
        Self {
            at: Instant::now(),
            cpu,
            waited: Duration::from_nanos(waited),
        }
    }

    /// What the thread consumed since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> ThreadUse {
        ThreadUse {
            time: self.at - earlier.at,
            cpu: self.cpu.saturating_sub(earlier.cpu),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// What a thread of the generator consumed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadUse {
    pub(crate) time: Duration,
    pub(crate) cpu: Duration,
    pub(crate) waited: Duration,
}

impl ThreadUse {
    /// The share of the time in which the thread ran or was ready to run.
    pub(crate) fn busy(&self) -> f64 {
        let time = self.time.as_secs_f64().max(1e-9);
        (self.cpu + self.waited).as_secs_f64() / time
    }
}

/// Why the generator was the bottleneck, if it was.
pub(crate) fn bottleneck(threads: &[ThreadUse], lag: Option<&Histogram<u64>>) -> Option<String> {
    if let Some(lag) = lag {
        let missed = Duration::from_nanos(lag.value_at_quantile(0.99));
        return (missed > MAX_LAG).then(|| {
            format!(
                "the generator began 1% of the requests more than {:.1} ms after they were due",
                missed.as_secs_f64() * 1e3
            )
        });
    }
    let busiest = threads
        .iter()
        .max_by(|one, other| one.busy().total_cmp(&other.busy()))?;
    (busiest.busy() > BUSY).then(|| {
        let time = busiest.time.as_secs_f64().max(1e-9);
        format!(
            "a thread of the generator was busy for {:.0}% of the time ({:.0}% on a CPU, {:.0}% waiting for one)",
            (busiest.busy() * 100.0).min(100.0),
            busiest.cpu.as_secs_f64() / time * 100.0,
            busiest.waited.as_secs_f64() / time * 100.0,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::histogram;

    fn thread(cpu: u64, waited: u64) -> ThreadUse {
        ThreadUse {
            time: Duration::from_millis(100),
            cpu: Duration::from_millis(cpu),
            waited: Duration::from_millis(waited),
        }
    }

    #[test]
    fn a_busy_thread_is_a_bottleneck_in_a_closed_loop() {
        assert!(bottleneck(&[thread(50, 10), thread(89, 0)], None).is_none());
        assert!(bottleneck(&[thread(50, 0), thread(95, 0)], None).is_some());
        // It shares its CPU with the server.
        let why = bottleneck(&[thread(45, 50)], None).unwrap();
        assert!(why.contains("95%") && why.contains("45% on a CPU"), "{why}");
    }

    #[test]
    fn a_missed_schedule_is_a_bottleneck_in_an_open_loop() {
        let mut lag = histogram();
        lag.record_n(100_000, 990).unwrap();
        lag.record_n(50_000_000, 9).unwrap();
        assert!(bottleneck(&[thread(95, 0)], Some(&lag)).is_none());
        lag.record_n(50_000_000, 20).unwrap();
        assert!(bottleneck(&[thread(10, 0)], Some(&lag)).is_some());
    }

    #[test]
    fn a_thread_that_works_consumes_cpu() {
        let before = ThreadReading::now();
        let mut sum = 0_u64;
        while before.at.elapsed() < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = ThreadReading::now().since(before);
        assert!(used.cpu > Duration::from_micros(100), "{used:?} {sum}");
        assert!(used.busy() > 0.0);
    }
}
