//! A watchdog: it reports the stack of a thread whose work takes too long, while the work still runs.
//!
//! It is meant for development. A separate thread waits until the time of some work is over, and then interrupts that thread by
//! the signal SIGURG, which is ignored otherwise. The handler of the signal notes where the thread is; names and lines are found
//! outside of it.
//!
//! # Decisions
//!
//! - **The stack is read by a signal, not by a profiler.** A handler of a signal may do little, so it notes addresses
//!   only. This is why the crate has `unsafe` code; only `apus dev` and applications that ask for it
//!   (`apus::report_blocked_stacks`) start it.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. The crate is built with line tables also where others are not, because
//! its test looks for lines.

mod capture;
mod stack;

use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use stack::Stack;

use capture::ThreadHandle;

/// What gets the stack of work that takes too long. It is called by the thread of the watchdog.
type Report = Box<dyn FnOnce(Stack) + Send>;

/// Runs work in this thread. If it still runs after `limit`, `report` gets its stack: the innermost function first, up to the one
/// that called this.
///
/// Without a watchdog (it could not be started), the work runs unwatched.
#[inline(never)]
pub fn run_watched<T>(
    limit: Duration,
    report: impl FnOnce(Stack) + Send + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let _watch = Watchdog::get().map(|watchdog| watchdog.watch(limit, Box::new(report)));
    work()
}

/// The threads that are watched, and the one that watches them.
#[derive(Default)]
struct Watchdog {
    watched: Mutex<WatchedThreads>,
    /// Notified when there is another deadline.
    changed: Condvar,
}

#[derive(Default)]
struct WatchedThreads {
    next: u64,
    by_id: BTreeMap<u64, WatchedThread>,
}

struct WatchedThread {
    due: Instant,
    thread: ThreadHandle,
    /// Until it is called.
    report: Option<Report>,
}

impl Watchdog {
    /// The watchdog of the process, which is started by the first call; `None` if it cannot be.
    fn get() -> Option<&'static Self> {
        static STARTED: OnceLock<Option<&'static Watchdog>> = OnceLock::new();
        *STARTED.get_or_init(|| Self::start().ok())
    }

    fn start() -> io::Result<&'static Self> {
        capture::install()?;
        // It ends with the process.
        let watchdog: &Self = Box::leak(Box::default());
        thread::Builder::new()
            .name("apus-watchdog".into())
            .spawn(|| watchdog.run())?;
        Ok(watchdog)
    }

    fn watch(&self, limit: Duration, report: Report) -> WatchGuard<'_> {
        let mut watched = self.lock();
        let id = watched.next;
        watched.next = id.wrapping_add(1);
        let thread = WatchedThread {
            due: Instant::now() + limit,
            thread: ThreadHandle::current(),
            report: Some(report),
        };
        watched.by_id.insert(id, thread);
        drop(watched);
        self.changed.notify_one();
        WatchGuard {
            watchdog: self,
            id,
            of_this_thread: PhantomData,
        }
    }

    fn run(&self) {
        let mut watched = self.lock();
        loop {
            let now = Instant::now();
            let waiting = watched.by_id.values_mut();
            let earliest = waiting
                .filter(|thread| thread.report.is_some())
                .min_by_key(|thread| thread.due);
            watched = match earliest {
                None => self.wait(watched),
                Some(thread) if thread.due > now => {
                    let left = thread.due - now;
                    self.wait_at_most(watched, left)
                }
                Some(thread) => {
                    // The thread cannot end meanwhile: its guard needs the lock.
                    let stack = thread.thread.capture();
                    let report = thread.report.take();
                    drop(watched);
                    if let (Some(stack), Some(report)) = (stack, report) {
                        report(stack);
                    }
                    self.lock()
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchedThreads> {
        // No invariant spans a panic.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, watched: MutexGuard<'a, WatchedThreads>) -> MutexGuard<'a, WatchedThreads> {
        self.changed
            .wait(watched)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_at_most<'a>(
        &self,
        watched: MutexGuard<'a, WatchedThreads>,
        time: Duration,
    ) -> MutexGuard<'a, WatchedThreads> {
        let (watched, _) = self
            .changed
            .wait_timeout(watched, time)
            .unwrap_or_else(PoisonError::into_inner);
        watched
    }
}

/// A thread is watched as long as this exists.
struct WatchGuard<'a> {
    watchdog: &'a Watchdog,
    id: u64,
    /// It is dropped by the thread that is watched.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        self.watchdog.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Longer than a busy machine takes to run a thread.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[inline(never)]
    fn waits_for_its_own_report(stacks: &Receiver<Stack>) -> String {
        stacks.recv_timeout(PATIENCE).unwrap().to_string()
    }

    /// The stack of work that waits for it. On a busy machine the time can be over before the thread has come to its work:
    /// then it gets more.
    fn reported_stack(mut limit: Duration) -> String {
        loop {
            let (sender, stacks) = channel();
            let report = move |stack| sender.send(stack).unwrap();
            let text = run_watched(limit, report, || waits_for_its_own_report(&stacks));
            if text.contains("waits_for_its_own_report") || limit > PATIENCE / 10 {
                return text;
            }
            limit *= 2;
        }
    }

    #[test]
    fn the_stack_of_work_that_takes_too_long_is_reported_while_it_runs() {
        let text = reported_stack(Duration::from_millis(10));
        let here = text.find("waits_for_its_own_report").expect(&text);
        assert!(text[here..].contains("watchdog/src/lib.rs:"), "{text}");
        // Neither the handler of the signal nor what called the work.
        for other in ["capture_this_thread", "run_watched", "test::run_test"] {
            assert!(!text.contains(other), "{other}: {text}");
        }
    }

    #[test]
    fn work_that_ends_in_time_is_not_reported() {
        let (sender, stacks) = channel();
        let report = move |stack: Stack| sender.send(stack).unwrap();
        assert_eq!(run_watched(PATIENCE, report, || 7), 7);
        // The report is gone, and the sender with it.
        assert!(stacks.recv().is_err());
    }

    #[test]
    fn each_of_several_threads_is_reported() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let text = reported_stack(Duration::from_millis(1));
                        assert!(text.contains("waits_for_its_own_report"), "{text}");
                    }
                });
            }
        });
    }
}
