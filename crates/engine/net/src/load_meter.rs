//! Measuring how busy the workers are.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use apus_http::ServerLoad;

/// How the threads of workers are named.
pub(crate) const WORKER_THREAD: &str = "apus-worker-";

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

/// A new measurement is this part of the result, so that one moment decides little: after four seconds, two thirds of it are new.
const NEW_PART: f64 = 0.25;

/// Measures on a thread of its own until `connections` returns none.
pub(crate) fn start(
    connections: impl Fn() -> Option<u64> + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name("apus-load".to_owned())
        .spawn(move || {
            let mut meter = LoadMeter::default();
            while let Some(connections) = connections() {
                // The time of threads, from the kernel: workers do nothing for it.
                if let Ok(times) = thread_times() {
                    meter.add(times, Instant::now());
                }
                ServerLoad::set(meter.busy(), connections);
                thread::park_timeout(INTERVAL);
            }
        })
}

/// For each worker the time in which it ran or waited for a processor.
type ThreadTimes = BTreeMap<u32, Duration>;

#[derive(Debug, Default)]
struct LoadMeter {
    last: Option<(ThreadTimes, Instant)>,
    smooth: Option<f64>,
}

impl LoadMeter {
    fn add(&mut self, times: ThreadTimes, now: Instant) {
        if let Some((before, since)) = &self.last {
            let passed = now.saturating_duration_since(*since).as_secs_f64();
            let shares: Vec<f64> = times
                .iter()
                .filter_map(|(thread, time)| Some(time.saturating_sub(*before.get(thread)?)))
                .map(|busy| (busy.as_secs_f64() / passed.max(f64::EPSILON)).min(1.0))
                .collect();
            if !shares.is_empty() {
                #[expect(clippy::cast_precision_loss, reason = "there are few workers")]
                let share = shares.iter().sum::<f64>() / shares.len() as f64;
                let before = self.smooth.unwrap_or(share);
                self.smooth = Some(before + (share - before) * NEW_PART);
            }
        }
        self.last = Some((times, now));
    }

    /// Hundredths of a percent.
    fn busy(&self) -> Option<u32> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 10,000"
        )]
        self.smooth.map(|share| (share * 10_000.0).round() as u32)
    }
}

/// The times of the workers of this process.
fn thread_times() -> io::Result<ThreadTimes> {
    let mut times = ThreadTimes::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let folder = entry?.path();
        let read = |name: &str| fs::read_to_string(folder.join(name));
        // A thread may end at any moment.
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        let number = folder
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        if let (true, Some(number), Some(time)) =
            (name.starts_with(WORKER_THREAD), number, busy_time(&stat))
        {
            times.insert(number, time);
        }
    }
    Ok(times)
}

/// The first two numbers of `schedstat`: nanoseconds in which the thread ran, and in which it could have.
fn busy_time(stat: &str) -> Option<Duration> {
    let mut numbers = stat.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Duration::from_nanos(ran.saturating_add(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_share_of_all_workers_and_moves_slowly() {
        let start = Instant::now();
        let mut meter = LoadMeter::default();
        let mut add = |second: u64, times: &[(u32, u64)]| {
            let times = times
                .iter()
                .map(|(thread, milliseconds)| (*thread, Duration::from_millis(*milliseconds)));
            meter.add(times.collect(), start + Duration::from_secs(second));
            meter.busy()
        };
        assert_eq!(add(0, &[(1, 0), (2, 5000)]), None);
        // One of two workers is busy.
        assert_eq!(add(1, &[(1, 1000), (2, 5000)]), Some(5000));
        assert_eq!(add(2, &[(1, 2000), (2, 6000)]), Some(6250));
        // A worker that was replaced counts from its second measurement on; none is more than wholly busy.
        assert_eq!(add(3, &[(1, 9000), (3, 7)]), Some(7188));
        assert_eq!(add(4, &[(1, 9000), (3, 7)]), Some(5391));
        assert_eq!(add(5, &[]), Some(5391));
    }

    #[test]
    fn the_times_of_threads_are_read() {
        assert_eq!(busy_time("1000 500 7\n"), Some(Duration::from_nanos(1500)));
        assert_eq!(busy_time(""), None);
        let spun = thread::Builder::new()
            .name(format!("{WORKER_THREAD}0"))
            .spawn(|| thread_times().unwrap())
            .unwrap();
        assert!(!spun.join().unwrap().is_empty());
    }
}
