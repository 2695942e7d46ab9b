//! `TestClock`: a clock that a test freezes and moves.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::{IS_TESTED, enter, leave, since_start};

/// A clock that a test freezes and moves. Clones are the same clock; a new one runs like the system clock.
#[derive(Clone)]
pub struct TestClock {
    state: Arc<Mutex<ClockState>>,
    changed: watch::Sender<()>,
}

#[derive(Clone, Copy)]
struct ClockState {
    /// The time of the system when [`since_start`] was `base_monotonic`.
    base: SystemTime,
    base_monotonic: Duration,
    /// What [`since_start`] was when the clock was frozen.
    frozen: Option<Duration>,
    /// How far the clock was moved.
    moved: Duration,
}

impl ClockState {
    fn monotonic(self) -> Duration {
        self.frozen
            .unwrap_or_else(since_start)
            .saturating_add(self.moved)
    }

    fn now(self) -> SystemTime {
        let passed = self.monotonic().saturating_sub(self.base_monotonic);
        self.base.checked_add(passed).unwrap_or(self.base)
    }
}

impl TestClock {
    /// A clock that runs.
    pub fn new() -> Self {
        Self {
            state: Arc::new(Mutex::new(ClockState {
                base: SystemTime::now(),
                base_monotonic: since_start(),
                frozen: None,
                moved: Duration::ZERO,
            })),
            changed: watch::Sender::new(()),
        }
    }

    /// Makes this the clock of the thread until the guard is dropped.
    #[must_use = "the thread has its former clock again when the guard is dropped"]
    pub fn enter(&self) -> ClockGuard {
        IS_TESTED.store(true, Ordering::Relaxed);
        ClockGuard {
            number: enter(self.clone()),
            thread: PhantomData,
        }
    }

    /// Stops the clock.
    pub fn freeze(&self) {
        self.change(|state| state.frozen = Some(state.frozen.unwrap_or_else(since_start)));
    }

    /// Stops the clock at a time.
    pub fn freeze_at(&self, time: SystemTime) {
        self.change(|state| {
            state.frozen = Some(state.frozen.unwrap_or_else(since_start));
            state.base = time;
            state.base_monotonic = state.monotonic();
        });
    }

    /// Moves the clock forward, whether it is frozen or not.
    pub fn advance(&self, duration: Duration) {
        self.change(|state| state.moved = state.moved.saturating_add(duration));
    }

    /// Lets a frozen clock run on.
    pub fn resume(&self) {
        self.change(|state| {
            let shown = state.monotonic();
            if state.frozen.take().is_some() {
                // It has to go on from there, and not from where the time of the process is by now.
                let ahead = shown.saturating_sub(since_start());
                let behind = since_start().saturating_sub(shown);
                state.moved = ahead;
                state.base = state.base.checked_sub(behind).unwrap_or(state.base);
            }
        });
    }

    /// The time of the clock.
    pub fn now(&self) -> SystemTime {
        self.state().now()
    }

    /// Whether it is frozen.
    pub fn is_frozen(&self) -> bool {
        self.state().frozen.is_some()
    }

    /// The time of the clock that only goes forward.
    pub(crate) fn monotonic(&self) -> Duration {
        self.state().monotonic()
    }

    /// Receives a note of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut ClockState)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClock")
            .field("now", &self.now())
            .field("is_frozen", &self.is_frozen())
            .finish()
    }
}

/// Gives the thread the clock back that it had, when it is dropped.
#[derive(Debug)]
pub struct ClockGuard {
    number: u64,
    /// It belongs to its thread.
    thread: PhantomData<Rc<()>>,
}

impl Drop for ClockGuard {
    fn drop(&mut self) {
        leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_frozen_clock_moves_only_by_the_test() {
        let clock = TestClock::new();
        clock.freeze_at(UNIX_EPOCH + Duration::from_secs(1000));
        let _entered = clock.enter();
        let before = crate::monotonic();
        assert_eq!(crate::unix_time(), Duration::from_secs(1000));
        clock.advance(Duration::from_secs(5));
        assert_eq!(crate::unix_seconds(), 1005);
        assert_eq!(crate::monotonic(), before + Duration::from_secs(5));
        clock.freeze();
        assert_eq!(crate::unix_seconds(), 1005);
    }

    #[test]
    fn a_resumed_clock_goes_on_from_where_it_was() {
        let clock = TestClock::new();
        clock.freeze_at(UNIX_EPOCH + Duration::from_secs(1000));
        clock.advance(Duration::from_secs(500));
        clock.resume();
        let now = clock.now().duration_since(UNIX_EPOCH).unwrap();
        assert!(now >= Duration::from_secs(1500), "{now:?}");
        assert!(now < Duration::from_secs(1600), "{now:?}");
    }

    #[test]
    fn a_clock_is_that_of_its_thread_until_the_guard_is_dropped() {
        let clock = TestClock::new();
        clock.freeze_at(UNIX_EPOCH);
        {
            let _entered = clock.enter();
            assert_eq!(crate::now(), UNIX_EPOCH);
            let there = std::thread::spawn(crate::now).join().unwrap();
            assert!(there > UNIX_EPOCH + Duration::from_secs(1));
        }
        assert!(crate::now() > UNIX_EPOCH + Duration::from_secs(1));
    }

    #[test]
    fn clocks_are_left_in_any_order() {
        let clocks = [1, 2].map(|seconds| {
            let clock = TestClock::new();
            clock.freeze_at(UNIX_EPOCH + Duration::from_secs(seconds));
            clock
        });
        let [first, second] = clocks.each_ref().map(TestClock::enter);
        assert_eq!(crate::unix_seconds(), 2);
        drop(first);
        assert_eq!(crate::unix_seconds(), 2);
        drop(second);
        assert!(crate::current().is_none());
    }

    #[tokio::test]
    async fn a_sleep_ends_when_the_clock_is_moved() {
        let clock = TestClock::new();
        clock.freeze();
        let _entered = clock.enter();
        let sleep = crate::sleep(Duration::from_secs(3600));
        tokio::pin!(sleep);
        let waits = tokio::time::timeout(Duration::from_millis(1), &mut sleep).await;
        assert!(waits.is_err());
        clock.advance(Duration::from_secs(3599));
        let waits = tokio::time::timeout(Duration::from_millis(1), &mut sleep).await;
        assert!(waits.is_err());
        clock.advance(Duration::from_secs(1));
        sleep.await;
    }
}
