//! The access log: workers format one line per request, and the control thread writes the lines to files.
//!
//! Each worker collects the lines of a site in a buffer. Twice a second, or when the buffer is full, it sends
//! the buffer through a bounded channel; it never writes to a file. When the control thread cannot keep up,
//! or a file cannot be written, lines are dropped, counted and reported, and the requests are not affected.
//!
//! # Modules
//!
//! - `format`: the template of a site's format (`combined`, `json` or a text with variables), and what is known at the
//!   end of a response.
//! - `line`: writes a line into the buffer of the worker. `writer`: the files, which are opened again after a rotation.
//!
//! # Decisions
//!
//! - **Workers never write to a file.** A full disk or a slow one would stop all connections of a worker. Lines that
//!   cannot be written are dropped, counted and reported.
//!
//! The limit of lines that clients can cause in the server's own log is the crate apus-log-limit.
//!
//! # Tests
//!
//! Unit tests, and `crates/tools/cli/tests/it/server/access_log.rs`, where log files are read from outside.

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

use apus_conditions::RequestVariables;
use apus_http::{Completion, RemoteUser, RemoteUserSlot, Request};
use apus_private_files::{PrivateFiles, register};
use apus_sites::{Observer, OnCompletion, WorkerObserver};

pub use format::{LogFormat, LogFormatError};
pub use writer::{LogFileCounts, LogWriter, LogWriterHandle, ReopenFailure};

use line::{LineEnding, LogClock, LogLine};
use writer::{LineBatch, LogFile, LogFiles};

/// A worker flushes its buffer at once when it has this many bytes.
const BATCH_BYTES: usize = 32 * 1024;

/// The longest time that a line stays in the buffer of a worker.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Opens a log file that this process has no permission to open.
pub type OpenFile = Arc<dyn Fn(&Path) -> io::Result<std::fs::File> + Send + Sync>;

/// Opens the log files that a plan names. Clones are cheap and share the open files.
#[derive(Clone)]
pub struct AccessLogs {
    files: Arc<LogFiles>,
}

impl AccessLogs {
    /// An empty set of log files, and their writer, which belongs to the control thread.
    pub fn new() -> (Self, LogWriter) {
        Self::with_opener(None)
    }

    /// Like [`AccessLogs::new`], with an opener for files that this process has no permission to open.
    pub fn with_opener(opener: Option<OpenFile>) -> (Self, LogWriter) {
        let (files, writer) = writer::pair(opener);
        (Self { files }, writer)
    }

    /// The log of the site `site_name` in the file `path`, which several sites may share.
    /// `/dev/stdout` and `/dev/stderr` are the output of this process. No service of this process
    /// sends the file.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(&self, path: &Path, format: LogFormat, site_name: &str) -> io::Result<AccessLog> {
        register(PrivateFiles::default().file(path));
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
    files: Arc<LogFiles>,
    file: Arc<LogFile>,
    format: Arc<LogFormat>,
    site_name: Arc<str>,
}

impl Observer for AccessLog {
    fn worker(&self) -> Rc<dyn WorkerObserver> {
        Rc::new(WorkerLog(Rc::new(LineBuffer {
            log: self.clone(),
            clock: LogClock::default(),
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
struct WorkerLog(Rc<LineBuffer>);

/// The lines of one site on one worker that are not flushed yet.
struct LineBuffer {
    log: AccessLog,
    clock: LogClock,
    state: RefCell<LineBufferState>,
}

#[derive(Default)]
struct LineBufferState {
    bytes: Vec<u8>,
    lines: u64,
    /// The value buffers of finished lines, for reuse.
    spare: Vec<Vec<u8>>,
}

impl WorkerObserver for WorkerLog {
    fn begin(&self, request: &Request) -> Option<OnCompletion> {
        let buffer = self.0.clone();
        let values = buffer.state.borrow_mut().spare.pop().unwrap_or_default();
        let line = LogLine::begin(&buffer.log.format, &buffer.log.site_name, request, values);
        let variables = self.needs_variables();
        let variables = variables.then(|| RequestVariables::of(request).cloned());
        let variables = variables.flatten();
        let user = self.needs_user().then(|| RequestUser::of(request));
        Some(Box::new(move |completion| {
            let user = user.as_ref().and_then(RequestUser::name);
            buffer.add(line, completion, (user, variables.as_ref()));
        }))
    }

    fn needs_user(&self) -> bool {
        self.0.log.format.has_user()
    }

    fn needs_sent_fields(&self) -> bool {
        self.0.log.format.has_sent_fields()
    }

    fn needs_variables(&self) -> bool {
        self.0.log.format.variables_of_rules().next().is_some()
    }
}

/// The user of a request, whom a layer may find only later.
struct RequestUser {
    slot: Option<RemoteUserSlot>,
    /// The user whom the TLS handshake authenticated.
    at_arrival: Option<RemoteUser>,
}

impl RequestUser {
    fn of(request: &Request) -> Self {
        Self {
            slot: request.extensions().get().cloned(),
            at_arrival: RemoteUser::of(request),
        }
    }

    fn name(&self) -> Option<&str> {
        let found = self.slot.as_ref().and_then(RemoteUserSlot::user);
        found.or(self.at_arrival.as_ref()).map(|user| &*user.name)
    }
}

impl LineBuffer {
    fn add(
        self: Rc<Self>,
        line: LogLine,
        completion: &Completion,
        (user, variables): (Option<&str>, Option<&RequestVariables>),
    ) {
        const MAX_SPARE_BUFFERS: usize = 64;
        const MAX_SPARE_CAPACITY: usize = 4096;

        let mut state = self.state.borrow_mut();
        let is_first = state.bytes.is_empty();
        let ending = LineEnding {
            completion,
            user,
            variables,
            clock: &self.clock,
        };
        let mut values = line.finish(&self.log.format, &ending, &mut state.bytes);
        state.lines = state.lines.saturating_add(1);
        if state.spare.len() < MAX_SPARE_BUFFERS && values.capacity() <= MAX_SPARE_CAPACITY {
            values.clear();
            state.spare.push(values);
        }
        let is_full = state.bytes.len() >= BATCH_BYTES;
        drop(state);
        if is_full {
            self.flush();
        } else if is_first {
            self.schedule_flush();
        }
    }

    /// Flushes the buffer after the interval, so that a line does not wait for the next request.
    fn schedule_flush(self: &Rc<Self>) {
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime of the worker is shutting down.
            return self.flush();
        }
        let buffer = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            // If the worker stopped meanwhile, `drop` has flushed the lines.
            if let Some(buffer) = buffer.upgrade() {
                buffer.flush();
            }
        });
    }

    fn flush(&self) {
        let mut state = self.state.borrow_mut();
        if state.bytes.is_empty() {
            return;
        }
        let next = Vec::with_capacity(state.bytes.capacity().min(BATCH_BYTES));
        let batch = LineBatch {
            file: self.log.file.clone(),
            bytes: std::mem::replace(&mut state.bytes, next),
            lines: std::mem::take(&mut state.lines),
        };
        self.log.files.send(batch);
    }
}

impl Drop for LineBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
