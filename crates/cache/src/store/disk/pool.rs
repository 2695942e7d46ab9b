//! The threads that do what may block: reads, writes, renames and removals of files.
//!
//! They are the store's own, not a runtime's: what is to be written outlives the worker that
//! received it, and a slow disk never takes more than these few threads.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::super::locked;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads, and what they have to do.
pub(crate) struct Pool(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    /// There is something to do, or nothing more will come.
    more: Condvar,
    /// Nothing is left to do.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody waits for these.
    urgent: VecDeque<Job>,
    jobs: VecDeque<Job>,
    /// Those that have time, with the end of it.
    later: Vec<(Instant, Job)>,
    /// Somebody waits until nothing is left to do.
    draining: bool,
    running: usize,
    stopped: bool,
}

impl Pool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let pool = Self(Arc::new(Queue {
            state: Mutex::default(),
            more: Condvar::new(),
            idle: Condvar::new(),
        }));
        for _ in 0..threads {
            let queue = pool.0.clone();
            let thread = thread::Builder::new().name("apus-cache".to_owned());
            thread.spawn(move || queue.work())?;
        }
        Ok(pool)
    }

    /// Has `job` done, in its turn.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        locked(&self.0.state).jobs.push_back(Box::new(job));
        self.0.more.notify_one();
    }

    /// Has `job` done before those that nobody waits for.
    pub(crate) fn run_first(&self, job: impl FnOnce() + Send + 'static) {
        locked(&self.0.state).urgent.push_back(Box::new(job));
        self.0.more.notify_one();
    }

    /// Has `job` done after `rest`, or when the pool is drained.
    pub(crate) fn run_after(&self, rest: Duration, job: impl FnOnce() + Send + 'static) {
        let due = Instant::now()
            .checked_add(rest)
            .unwrap_or_else(Instant::now);
        locked(&self.0.state).later.push((due, Box::new(job)));
        self.0.more.notify_one();
    }

    /// Waits until everything is done, also what that gave rise to. Blocks.
    pub(crate) fn drain(&self) {
        let mut state = locked(&self.0.state);
        while state.running > 0 || !state.is_empty() {
            state.draining = true;
            self.0.more.notify_all();
            state = self
                .0
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.draining = false;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        locked(&self.0.state).stopped = true;
        self.0.more.notify_all();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("jobs", &locked(&self.0.state).jobs.len())
            .finish()
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.jobs.is_empty() && self.later.is_empty()
    }

    fn next(&mut self) -> Option<Job> {
        let job = self.urgent.pop_front().or_else(|| self.jobs.pop_front());
        if job.is_some() || self.later.is_empty() {
            return job;
        }
        let now = Instant::now();
        let due = |(due, _): &(Instant, Job)| self.draining || *due <= now;
        let at = self.later.iter().position(due)?;
        Some(self.later.swap_remove(at).1)
    }

    fn until_due(&self) -> Option<Duration> {
        let now = Instant::now();
        self.later
            .iter()
            .map(|(due, _)| due.saturating_duration_since(now))
            .min()
    }
}

impl Queue {
    fn work(&self) {
        let mut state = locked(&self.state);
        loop {
            if let Some(job) = state.next() {
                state.running = state.running.saturating_add(1);
                drop(state);
                // A job that panics ends itself, not the thread that the others need.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = locked(&self.state);
                state.running = state.running.saturating_sub(1);
            } else if state.stopped {
                return;
            } else {
                if state.running == 0 {
                    self.idle.notify_all();
                }
                state = match state.until_due() {
                    Some(rest) => {
                        let waited = self.more.wait_timeout(state, rest);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self
                        .more
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                };
            }
        }
    }
}
