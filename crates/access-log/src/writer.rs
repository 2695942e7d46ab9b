//! The control thread's side of the access log: files, their reopening, and what was lost.

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

/// Batches on their way to the control thread; with the size of a batch it bounds the memory.
const BATCHES: usize = 512;

/// How often losses are reported at most.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Lines of one log file, handed over together.
pub(crate) struct Batch {
    pub(crate) file: Arc<LogFile>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: u64,
}

/// What became of the lines of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The file.
    pub path: PathBuf,
    /// Lines written.
    pub written: u64,
    /// Lines lost, because the writer could not keep up or the file could not be written.
    pub lost: u64,
}

/// An open log file. Workers only point to it.
pub(crate) struct LogFile {
    path: PathBuf,
    output: Mutex<Output>,
    opener: Option<OpenFile>,
    written: AtomicU64,
    lost: AtomicU64,
}

struct Output {
    file: File,
    /// The last write ended within a line.
    torn: bool,
    reported: Option<(Instant, u64)>,
}

/// All log files that a plan still uses, and the way to the writer.
pub(crate) struct Files {
    open: Mutex<HashMap<PathBuf, Weak<LogFile>>>,
    /// Opens files that this process may not.
    opener: Option<OpenFile>,
    to_writer: mpsc::Sender<Batch>,
}

pub(crate) fn pair(opener: Option<OpenFile>) -> (Arc<Files>, Writer) {
    let (to_writer, batches) = mpsc::channel(BATCHES);
    let files = Arc::new(Files {
        open: Mutex::default(),
        opener,
        to_writer,
    });
    let writer = Writer {
        files: files.clone(),
        batches,
    };
    (files, writer)
}

impl Files {
    pub(crate) fn open(&self, path: &Path) -> io::Result<Arc<LogFile>> {
        let mut open = locked(&self.open);
        open.retain(|_, file| file.strong_count() > 0);
        if let Some(file) = open.get(path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = Arc::new(LogFile {
            path: path.to_owned(),
            output: Mutex::new(Output {
                file: open_file(path, self.opener.as_ref())?,
                torn: false,
                reported: None,
            }),
            opener: self.opener.clone(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        open.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }

    /// Never waits: what finds no room is lost, and counted.
    pub(crate) fn hand_over(&self, batch: Batch) {
        if let Err(error) = self.to_writer.try_send(batch) {
            let batch = error.into_inner();
            batch.file.lost.fetch_add(batch.lines, Ordering::Relaxed);
        }
    }

    fn all(&self) -> Vec<Arc<LogFile>> {
        locked(&self.open)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves nothing half done that matters here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_file(path: &Path, opener: Option<&OpenFile>) -> io::Result<File> {
    // Opening these by name fails where the output is a socket, as under systemd.
    let own = match path.to_str() {
        Some("/dev/stdout") => Some(io::stdout().as_fd().try_clone_to_owned()?),
        Some("/dev/stderr") => Some(io::stderr().as_fd().try_clone_to_owned()?),
        _ => None,
    };
    if let Some(own) = own {
        return Ok(own.into());
    }
    let no_wait = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        // A pipe that nobody reads must not hold the server up.
        .custom_flags(no_wait)
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

    fn write(&self, batch: &Batch) {
        let mut output = locked(&self.output);
        let mut written = 0;
        let result = output.write_all(&batch.bytes, &mut written);
        let whole = batch.bytes.get(..written).unwrap_or_default();
        let lines = match result {
            Ok(()) => batch.lines,
            Err(_) => bytecount(whole),
        };
        self.written.fetch_add(lines, Ordering::Relaxed);
        if let Err(error) = result {
            let lost = batch.lines.saturating_sub(lines);
            self.lost.fetch_add(lost, Ordering::Relaxed);
            output.report(&self.path, self.lost.load(Ordering::Relaxed), Some(&error));
        }
    }

    fn reopen(&self) {
        match open_file(&self.path, self.opener.as_ref()) {
            Ok(file) => {
                let mut output = locked(&self.output);
                output.file = file;
                output.torn = false;
            }
            Err(error) => error!(
                path = %self.path.display(), %error,
                "the access log cannot be reopened; the old file is still written"
            ),
        }
    }
}

fn bytecount(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Output {
    fn write_all(&mut self, bytes: &[u8], written: &mut usize) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    *written = written.saturating_add(len);
                    self.torn = rest.get(len.saturating_sub(1)) != Some(&b'\n');
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the operator of lost lines, once per interval.
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

/// Writes what the workers hand over.
pub struct Writer {
    files: Arc<Files>,
    batches: mpsc::Receiver<Batch>,
}

/// What the running writer is asked for; it answers when it is done.
enum Command {
    Reopen(oneshot::Sender<()>),
    Finish(oneshot::Sender<()>),
}

impl Writer {
    /// Starts writing, as a task of the control thread's runtime.
    pub fn spawn(self) -> WriterHandle {
        let (commands, mut received) = mpsc::channel(1);
        let handle = WriterHandle {
            files: self.files.clone(),
            commands,
        };
        let Self { files, mut batches } = self;
        tokio::spawn(async move {
            loop {
                let mut taken = Vec::new();
                tokio::select! {
                    biased;
                    _ = batches.recv_many(&mut taken, BATCHES) => {
                        write_all(taken, files.all()).await;
                    }
                    command = received.recv() => {
                        let Some(command) = command else { return };
                        // The branch above comes first: all that was handed over is written.
                        let done = match command {
                            Command::Reopen(done) => {
                                reopen_all(files.all()).await;
                                done
                            }
                            Command::Finish(done) => done,
                        };
                        let _ = done.send(());
                    }
                }
            }
        });
        handle
    }
}

/// The way to the running [`Writer`]. It ends with this handle.
pub struct WriterHandle {
    files: Arc<Files>,
    commands: mpsc::Sender<Command>,
}

impl WriterHandle {
    /// Opens every file anew under its name, as after a rotation; what was handed over before
    /// still goes to the old one.
    pub async fn reopen(&self) {
        self.ask(Command::Reopen).await;
    }

    /// Returns when all is written that was handed over so far.
    pub async fn finish(&self) {
        self.ask(Command::Finish).await;
    }

    /// Waits for an answer, but not for a disk that hangs: the control thread has other work.
    async fn ask(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) {
        const PATIENCE: Duration = Duration::from_secs(5);

        let (done, answer) = oneshot::channel();
        let asked = async {
            if self.commands.send(command(done)).await.is_ok() {
                let _ = answer.await;
            }
        };
        if tokio::time::timeout(PATIENCE, asked).await.is_err() {
            error!("the access logs wait for a disk or a reader that does not answer");
        }
    }

    /// What became of the lines of each file.
    pub fn counts(&self) -> Vec<Counts> {
        let mut counts: Vec<_> = self
            .files
            .all()
            .iter()
            .map(|file| Counts {
                path: file.path.clone(),
                written: file.written.load(Ordering::Relaxed),
                lost: file.lost.load(Ordering::Relaxed),
            })
            .collect();
        counts.sort_by(|a, b| a.path.cmp(&b.path));
        counts
    }
}

async fn reopen_all(files: Vec<Arc<LogFile>>) {
    let reopen = tokio::task::spawn_blocking(move || files.iter().for_each(|file| file.reopen()));
    let _ = reopen.await;
}

/// Writes on the blocking pool, so that a slow disk holds up nothing but the log.
async fn write_all(batches: Vec<Batch>, files: Vec<Arc<LogFile>>) {
    let work = tokio::task::spawn_blocking(move || {
        for batch in &batches {
            batch.file.write(batch);
        }
        for file in files {
            let lost = file.lost.load(Ordering::Relaxed);
            locked(&file.output).report(&file.path, lost, None);
        }
    });
    let _ = work.await;
}
