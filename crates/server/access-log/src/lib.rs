//! The access log: workers format one line per request, the control thread writes the lines to files, and a thread for each receiver
//! sends them to syslog servers and to journald.
//!
//! Each worker collects the lines of a site in a buffer. Twice a second, or when the buffer is full, it sends
//! the buffer through a bounded channel; it never writes to a file or a receiver. When the control thread cannot keep up,
//! or a file cannot be written, lines are dropped, counted and reported, and the requests are not affected.
//!
//! # Modules
//!
//! - `format`: the template of a site's format (`combined`, `json` or a text with variables), and what is known at the
//!   end of a response.
//! - `hidden`: secrets of queries, which lines do not have. `sampling`: which requests are logged.
//! - `line`: writes a line into the buffer of the worker. `batch`: the buffer on its way.
//! - `writer`: the files, which are opened again after a rotation, and the table of receivers.
//! - `destination`: receivers as they are configured. `remote`: the queue and the thread of each, the messages of syslog (RFC 5424,
//!   RFC 3164, RFC 6587) and journald, and the sockets.
//!
//! # Decisions
//!
//! - **Workers never write to a file.** A full disk or a slow one would stop all connections of a worker. Lines that
//!   cannot be written are dropped, counted and reported.
//! - **Each receiver has its own queue of at most 8 MB and its own thread.** A receiver that is slow or gone delays no file and no other
//!   receiver. Lines wait in the queue while it cannot be reached; when the queue is full, the newest are lost. A thread may wait in
//!   system calls and for name servers, so it needs no second implementation of time-outs; there are as many threads as
//!   addresses in the configuration, not as sites.
//! - **Messages are put together on the thread of the receiver**: the worker formats a line once, for all places of a log.
//! - **On Unix sockets the form is RFC 3164**, as the C library writes it to `/dev/log`: journald does not read RFC 5424 there.
//!
//! - **Secrets of queries are hidden unless the configuration says otherwise.** Tokens in URLs end in logs, backups and other people's
//!   dashboards; no reader of logs needs them.
//!
//! The limit of lines that clients can cause in the server's own log is the crate apus-log-limit.
//!
//! # Tests
//!
//! Unit tests, and `crates/tools/cli/tests/it/server/access_log.rs`, where log files are read from outside.

#![forbid(unsafe_code)]

mod batch;
mod destination;
mod format;
mod hidden;
mod line;
mod remote;
mod sampling;
mod writer;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_conditions::RequestVariables;
use apus_http::{RemoteUser, RemoteUserSlot, Request, ResponseOutcome};
use apus_private_files::{PrivateFiles, register};
use apus_sites::{Observer, OnCompletion, WorkerObserver};

pub use destination::{
    JOURNAL_SOCKET, LogReceiver, SyslogAddress, SyslogAddressError, SyslogFormat, SyslogHost,
    SyslogLabel,
};
pub use format::{LogFormat, LogFormatError};
pub use hidden::HiddenParameters;
pub use sampling::LogSampling;
pub use writer::{LogCounts, LogWriter, LogWriterHandle, ReopenFailure};

use batch::{LineBatch, LineRecord, MessageBatch, MessageSeverity};
use line::{LineEnding, LogClock, LogLine};
use remote::RemoteLog;
use sampling::SampleNumbers;
use writer::{LogFile, LogFiles};

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

    /// The log of the site `site_name`. Several sites may share its file and its receivers. No service of this process
    /// sends the file.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or there is no thread for a receiver.
    pub fn open(&self, settings: &AccessLogSettings, site_name: &str) -> io::Result<AccessLog> {
        let file = match &settings.file {
            Some(path) => {
                register(PrivateFiles::default().file(path));
                Some(self.files.open(path)?)
            }
            None => None,
        };
        let mut remotes = Vec::new();
        for receiver in &settings.receivers {
            remotes.push(self.files.remote(receiver)?);
        }
        let has_journal = settings
            .receivers
            .iter()
            .any(|one| matches!(one, LogReceiver::Journal(_)));
        Ok(AccessLog {
            files: self.files.clone(),
            file,
            remotes: remotes.into(),
            label: Arc::new(settings.label.clone()),
            format: Arc::new(settings.format.clone().hiding(&settings.hidden)),
            sampling: settings.sampling,
            fields: has_journal.then(|| Arc::new(LogFormat::journal_fields())),
            site_name: site_name.into(),
        })
    }
}

/// An access log, as it is configured.
#[derive(Clone, Debug)]
pub struct AccessLogSettings {
    /// The file; `/dev/stdout` and `/dev/stderr` are the output of this process.
    pub file: Option<PathBuf>,
    /// The other receivers of the lines.
    pub receivers: Vec<LogReceiver>,
    /// What receivers get to know about the sender.
    pub label: SyslogLabel,
    /// The format of a line.
    pub format: LogFormat,
    /// Which requests are logged; `None`: all.
    pub sampling: Option<LogSampling>,
    /// The parameters of queries that lines do not have.
    pub hidden: HiddenParameters,
}

impl AccessLogSettings {
    /// A log in a file.
    pub fn file(path: impl Into<PathBuf>, format: LogFormat) -> Self {
        Self {
            file: Some(path.into()),
            ..Self::receivers(Vec::new(), format)
        }
    }

    /// A log that only these receive.
    pub fn receivers(receivers: Vec<LogReceiver>, format: LogFormat) -> Self {
        Self {
            file: None,
            receivers,
            label: SyslogLabel::default(),
            format,
            sampling: None,
            hidden: HiddenParameters::default(),
        }
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
    file: Option<Arc<LogFile>>,
    remotes: Arc<[Arc<RemoteLog>]>,
    label: Arc<SyslogLabel>,
    format: Arc<LogFormat>,
    /// The journal's own fields, for receivers that take them.
    fields: Option<Arc<LogFormat>>,
    sampling: Option<LogSampling>,
    site_name: Arc<str>,
}

impl Observer for AccessLog {
    fn worker(&self) -> Rc<dyn WorkerObserver> {
        Rc::new(WorkerLog(Rc::new(LineBuffer {
            log: self.clone(),
            clock: LogClock::default(),
            numbers: SampleNumbers::default(),
            state: RefCell::default(),
        })))
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog")
            .field("file", &self.file.as_ref().map(|file| file.path()))
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
    numbers: SampleNumbers,
    state: RefCell<LineBufferState>,
}

#[derive(Default)]
struct LineBufferState {
    bytes: Vec<u8>,
    lines: u64,
    /// What receivers need beside the lines.
    records: Vec<LineRecord>,
    fields: Vec<u8>,
    /// The value buffers of finished lines, for reuse.
    spare: Vec<Vec<u8>>,
}

impl WorkerObserver for WorkerLog {
    fn begin(&self, request: &Request) -> Option<OnCompletion> {
        let buffer = self.0.clone();
        let values = buffer.state.borrow_mut().spare.pop().unwrap_or_default();
        let log = &buffer.log;
        let line = LogLine::begin(&log.format, &log.site_name, request, values);
        let fields = log.fields.as_ref();
        let fields =
            fields.map(|format| LogLine::begin(format, &log.site_name, request, Vec::new()));
        let variables = self.needs_variables();
        let variables = variables.then(|| RequestVariables::of(request).cloned());
        let variables = variables.flatten();
        let user = self.needs_user().then(|| RequestUser::of(request));
        Some(Box::new(move |completion| {
            let sampling = buffer.log.sampling;
            let rate = sampling.map(|one| one.rate_of(completion, &buffer.numbers));
            let Some(sample_rate) = rate.unwrap_or(Some(1.0)) else {
                return buffer.reuse(line.into_values());
            };
            let user = user.as_ref().and_then(RequestUser::name);
            let ending = LineEnding {
                completion,
                user,
                variables: variables.as_ref(),
                clock: &buffer.clock,
                sample_rate,
            };
            buffer.add((line, fields), &ending);
        }))
    }

    fn needs_user(&self) -> bool {
        let mut formats = std::iter::once(&self.0.log.format).chain(&self.0.log.fields);
        formats.any(|format| format.has_user())
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
    fn add(self: &Rc<Self>, (line, fields): (LogLine, Option<LogLine>), ending: &LineEnding<'_>) {
        let mut state = self.state.borrow_mut();
        let is_first = state.bytes.is_empty();
        let values = line.finish(&self.log.format, ending, &mut state.bytes);
        state.lines = state.lines.saturating_add(1);
        if !self.log.remotes.is_empty() {
            self.add_record(fields, ending, &mut state);
        }
        let is_full = state.bytes.len() >= BATCH_BYTES;
        drop(state);
        self.reuse(values);
        if is_full {
            self.flush();
        } else if is_first {
            self.schedule_flush();
        }
    }

    /// Keeps a buffer for the next requests.
    fn reuse(&self, mut values: Vec<u8>) {
        const MAX_SPARE_BUFFERS: usize = 64;
        const MAX_SPARE_CAPACITY: usize = 4096;

        let spare = &mut self.state.borrow_mut().spare;
        if spare.len() < MAX_SPARE_BUFFERS && values.capacity() <= MAX_SPARE_CAPACITY {
            values.clear();
            spare.push(values);
        }
    }

    /// Adds what receivers need of the line that was added last.
    fn add_record(
        &self,
        fields: Option<LogLine>,
        ending: &LineEnding<'_>,
        state: &mut LineBufferState,
    ) {
        if let (Some(fields), Some(format)) = (fields, &self.log.fields) {
            fields.finish(format, ending, &mut state.fields);
        }
        let completion = ending.completion;
        let has_failed = completion.status.is_server_error()
            || completion.outcome == ResponseOutcome::SourceFailed;
        state.records.push(LineRecord {
            end: state.bytes.len(),
            fields_end: state.fields.len(),
            time: LogClock::now(),
            severity: if has_failed {
                MessageSeverity::Error
            } else {
                MessageSeverity::Informational
            },
        });
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
        let messages = !self.log.remotes.is_empty();
        let messages = messages.then(|| MessageBatch {
            label: self.log.label.clone(),
            records: std::mem::take(&mut state.records),
            fields: std::mem::take(&mut state.fields),
        });
        let batch = Arc::new(LineBatch {
            bytes: std::mem::replace(&mut state.bytes, next),
            lines: std::mem::take(&mut state.lines),
            messages,
        });
        drop(state);
        for remote in self.log.remotes.iter() {
            remote.push(batch.clone());
        }
        if let Some(file) = &self.log.file {
            self.log.files.send(file, batch);
        }
    }
}

impl Drop for LineBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
