//! The server's end of the control socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::socket_path::prepare_folder;
use crate::{ControlError, ControlRequest, ControlResponse};

/// Maximum bytes of a request, enough for the text of a configuration. Only the user of the server and root can send one.
const MAX_REQUEST_BYTES: u64 = 8 * 1024 * 1024;

/// The timeout for a client to send its request, and to read the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// A bound control socket that no runtime serves yet. It can be bound before the process gives up the
/// permission to write to its folder.
#[derive(Debug)]
pub struct BoundControlSocket {
    listener: StdListener,
    files: ControlFiles,
    /// Locked until this process ends, even if it crashes.
    lock: File,
    /// The user that bound it. Only this user and root may send requests.
    user: u32,
}

/// The files of a control socket.
#[derive(Clone, Debug)]
pub struct ControlFiles {
    socket: PathBuf,
    /// The link at the default path, if the socket is at another one.
    link: Option<PathBuf>,
}

impl ControlFiles {
    /// The path of the socket itself.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether clients find the socket at this path.
    pub fn is_at(&self, path: &Path) -> bool {
        self.socket == path || self.link.as_deref() == Some(path)
    }

    /// Removes the files that this process may remove.
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
    /// Listens at `path`. Replaces the socket of a server that has crashed.
    ///
    /// # Errors
    /// A server listens there already, or the socket cannot be created.
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

    /// Creates a link to the socket at its default path, where clients find it that cannot read the
    /// configuration.
    ///
    /// # Errors
    /// Another server listens there, or the link cannot be created.
    pub fn link_from(&mut self, default: &Path) -> Result<(), ControlError> {
        prepare_folder(default)?;
        if StdStream::connect(default).is_ok() {
            return Err(ControlError::AlreadyRunning(default.to_owned()));
        }
        let failed = |error| ControlError::Io(default.to_owned(), error);
        let temporary = default.with_added_extension("new");
        let _ = fs::remove_file(&temporary);
        symlink(&self.files.socket, &temporary).map_err(failed)?;
        fs::rename(&temporary, default).map_err(failed)?;
        self.files.link = Some(default.to_owned());
        Ok(())
    }

    /// The files of the socket, which [`ControlSocket`] removes when dropped, if permitted.
    pub fn files(&self) -> &ControlFiles {
        &self.files
    }

    /// Starts to accept connections. Needs a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be registered with the runtime.
    pub fn serve(self) -> Result<ControlSocket, ControlError> {
        let failed = |error| ControlError::Io(self.files.socket.clone(), error);
        self.listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(self.listener).map_err(failed)?;
        let (sender, exchanges) = mpsc::channel(4);
        Ok(ControlSocket {
            files: self.files,
            exchanges,
            queue: ControlQueue(sender.clone()),
            accepting: tokio::spawn(accept(listener, self.user, sender)),
            _lock: self.lock,
        })
    }
}

/// The control socket of this process. Its files are removed when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    files: ControlFiles,
    exchanges: mpsc::Receiver<ControlExchange>,
    queue: ControlQueue,
    accepting: tokio::task::JoinHandle<()>,
    _lock: File,
}

impl ControlSocket {
    /// Listens at `path`. Replaces the socket of a server that has crashed. Needs a tokio runtime.
    ///
    /// # Errors
    /// A server listens there already, or the socket cannot be created.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        BoundControlSocket::bind(path)?.serve()
    }

    /// Where other parts of the process send requests, which are handled in their turn.
    pub fn queue(&self) -> ControlQueue {
        self.queue.clone()
    }

    /// Waits for the next request.
    pub async fn next(&mut self) -> ControlExchange {
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
        // The process that held the lock may have removed the file meanwhile. Then this lock is useless.
        let is_there = fs::metadata(path).is_ok_and(|found| {
            file.metadata()
                .is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        });
        if is_there {
            return Ok(Some(file));
        }
    }
}

/// Binds a socket that is closed to other users before it appears at `path`.
fn listen(path: &Path) -> io::Result<StdListener> {
    let temporary = path.with_added_extension("new");
    let _ = fs::remove_file(&temporary);
    let listener = StdListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
    fs::rename(&temporary, path)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, user: u32, exchanges: mpsc::Sender<ControlExchange>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(read(stream, user, exchanges.clone()));
            }
            Err(error) => {
                warn!(%error, "the control socket cannot accept a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn read(mut stream: UnixStream, user: u32, exchanges: mpsc::Sender<ControlExchange>) {
    let is_trusted = |uid| uid == user || uid == 0;
    let Some(sender) = stream.peer_cred().ok().map(|peer| peer.uid()) else {
        return;
    };
    if !is_trusted(sender) {
        return;
    }
    let mut line = String::new();
    let mut reader = BufReader::new((&mut stream).take(MAX_REQUEST_BYTES));
    if !matches!(
        timeout(CLIENT_TIMEOUT, reader.read_line(&mut line)).await,
        Ok(Ok(1..))
    ) {
        return;
    }
    match serde_json::from_str(&line) {
        Ok(request) => {
            let by = format!("user {sender} of this machine");
            let client = ControlClient::Stream(stream);
            let exchange = ControlExchange {
                request,
                by,
                client,
            };
            let _ = exchanges.send(exchange).await;
        }
        Err(error) => {
            let message = format!("this version of apus does not support the request: {error}");
            let details = serde_json::Value::Null;
            write(&mut stream, &ControlResponse::Failed { message, details }).await;
        }
    }
}

async fn write(stream: &mut UnixStream, response: &ControlResponse) {
    let Ok(mut line) = serde_json::to_vec(response) else {
        return;
    };
    line.push(b'\n');
    // A client that has disconnected does not need the response.
    let _ = timeout(CLIENT_TIMEOUT, stream.write_all(&line)).await;
}

/// Requests of other parts of the process.
#[derive(Clone, Debug)]
pub struct ControlQueue(mpsc::Sender<ControlExchange>);

impl ControlQueue {
    /// Sends a request and waits for the response; `None` if the process is ending. `by` is who sends it, for the audit log.
    pub async fn send(&self, request: ControlRequest, by: String) -> Option<ControlResponse> {
        let (sender, response) = oneshot::channel();
        let client = ControlClient::Local(Some(sender));
        let exchange = ControlExchange {
            request,
            by,
            client,
        };
        self.0.send(exchange).await.ok()?;
        response.await.ok()
    }
}

/// A request and who waits for its response.
#[derive(Debug)]
pub struct ControlExchange {
    request: ControlRequest,
    by: String,
    client: ControlClient,
}

#[derive(Debug)]
enum ControlClient {
    Stream(UnixStream),
    Local(Option<oneshot::Sender<ControlResponse>>),
}

impl ControlExchange {
    /// The request.
    pub fn request(&self) -> &ControlRequest {
        &self.request
    }

    /// Who sends it, for the audit log.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Sends the response. The connection is closed when this is dropped.
    pub async fn respond(&mut self, response: ControlResponse) {
        match &mut self.client {
            ControlClient::Stream(stream) => write(stream, &response).await,
            ControlClient::Local(sender) => {
                if let Some(sender) = sender.take() {
                    // Who does not wait any more does not need it.
                    let _ = sender.send(response);
                }
            }
        }
    }
}
