//! The time of an application, which tests can freeze and move.
//!
//! An application asks [`now`] where it would ask `SystemTime::now`. A [`TestClock`] replaces the time on the
//! thread that entered it, so that tests beside it are not affected; a test server and the threads of a
//! queue take it over from the thread that starts them. Without one, [`now`] costs one more load than the
//! time of the system.
//!
//! ```
//! use std::time::Duration;
//!
//! use apus_clock::{TestClock, now};
//!
//! let clock = TestClock::new();
//! let _entered = clock.enter();
//! clock.freeze();
//! let before = now();
//! clock.advance(Duration::from_secs(3600));
//! assert_eq!(now().duration_since(before).unwrap(), Duration::from_secs(3600));
//! ```
//!
//! # Decisions
//!
//! - **The clock belongs to a thread**, so that tests that run beside one another have different times. Sessions,
//!   signed URLs, rate limits, caches, jobs and schedules ask it.
//!
//! # Tests
//!
//! Unit tests here; what follows the clock is tested in its crate: layers in `crates/server/layers`, sessions in
//! `crates/framework/web/tests/it/time.rs`.

#![forbid(unsafe_code)]

mod test_clock;

use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use test_clock::{ClockGuard, TestClock};

/// Whether any thread has ever entered a test clock.
static IS_TESTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The clocks that were entered and not left, with their numbers.
    static ENTERED: RefCell<Vec<(u64, TestClock)>> = const { RefCell::new(Vec::new()) };
}

/// How long [`sleep_until`] trusts the distance to its deadline: someone may set the time of the system.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The time of the application.
pub fn now() -> SystemTime {
    match current() {
        Some(clock) => clock.now(),
        None => SystemTime::now(),
    }
}

/// As [`now`], in seconds since 1970-01-01 (UTC).
pub fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

/// As [`now`], since 1970-01-01 (UTC).
pub fn unix_time() -> Duration {
    now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time since some moment of this process: it never goes back, and nobody can set it but a test.
pub fn monotonic() -> Duration {
    match current() {
        Some(clock) => clock.monotonic(),
        None => since_start(),
    }
}

/// Waits until the time has come. Under a frozen clock, it waits until the test moves the clock there.
pub async fn sleep_until(time: SystemTime) {
    let Some(clock) = current() else {
        while let Ok(left) = time.duration_since(SystemTime::now()) {
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
        }
        return;
    };
    let mut changes = clock.changes();
    loop {
        changes.mark_unchanged();
        let Ok(left) = time.duration_since(clock.now()) else {
            return;
        };
        if left.is_zero() {
            return;
        }
        let passes = async {
            if clock.is_frozen() {
                std::future::pending().await
            } else {
                tokio::time::sleep(left).await
            }
        };
        tokio::select! {
            () = passes => {}
            _ = changes.changed() => {}
        }
    }
}

/// Waits for this time, as [`sleep_until`].
pub async fn sleep(duration: Duration) {
    let until = now().checked_add(duration);
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Waits until a test freezes or moves the clock of this thread; without a test clock, for ever.
pub async fn moved() {
    let Some(clock) = current() else {
        return std::future::pending().await;
    };
    // The clock has the sender, so this is no error.
    let _ = clock.changes().changed().await;
}

/// The test clock of this thread, for a thread that is started: [`TestClock::enter`] there.
pub fn current() -> Option<TestClock> {
    if IS_TESTED.load(Ordering::Relaxed) {
        ENTERED.with_borrow(|entered| entered.last().map(|(_, clock)| clock.clone()))
    } else {
        None
    }
}

/// The time of the process since its clock was first used.
fn since_start() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// Makes this the clock of the thread, and returns the number by which it is left.
fn enter(clock: TestClock) -> u64 {
    ENTERED.with_borrow_mut(|entered| {
        let last = entered.last().map_or(0, |(number, _)| *number);
        let number = last.saturating_add(1);
        entered.push((number, clock));
        number
    })
}

/// Leaves a clock, in whichever order.
fn leave(number: u64) {
    ENTERED.with_borrow_mut(|entered| entered.retain(|(entered, _)| *entered != number));
}
