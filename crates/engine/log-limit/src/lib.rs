//! A limit of log lines for each place in the code that logs, so that no client can fill a disk with them.
//!
//! # Decisions
//!
//! - **Each place in the code that logs what a client can cause has its own limit**: 100 lines at once and ten a
//!   second. The next line says how many were withheld. A limit for the whole log would let one client hide what others
//!   cause.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module.

#![forbid(unsafe_code)]

mod line_budget;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use line_budget::LineBudget;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The number of places with separate budgets. Each further place shares the budget of one of them.
const PLACES: usize = 1024;

/// How many entries of the table are tried for a place.
const PROBES: usize = 8;

/// The time between two reports about lines that were withheld.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The lines that the layer for requests writes: an access log, which is there by choice.
const REQUEST_LOG: &str = "apus_layers::log";

/// A layer that withholds lines of a place in the code that has logged too many.
///
/// Each place may log [`BURST`] lines at once, and [`PER_SECOND`] in each second; places where PHP applications log,
/// ten times as many. A line with the count follows, at most once a second. Lines of the levels debug and trace, which
/// somebody asked for, and of the layer that logs requests are not limited.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry()
///     .with(apus_log_limit::LogLimit::new())
///     .with(tracing_subscriber::fmt::layer());
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct LogLimit;

/// The lines that a place may log at once.
pub const BURST: u32 = 100;

/// The lines that a place may log in each second after that.
pub const PER_SECOND: u32 = 10;

/// How much more PHP applications may log.
const APPLICATION_FACTOR: u32 = 10;

/// The state of all places. The process has one, as it has one log.
static TABLE: [PlaceEntry; PLACES] = [const { PlaceEntry::new() }; PLACES];

/// Whether lines were withheld that are not reported yet.
static HAS_WITHHELD: AtomicBool = AtomicBool::new(false);

/// The thread that reports.
static REPORTER: OnceLock<Option<Thread>> = OnceLock::new();

/// The beginning of the time of budgets.
static START: OnceLock<Instant> = OnceLock::new();

/// A place, and its lines.
struct PlaceEntry {
    place: OnceLock<&'static Metadata<'static>>,
    budget: LineBudget,
    withheld: AtomicU64,
}

impl PlaceEntry {
    const fn new() -> Self {
        Self {
            place: OnceLock::new(),
            budget: LineBudget::new(),
            withheld: AtomicU64::new(0),
        }
    }
}

impl LogLimit {
    /// Limits the lines of this process. Starts the thread that reports what was withheld.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        START.get_or_init(Instant::now);
        REPORTER.get_or_init(|| {
            let builder = thread::Builder::new().name("apus-log-limit".to_owned());
            // Without the thread lines are withheld without a report.
            let started = builder.spawn(report_forever).ok();
            started.map(|started| started.thread().clone())
        });
        Self
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let place = event.metadata();
        if *place.level() > Level::INFO || is_exempt(place.target()) {
            return true;
        }
        let entry = entry(place);
        let factor = if place.target().starts_with("apus_php") {
            APPLICATION_FACTOR
        } else {
            1
        };
        let is_allowed = entry
            .budget
            .take(seconds(), BURST * factor, PER_SECOND * factor);
        if !is_allowed {
            entry.withheld.fetch_add(1, Ordering::Relaxed);
            if !HAS_WITHHELD.swap(true, Ordering::AcqRel)
                && let Some(Some(reporter)) = REPORTER.get()
            {
                reporter.unpark();
            }
        }
        is_allowed
    }
}

fn is_exempt(target: &str) -> bool {
    target == REQUEST_LOG || target == module_path!()
}

/// Whole seconds, from 1 on.
fn seconds() -> u32 {
    let elapsed = START.get_or_init(Instant::now).elapsed().as_secs();
    u32::try_from(elapsed).unwrap_or(u32::MAX).saturating_add(1)
}

/// The entry of a place.
fn entry(place: &'static Metadata<'static>) -> &'static PlaceEntry {
    // Places are static, at addresses that are multiples of 8.
    let address = std::ptr::from_ref(place).addr() >> 3;
    let first = address.wrapping_mul(0x9e37_79b9) % PLACES;
    let (before, from) = TABLE.split_at(first);
    let mut tried = from.iter().chain(before).take(PROBES);
    let is_own = |entry: &&PlaceEntry| std::ptr::eq(*entry.place.get_or_init(|| place), place);
    tried.find(is_own).unwrap_or(&OTHERS)
}

/// The entry of places for which the table has no room.
static OTHERS: PlaceEntry = PlaceEntry::new();

/// Reports the lines that were withheld, once in a second in which there were any.
fn report_forever() {
    loop {
        while !HAS_WITHHELD.load(Ordering::Acquire) {
            thread::park();
        }
        let due = Instant::now() + REPORT_INTERVAL;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            thread::park_timeout(left.max(Duration::from_millis(1)));
        }
        HAS_WITHHELD.store(false, Ordering::Release);
        for entry in TABLE.iter().chain([&OTHERS]) {
            let withheld = entry.withheld.swap(0, Ordering::Relaxed);
            if withheld == 0 {
                continue;
            }
            let place = entry.place.get().map_or_else(
                || "other places".to_owned(),
                |place| format!("{}:{}", place.target(), place.line().unwrap_or_default()),
            );
            tracing::warn!(place, withheld, "log lines were withheld");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// The levels of the lines that passed.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<Level>>>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
    }

    #[test]
    fn a_flood_of_one_kind_of_line_is_limited_and_leaves_the_others() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry()
            .with(LogLimit::new())
            .with(lines.clone());
        tracing::subscriber::with_default(subscriber, || {
            let start = seconds();
            for number in 0..100_000 {
                tracing::warn!(number, "a line that a client causes");
                if number % 1000 == 0 {
                    tracing::error!("another line");
                }
                tracing::debug!("a line that somebody asked for");
            }
            let passed = seconds() - start + 1;
            let lines = lines.0.lock().unwrap();
            let count = |level| lines.iter().filter(|line| **line == level).count();
            assert!(count(Level::WARN) >= BURST as usize);
            assert!(count(Level::WARN) <= (BURST + PER_SECOND * passed) as usize);
            assert_eq!(count(Level::ERROR), 100);
            assert_eq!(count(Level::DEBUG), 100_000);
        });
    }
}
