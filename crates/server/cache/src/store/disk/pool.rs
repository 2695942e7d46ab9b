//! A pool of threads for blocking file operations.
//!
//! The threads belong to the store, not to a runtime: queued writes outlive the worker that
//! received the bytes, and a slow disk never occupies more than these threads.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::super::locked;

type DiskJob = Box<dyn FnOnce() + Send>;

/// A fixed number of threads with a queue of jobs.
pub(crate) struct DiskPool(Arc<JobQueue>);

struct JobQueue {
    state: Mutex<JobQueueState>,
    /// Signals a new job or the end.
    more: Condvar,
    /// Signals that no job is left.
    idle: Condvar,
}

#[derive(Default)]
struct JobQueueState {
    /// Jobs that a request waits for.
    urgent: VecDeque<DiskJob>,
    jobs: VecDeque<DiskJob>,
    /// Delayed jobs, with the time at which they are due.
    later: Vec<(Instant, DiskJob)>,
    /// As [`Self::later`], without those that the end waits for.
    retries: Vec<(Instant, DiskJob)>,
    /// Whether a caller waits until no job is left.
    draining: bool,
    running: usize,
    stopped: bool,
}

impl DiskPool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let pool = Self(Arc::new(JobQueue {
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

    /// Queues a job.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        locked(&self.0.state).jobs.push_back(Box::new(job));
        self.0.more.notify_one();
    }

    /// Queues a job before those that no request waits for.
    pub(crate) fn run_first(&self, job: impl FnOnce() + Send + 'static) {
        locked(&self.0.state).urgent.push_back(Box::new(job));
        self.0.more.notify_one();
    }

    /// Queues a job to run after `delay`, or when the pool is drained.
    pub(crate) fn run_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let due = due_after(delay);
        locked(&self.0.state).later.push((due, Box::new(job)));
        self.0.more.notify_one();
    }

    /// Queues a job to run after `delay`, which a pool that is drained does not wait for.
    pub(crate) fn retry_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let due = due_after(delay);
        locked(&self.0.state).retries.push((due, Box::new(job)));
        self.0.more.notify_one();
    }

    /// Waits until all jobs are done, including those that they queue. Blocks.
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

fn due_after(delay: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(delay).unwrap_or(now)
}

impl Drop for DiskPool {
    fn drop(&mut self) {
        locked(&self.0.state).stopped = true;
        self.0.more.notify_all();
    }
}

impl fmt::Debug for DiskPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskPool")
            .field("jobs", &locked(&self.0.state).jobs.len())
            .finish()
    }
}

impl JobQueueState {
    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.jobs.is_empty() && self.later.is_empty()
    }

    fn next(&mut self) -> Option<DiskJob> {
        let job = self.urgent.pop_front().or_else(|| self.jobs.pop_front());
        if job.is_some() || (self.later.is_empty() && self.retries.is_empty()) {
            return job;
        }
        let now = Instant::now();
        let due = |(due, _): &(Instant, DiskJob)| self.draining || *due <= now;
        if let Some(at) = self.later.iter().position(due) {
            return Some(self.later.swap_remove(at).1);
        }
        let at = self.retries.iter().position(|(due, _)| *due <= now)?;
        Some(self.retries.swap_remove(at).1)
    }

    fn until_due(&self) -> Option<Duration> {
        let now = Instant::now();
        self.later
            .iter()
            .chain(&self.retries)
            .map(|(due, _)| due.saturating_duration_since(now))
            .min()
    }
}

impl JobQueue {
    fn work(&self) {
        let mut state = locked(&self.state);
        loop {
            if let Some(job) = state.next() {
                state.running = state.running.saturating_add(1);
                drop(state);
                // A job that panics does not end the thread, which the other jobs need.
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
                    Some(delay) => {
                        let waited = self.more.wait_timeout(state, delay);
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
