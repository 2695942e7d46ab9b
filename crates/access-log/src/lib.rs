//! The access log: one line per request, put together on the worker, written by the control thread.
//!
//! A worker gathers the lines of a site in a buffer of its own. Twice a second, or when the buffer
//! is full, it hands the buffer over through a bounded channel and goes on; it never touches a
//! file. When the control thread cannot keep up, or a file cannot be written, lines are dropped,
//! counted and reported, and the requests are answered all the same.

#![forbid(unsafe_code)]

mod format;
mod line;
mod writer;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{Completion, Request};
use apus_sites::{Observer, OnCompletion, WorkerObserver};

pub use format::{Format, FormatError};
pub use writer::{Counts, Writer, WriterHandle};

use line::{Clock, Line};
use writer::{Batch, Files, LogFile};

/// Past this many bytes a worker hands its lines over without waiting for the time.
const BATCH_BYTES: usize = 32 * 1024;

/// How long a line may stay with the worker.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Opens a log file in place of this process, which may not.
pub type OpenFile = Arc<dyn Fn(&Path) -> io::Result<std::fs::File> + Send + Sync>;

/// Opens the log files that a plan names. Cheap to clone; every clone knows the same files.
#[derive(Clone)]
pub struct AccessLogs {
    files: Arc<Files>,
}

impl AccessLogs {
    /// A set of log files, and what writes them; the latter belongs to the control thread.
    pub fn new() -> (Self, Writer) {
        Self::with_opener(None)
    }

    /// As [`AccessLogs::new`]; the opener opens files that this process may not open.
    pub fn with_opener(opener: Option<OpenFile>) -> (Self, Writer) {
        let (files, writer) = writer::pair(opener);
        (Self { files }, writer)
    }

    /// The log of the site `site_name` in the file `path`, which several sites may share.
    /// `/dev/stdout` and `/dev/stderr` are the output of this process.
    ///
    /// # Errors
    /// The file cannot be opened to append.
    pub fn open(&self, path: &Path, format: Format, site_name: &str) -> io::Result<AccessLog> {
        Ok(AccessLog {
            files: self.files.clone(),
            file: self.files.open(path)?,
            format: Arc::new(format),
            site_name: site_name.into(),
        })
    }
}

impl fmt::Debug for AccessLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLogs").finish_non_exhaustive()
    }
}

/// The access log of one site, for all workers.
#[derive(Clone)]
pub struct AccessLog {
    files: Arc<Files>,
    file: Arc<LogFile>,
    format: Arc<Format>,
    site_name: Arc<str>,
}

impl Observer for AccessLog {
    fn worker(&self) -> Rc<dyn WorkerObserver> {
        Rc::new(WorkerLog(Rc::new(Gathered {
            log: self.clone(),
            clock: Clock::default(),
            state: RefCell::default(),
        })))
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog")
            .field("file", &self.file.path())
            .field("site_name", &self.site_name)
            .finish_non_exhaustive()
    }
}

/// The access log of one site on one worker.
struct WorkerLog(Rc<Gathered>);

struct Gathered {
    log: AccessLog,
    clock: Clock,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    lines: u64,
    /// Buffers of finished lines, to use again.
    spare: Vec<Vec<u8>>,
}

impl WorkerObserver for WorkerLog {
    fn begin(&self, request: &Request) -> Option<OnCompletion> {
        let gathered = self.0.clone();
        let buffer = gathered.state.borrow_mut().spare.pop().unwrap_or_default();
        let line = Line::begin(
            &gathered.log.format,
            &gathered.log.site_name,
            request,
            buffer,
        );
        Some(Box::new(move |completion| gathered.add(line, completion)))
    }
}

impl Gathered {
    fn add(self: Rc<Self>, line: Line, completion: &Completion) {
        /// Buffers to keep, of what size at most.
        const SPARE: (usize, usize) = (64, 4096);

        let mut state = self.state.borrow_mut();
        let first = state.bytes.is_empty();
        let mut buffer = line.finish(&self.log.format, completion, &self.clock, &mut state.bytes);
        state.lines = state.lines.saturating_add(1);
        if state.spare.len() < SPARE.0 && buffer.capacity() <= SPARE.1 {
            buffer.clear();
            state.spare.push(buffer);
        }
        let full = state.bytes.len() >= BATCH_BYTES;
        drop(state);
        if full {
            self.hand_over();
        } else if first {
            self.hand_over_in_time();
        }
    }

    /// Sees to it that a line does not wait for the next request.
    fn hand_over_in_time(self: &Rc<Self>) {
        if tokio::runtime::Handle::try_current().is_err() {
            // The worker's runtime is being taken down.
            return self.hand_over();
        }
        let gathered = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            // If the worker stopped meanwhile, `drop` has handed the lines over.
            if let Some(gathered) = gathered.upgrade() {
                gathered.hand_over();
            }
        });
    }

    fn hand_over(&self) {
        let mut state = self.state.borrow_mut();
        if state.bytes.is_empty() {
            return;
        }
        let room = Vec::with_capacity(state.bytes.capacity().min(BATCH_BYTES));
        let batch = Batch {
            file: self.log.file.clone(),
            bytes: std::mem::replace(&mut state.bytes, room),
            lines: std::mem::take(&mut state.lines),
        };
        self.log.files.hand_over(batch);
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests;
