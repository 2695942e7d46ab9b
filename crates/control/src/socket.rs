//! The server's end of the control socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener as StdListener;
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

/// A control socket that is bound, before a runtime serves it: the folder may be closed to the user that
/// the process becomes.
#[derive(Debug)]
pub struct BoundControlSocket {
    listener: StdListener,
    files: ControlFiles,
    /// Locked for as long as this process runs, whatever ends it.
    lock: File,
    /// The user that bound it, who alone may ask, with root.
    user: u32,
}

/// The files of a control socket.
#[derive(Clone, Debug)]
pub struct ControlFiles {
    socket: PathBuf,
    /// The link from where it would be by default, if it is elsewhere.
    link: Option<PathBuf>,
}

impl ControlFiles {
    /// Removes them, as far as that is permitted.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
        let is_ours = |link: &&PathBuf| fs::read_link(link).is_ok_and(|to| to == self.socket);
        if let Some(link) = self.link.as_ref().filter(is_ours) {
            let _ = fs::remove_file(link);
        }
        let _ = fs::remove_file(lock_path(&self.socket));
    }
}

impl BoundControlSocket {
    /// Listens at `path`; a socket that a dead server has left is replaced.
    ///
    /// # Errors
    /// A server listens there already, or the socket cannot be made.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        prepare_folder(path)?;
        let failed = |error| ControlError::Io(path.to_owned(), error);
        let lock = lock(&lock_path(path))
            .map_err(failed)?
            .ok_or_else(|| ControlError::AlreadyRunning(path.to_owned()))?;
        Ok(Self {
            listener: listen(path).map_err(failed)?,
            files: ControlFiles {
                socket: path.to_owned(),
                link: None,
            },
            lock,
            user: geteuid().as_raw(),
        })
    }

    /// Makes a link to the socket from where it would be by default, so that who cannot read the
    /// configuration finds it, too.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn link_from(&mut self, default: &Path) -> Result<(), ControlError> {
        prepare_folder(default)?;
        let failed = |error| ControlError::Io(default.to_owned(), error);
        let nascent = default.with_added_extension("new");
        let _ = fs::remove_file(&nascent);
        symlink(&self.files.socket, &nascent).map_err(failed)?;
        fs::rename(&nascent, default).map_err(failed)?;
        self.files.link = Some(default.to_owned());
        Ok(())
    }

    /// Its files, which [`ControlSocket`] removes when dropped, if it may.
    pub fn files(&self) -> &ControlFiles {
        &self.files
    }

    /// Serves it. Needs a tokio runtime.
    ///
    /// # Errors
    /// The runtime does not take it.
    pub fn serve(self) -> Result<ControlSocket, ControlError> {
        let failed = |error| ControlError::Io(self.files.socket.clone(), error);
        self.listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(self.listener).map_err(failed)?;
        let (sender, exchanges) = mpsc::channel(4);
        Ok(ControlSocket {
            files: self.files,
            exchanges,
            accepting: tokio::spawn(accept(listener, self.user, sender)),
            _lock: self.lock,
        })
    }
}

/// The control socket of this process. Removed when dropped.
#[derive(Debug)]
pub struct ControlSocket {
    files: ControlFiles,
    exchanges: mpsc::Receiver<Exchange>,
    accepting: tokio::task::JoinHandle<()>,
    _lock: File,
}

impl ControlSocket {
    /// Listens at `path`; a socket that a dead server has left is replaced. Needs a tokio runtime.
    ///
    /// # Errors
    /// A server listens there already, or the socket cannot be made.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        BoundControlSocket::bind(path)?.serve()
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
        self.files.remove();
    }
}

fn lock_path(socket: &Path) -> PathBuf {
    socket.with_added_extension("lock")
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
fn listen(path: &Path) -> io::Result<StdListener> {
    let nascent = path.with_added_extension("new");
    let _ = fs::remove_file(&nascent);
    let listener = StdListener::bind(&nascent)?;
    fs::set_permissions(&nascent, Permissions::from_mode(0o600))?;
    fs::rename(&nascent, path)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, user: u32, exchanges: mpsc::Sender<Exchange>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(read(stream, user, exchanges.clone()));
            }
            Err(error) => {
                warn!(%error, "the control socket cannot accept");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn read(mut stream: UnixStream, user: u32, exchanges: mpsc::Sender<Exchange>) {
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
