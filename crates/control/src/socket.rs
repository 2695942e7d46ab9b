//! The server's end of the control socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::warn;

use crate::place::prepare_folder;
use crate::{ControlError, Request, Response};

/// A request is one line, no longer than what holds the longest URL.
const REQUEST_BYTES: u64 = 256 * 1024;

/// How long a client may take to say what it wants, or to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The control socket of this process. Removed when dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    exchanges: mpsc::Receiver<Exchange>,
    accepting: tokio::task::JoinHandle<()>,
    /// Locked for as long as this process runs, whatever ends it.
    _lock: File,
}

impl ControlSocket {
    /// Listens at `path`; a socket that a dead server has left is replaced. Needs a tokio runtime.
    ///
    /// # Errors
    /// A server listens there already, or the socket cannot be made.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        prepare_folder(path)?;
        let failed = |error| ControlError::Io(path.to_owned(), error);
        let lock = lock(&path.with_added_extension("lock"))
            .map_err(failed)?
            .ok_or_else(|| ControlError::AlreadyRunning(path.to_owned()))?;
        let listener = listen(path).map_err(failed)?;
        let (sender, exchanges) = mpsc::channel(4);
        Ok(Self {
            path: path.to_owned(),
            exchanges,
            accepting: tokio::spawn(accept(listener, sender)),
            _lock: lock,
        })
    }

    /// The next request. Waits for ever if none comes.
    pub async fn next(&mut self) -> Exchange {
        match self.exchanges.recv().await {
            Some(exchange) => exchange,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_added_extension("lock"));
    }
}

/// The lock file, locked; `None` if another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        // Whoever had it may have removed it in between: then it locks nothing any more.
        let is_there = fs::metadata(path).is_ok_and(|found| {
            file.metadata()
                .is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        });
        if is_there {
            return Ok(Some(file));
        }
    }
}

/// A socket at `path` that was closed to others before it had that name.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let nascent = path.with_added_extension("new");
    let _ = fs::remove_file(&nascent);
    let listener = UnixListener::bind(&nascent)?;
    fs::set_permissions(&nascent, Permissions::from_mode(0o600))?;
    fs::rename(&nascent, path)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, exchanges: mpsc::Sender<Exchange>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(read(stream, exchanges.clone()));
            }
            Err(error) => {
                warn!(%error, "the control socket cannot accept");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn read(mut stream: UnixStream, exchanges: mpsc::Sender<Exchange>) {
    let user = geteuid().as_raw();
    let is_trusted = |uid| uid == user || uid == 0;
    if !stream.peer_cred().is_ok_and(|peer| is_trusted(peer.uid())) {
        return;
    }
    let mut line = String::new();
    let mut reader = BufReader::new((&mut stream).take(REQUEST_BYTES));
    if !matches!(
        timeout(PATIENCE, reader.read_line(&mut line)).await,
        Ok(Ok(1..))
    ) {
        return;
    }
    match serde_json::from_str(&line) {
        Ok(request) => {
            let _ = exchanges.send(Exchange { request, stream }).await;
        }
        Err(error) => {
            let message = format!("not a request that this version of apus knows: {error}");
            let details = serde_json::Value::Null;
            write(&mut stream, &Response::Failed { message, details }).await;
        }
    }
}

async fn write(stream: &mut UnixStream, response: &Response) {
    let Ok(mut line) = serde_json::to_vec(response) else {
        return;
    };
    line.push(b'\n');
    // A client that is gone has no use for the answer.
    let _ = timeout(PATIENCE, stream.write_all(&line)).await;
}

/// A request and the connection that waits for its answer.
#[derive(Debug)]
pub struct Exchange {
    request: Request,
    stream: UnixStream,
}

impl Exchange {
    /// What is asked.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Answers. The connection closes when this is dropped.
    pub async fn answer(&mut self, response: &Response) {
        write(&mut self.stream, response).await;
    }
}
