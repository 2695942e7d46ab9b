//! Writes access log lines to files on the control thread, reopens the files, and counts lost lines; knows the receivers that are no files.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};

use crate::OpenFile;
use crate::batch::LineBatch;
use crate::destination::LogReceiver;
use crate::remote::{ReceiverThread, RemoteLog};

/// Maximum batches in the channel to the control thread. With the size of a batch it limits the memory.
const MAX_BATCHES: usize = 512;

/// The shortest time between two reports of lost lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// How long the receivers may take to end, with the time of a name server that does not respond.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(4);

/// Lines of one log file.
struct FileBatch {
    file: Arc<LogFile>,
    batch: Arc<LineBatch>,
}

/// The counts of written and lost lines of one file or receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCounts {
    /// The path of the file, or the address of the receiver as `udp://10.0.0.1:514`.
    pub destination: String,
    /// Lines written.
    pub written: u64,
    /// Lines lost because the writer or the receiver could not keep up, or could not be reached.
    pub lost: u64,
}

/// An open log file. Workers only hold references to it.
pub(crate) struct LogFile {
    path: PathBuf,
    output: Mutex<LogOutput>,
    opener: Option<OpenFile>,
    written: AtomicU64,
    lost: AtomicU64,
}

struct LogOutput {
    file: File,
    /// Whether the last write ended in the middle of a line.
    is_torn: bool,
    /// The time and the count of the last report.
    reported: Option<(Instant, u64)>,
}

/// All log files and receivers that a plan still uses, and the channel to the writer.
pub(crate) struct LogFiles {
    open: Mutex<HashMap<PathBuf, Weak<LogFile>>>,
    remotes: Mutex<HashMap<LogReceiver, Weak<RemoteLog>>>,
    /// The threads of receivers, also of those that no plan uses any more and that still send.
    threads: Mutex<Vec<ReceiverThread>>,
    /// Opens files that this process has no permission to open.
    opener: Option<OpenFile>,
    sender: mpsc::Sender<FileBatch>,
}

pub(crate) fn pair(opener: Option<OpenFile>) -> (Arc<LogFiles>, LogWriter) {
    let (sender, batches) = mpsc::channel(MAX_BATCHES);
    let files = Arc::new(LogFiles {
        open: Mutex::default(),
        remotes: Mutex::default(),
        threads: Mutex::default(),
        opener,
        sender,
    });
    let writer = LogWriter {
        files: files.clone(),
        batches,
    };
    (files, writer)
}

impl LogFiles {
    pub(crate) fn open(&self, path: &Path) -> io::Result<Arc<LogFile>> {
        let mut open = locked(&self.open);
        open.retain(|_, file| file.strong_count() > 0);
        if let Some(file) = open.get(path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = Arc::new(LogFile {
            path: path.to_owned(),
            output: Mutex::new(LogOutput {
                file: open_file(path, self.opener.as_ref())?,
                is_torn: false,
                reported: None,
            }),
            opener: self.opener.clone(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        open.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }

    /// The receiver, with its thread.
    pub(crate) fn remote(&self, receiver: &LogReceiver) -> io::Result<Arc<RemoteLog>> {
        let mut remotes = locked(&self.remotes);
        remotes.retain(|_, remote| remote.strong_count() > 0);
        if let Some(remote) = remotes.get(receiver).and_then(Weak::upgrade) {
            return Ok(remote);
        }
        let remote = Arc::new(RemoteLog::start(receiver.clone())?);
        remotes.insert(receiver.clone(), Arc::downgrade(&remote));
        let mut threads = locked(&self.threads);
        threads.retain(|thread| !thread.has_ended());
        threads.push(remote.thread());
        Ok(remote)
    }

    /// Sends a batch to the writer without waiting. If the channel is full, its lines are lost and counted.
    pub(crate) fn send(&self, file: &Arc<LogFile>, batch: Arc<LineBatch>) {
        let file = file.clone();
        if let Err(error) = self.sender.try_send(FileBatch { file, batch }) {
            let lost = error.into_inner();
            lost.file
                .lost
                .fetch_add(lost.batch.lines, Ordering::Relaxed);
        }
    }

    fn all_remotes(&self) -> Vec<Arc<RemoteLog>> {
        locked(&self.remotes)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn all(&self) -> Vec<Arc<LogFile>> {
        locked(&self.open)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread leaves the state consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_file(path: &Path, opener: Option<&OpenFile>) -> io::Result<File> {
    // Opening these by name fails if the output is a socket, as under systemd.
    let standard = match path.to_str() {
        Some("/dev/stdout") => Some(io::stdout().as_fd().try_clone_to_owned()?),
        Some("/dev/stderr") => Some(io::stderr().as_fd().try_clone_to_owned()?),
        _ => None,
    };
    if let Some(standard) = standard {
        return Ok(standard.into());
    }
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        // A pipe without a reader must not block the server.
        .custom_flags(flags)
        .open(path);
    match (opened, opener) {
        (Err(error), Some(opener)) if error.kind() == io::ErrorKind::PermissionDenied => {
            opener(path)
        }
        (opened, _) => opened,
    }
}

impl LogFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, batch: &LineBatch) {
        let mut output = locked(&self.output);
        let mut written = 0;
        let result = output.write_all(&batch.bytes, &mut written);
        let written_bytes = batch.bytes.get(..written).unwrap_or_default();
        let lines = match result {
            Ok(()) => batch.lines,
            Err(_) => count_lines(written_bytes),
        };
        self.written.fetch_add(lines, Ordering::Relaxed);
        if let Err(error) = result {
            let lost = batch.lines.saturating_sub(lines);
            self.lost.fetch_add(lost, Ordering::Relaxed);
            output.report(&self.path, self.lost.load(Ordering::Relaxed), Some(&error));
        }
    }

    fn reopen(&self) -> io::Result<()> {
        let file = open_file(&self.path, self.opener.as_ref())?;
        let mut output = locked(&self.output);
        output.file = file;
        output.is_torn = false;
        Ok(())
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl LogOutput {
    fn write_all(&mut self, bytes: &[u8], written: &mut usize) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    *written = written.saturating_add(len);
                    self.is_torn = rest.get(len.saturating_sub(1)) != Some(&b'\n');
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Logs lost lines, at most once per interval.
    fn report(&mut self, path: &Path, lost: u64, error: Option<&io::Error>) {
        let (last, known) = self
            .reported
            .map_or((None, 0), |(at, lost)| (Some(at), lost));
        if lost == known || last.is_some_and(|last| last.elapsed() < REPORT_INTERVAL) {
            return;
        }
        self.reported = Some((Instant::now(), lost));
        let path = path.display();
        match error {
            Some(error) => error!(%path, lost, %error, "access log lines are lost"),
            None => warn!(%path, lost, "access log lines are lost: the disk does not keep up"),
        }
    }
}

/// Writes the batches of the workers.
pub struct LogWriter {
    files: Arc<LogFiles>,
    batches: mpsc::Receiver<FileBatch>,
}

/// An access log that cannot be reopened. Its lines still go to the old file.
#[derive(Debug)]
pub struct ReopenFailure {
    /// The path of the log.
    pub path: PathBuf,
    /// Why it cannot be opened.
    pub error: io::Error,
}

/// A command to the running writer, with the channel that reports its completion.
enum WriterCommand {
    Reopen(oneshot::Sender<Vec<ReopenFailure>>),
    Finish(oneshot::Sender<()>),
}

impl LogWriter {
    /// Starts writing, as a task of the control thread's runtime.
    pub fn spawn(self) -> LogWriterHandle {
        let (commands, mut commands_receiver) = mpsc::channel(1);
        let handle = LogWriterHandle {
            files: self.files.clone(),
            commands,
        };
        let Self { files, mut batches } = self;
        tokio::spawn(async move {
            loop {
                let mut taken = Vec::new();
                tokio::select! {
                    biased;
                    _ = batches.recv_many(&mut taken, MAX_BATCHES) => {
                        write_all(taken, files.all()).await;
                    }
                    command = commands_receiver.recv() => {
                        let Some(command) = command else { return };
                        // The branch above has priority, so all batches before the command are written.
                        match command {
                            WriterCommand::Reopen(done) => {
                                let _ = done.send(reopen_all(files.all()).await);
                            }
                            WriterCommand::Finish(done) => {
                                let _ = done.send(());
                            }
                        }
                    }
                }
            }
        });
        handle
    }
}

/// A handle to the running [`LogWriter`], which stops when the handle is dropped.
pub struct LogWriterHandle {
    files: Arc<LogFiles>,
    commands: mpsc::Sender<WriterCommand>,
}

impl LogWriterHandle {
    /// Reopens every file by its name, as after a rotation. Batches that were sent before still go to the
    /// old file. Returns the files that cannot be opened; `None` if the writer does not respond, which is logged.
    pub async fn reopen(&self) -> Option<Vec<ReopenFailure>> {
        self.run(WriterCommand::Reopen).await
    }

    /// Returns when all batches that were sent so far are written. What receivers do not take in a short time is lost.
    pub async fn finish(&self) {
        let flushed: Vec<_> = locked(&self.files.threads)
            .iter()
            .filter_map(ReceiverThread::flush)
            .collect();
        self.run(WriterCommand::Finish).await;
        let flushed = async {
            for one in flushed {
                let _ = one.await;
            }
        };
        if tokio::time::timeout(REMOTE_TIMEOUT, flushed).await.is_err() {
            error!("the receivers of access logs do not take the last lines");
        }
    }

    /// Runs a command, with a timeout: a disk that hangs must not block the control thread.
    async fn run<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> WriterCommand) -> Option<T> {
        const TIMEOUT: Duration = Duration::from_secs(5);

        let (done, is_done) = oneshot::channel();
        let completion = async {
            self.commands.send(command(done)).await.ok()?;
            is_done.await.ok()
        };
        match tokio::time::timeout(TIMEOUT, completion).await {
            Ok(result) => result,
            Err(_) => {
                error!("the access logs wait for a disk or a reader that does not respond");
                None
            }
        }
    }

    /// The counts of written and lost lines of each file and receiver.
    pub fn counts(&self) -> Vec<LogCounts> {
        let files = self.files.all();
        let of_files = files.iter().map(|file| LogCounts {
            destination: file.path.to_string_lossy().into_owned(),
            written: file.written.load(Ordering::Relaxed),
            lost: file.lost.load(Ordering::Relaxed),
        });
        let remotes = self.files.all_remotes();
        let of_remotes = remotes.iter().map(|remote| {
            let (written, lost) = remote.counts();
            LogCounts {
                destination: remote.receiver().to_string(),
                written,
                lost,
            }
        });
        let mut counts: Vec<_> = of_files.chain(of_remotes).collect();
        counts.sort_by(|a, b| a.destination.cmp(&b.destination));
        counts
    }
}

async fn reopen_all(files: Vec<Arc<LogFile>>) -> Vec<ReopenFailure> {
    let reopen = tokio::task::spawn_blocking(move || {
        let failures = files.iter().filter_map(|file| {
            let error = file.reopen().err()?;
            Some(ReopenFailure {
                path: file.path.clone(),
                error,
            })
        });
        failures.collect()
    });
    reopen.await.unwrap_or_default()
}

/// Writes on the blocking pool, so that a slow disk delays only the log.
async fn write_all(batches: Vec<FileBatch>, files: Vec<Arc<LogFile>>) {
    let work = tokio::task::spawn_blocking(move || {
        for FileBatch { file, batch } in &batches {
            file.write(batch);
        }
        for file in files {
            let lost = file.lost.load(Ordering::Relaxed);
            locked(&file.output).report(&file.path, lost, None);
        }
    });
    let _ = work.await;
}
