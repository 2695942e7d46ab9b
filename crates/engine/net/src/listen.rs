//! Listening sockets, which outlive plans and are shared with new workers.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::plan::ListenAddress;

/// The most connections that wait in the kernel to be accepted; the system may allow fewer.
// The default of net.core.somaxconn since Linux 5.4, to which the kernel cuts larger numbers.
const BACKLOG: i32 = 4096;

/// The first descriptor that systemd passes.
const FIRST_INHERITED: i32 = 3;

/// Binds sockets to addresses that this process may not use, such as ports below 1024 after it gave up root.
pub trait Binder: Send + Sync {
    /// Binds `socket`, as [`bind_listener`] does.
    ///
    /// # Errors
    /// The address cannot be bound.
    fn bind(&self, socket: BorrowedFd<'_>, address: &ListenAddress) -> io::Result<()>;
}

/// Binds a socket to an address. A file that a dead server has left at the path of a Unix socket is
/// removed, and the new one has its mode before the socket listens.
///
/// # Errors
/// The address is in use, or this process may not use it.
pub fn bind_listener(socket: BorrowedFd<'_>, address: &ListenAddress) -> io::Result<()> {
    match address {
        ListenAddress::Tcp { address, .. } => SockRef::from(&socket).bind(&(*address).into()),
        ListenAddress::Unix { path, mode } => {
            remove_stale(path)?;
            SockRef::from(&socket).bind(&SockAddr::unix(path)?)?;
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))
        }
        ListenAddress::Inherited { .. } => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Binds a socket, by `binder` if this process lacks the permission.
pub(crate) fn bind_with(
    binder: Option<&dyn Binder>,
    socket: &Socket,
    address: &ListenAddress,
) -> io::Result<()> {
    match (bind_listener(socket.as_fd(), address), binder) {
        // Tried without the helper first: most ports need no root, and a server that was never root has no helper.
        (Err(error), Some(binder)) if error.kind() == io::ErrorKind::PermissionDenied => {
            binder.bind(socket.as_fd(), address)
        }
        (result, _) => result,
    }
}

/// A listening socket, non-blocking, of one worker.
pub(crate) enum BoundSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl BoundSocket {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
        })
    }
}

/// Who may listen on the ports of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortSharing {
    /// Its own workers.
    Workers,
    /// Other processes of the same user, too: the children of a program that forks.
    Processes,
}

/// The sockets of one address for all workers. They stay open when a worker dies, so that no client in its
/// queue is lost.
pub(crate) struct BoundAddress {
    address: ListenAddress,
    local: ListenAddress,
    sockets: Vec<BoundSocket>,
    file: Option<Arc<SocketFile>>,
}

/// A socket file of this process, which is removed with its last user.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl BoundAddress {
    /// Binds an address for this number of workers.
    ///
    /// `existing` are the sockets of this process: another address with the port of one of them can be bound.
    /// `binder` binds addresses that this process may not use.
    pub(crate) fn new(
        address: &ListenAddress,
        workers: usize,
        existing: &[Arc<Self>],
        binder: Option<&dyn Binder>,
        sharing: PortSharing,
    ) -> io::Result<Self> {
        let mut bound = Self {
            address: address.clone(),
            local: address.clone(),
            sockets: Vec::with_capacity(workers),
            file: None,
        };
        match address {
            ListenAddress::Tcp {
                address: wanted,
                ipv6_only,
            } => {
                if sharing == PortSharing::Workers
                    && !existing.iter().any(|bound| bound.has_port(wanted.port()))
                {
                    refuse_taken(*wanted, *ipv6_only, binder)?;
                }
                for _ in 0..workers {
                    let socket = tcp_socket(*wanted, *ipv6_only)?;
                    // A socket for each worker, among which the kernel spreads connections: with one for all, every
                    // worker wakes for each connection (the thundering herd), or some of them get most of the
                    // connections.
                    socket.set_reuse_port(true)?;
                    bind_with(binder, &socket, &bound.local)?;
                    socket.listen(BACKLOG)?;
                    let listener = TcpListener::from(socket);
                    // Port 0 is the same free port for all workers.
                    bound.local = ListenAddress::Tcp {
                        address: listener.local_addr()?,
                        ipv6_only: *ipv6_only,
                    };
                    bound.sockets.push(BoundSocket::Tcp(listener));
                }
            }
            ListenAddress::Unix { path, .. } => {
                let listener = unix_listener(address, binder)?;
                bound.file = Some(Arc::new(SocketFile(path.clone())));
                // The kernel does not spread clients over several sockets at one path, as `SO_REUSEPORT` does for
                // ports: all workers accept from one.
                bound.share(BoundSocket::Unix(listener), workers)?;
            }
            ListenAddress::Inherited { name } => {
                bound.share(inherited(name)?, workers)?;
            }
        }
        Ok(bound)
    }

    fn has_port(&self, port: u16) -> bool {
        matches!(&self.local, ListenAddress::Tcp { address, .. } if address.port() == port)
    }

    fn share(&mut self, socket: BoundSocket, workers: usize) -> io::Result<()> {
        for _ in 1..workers {
            self.sockets.push(socket.try_clone()?);
        }
        self.sockets.push(socket);
        Ok(())
    }

    /// The same sockets under an address that differs only in the mode of a socket file.
    pub(crate) fn with_other_mode(&self, address: &ListenAddress) -> Option<io::Result<Self>> {
        let same_file = match (&self.address, address) {
            (ListenAddress::Unix { path, .. }, ListenAddress::Unix { path: other, .. }) => {
                path == other
            }
            _ => false,
        };
        same_file.then(|| {
            Ok(Self {
                address: address.clone(),
                local: address.clone(),
                sockets: self
                    .sockets
                    .iter()
                    .map(BoundSocket::try_clone)
                    .collect::<io::Result<_>>()?,
                file: self.file.clone(),
            })
        })
    }

    /// Sets the mode of a socket file.
    pub(crate) fn set_mode(&self) -> io::Result<()> {
        match &self.address {
            ListenAddress::Unix { path, mode } => {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode))
            }
            _ => Ok(()),
        }
    }

    /// The address in the plan.
    pub(crate) fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// The actual address, with the port that was free.
    pub(crate) fn local(&self) -> &ListenAddress {
        &self.local
    }

    /// The socket of one worker.
    pub(crate) fn socket(&self, worker: usize) -> io::Result<BoundSocket> {
        match self.sockets.get(worker) {
            Some(socket) => socket.try_clone(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Checks whether the port is free, by a socket without `SO_REUSEPORT`: with it, several processes of a user
/// can share a port unnoticed.
fn refuse_taken(
    address: SocketAddr,
    ipv6_only: bool,
    binder: Option<&dyn Binder>,
) -> io::Result<()> {
    if address.port() != 0 {
        let socket = tcp_socket(address, ipv6_only)?;
        bind_with(binder, &socket, &ListenAddress::Tcp { address, ipv6_only })?;
    }
    Ok(())
}

fn tcp_socket(address: SocketAddr, ipv6_only: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // Said in any case: the default is a setting of the system (net.ipv6.bindv6only).
        socket.set_only_v6(ipv6_only)?;
    }
    // A restarted server finds connections in TIME-WAIT at its port, which would refuse it for a minute.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn unix_listener(address: &ListenAddress, binder: Option<&dyn Binder>) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    bind_with(binder, &socket, address)?;
    // No client could connect before the permissions were set, because the socket did not listen yet.
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Removes a socket file that no process listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            // A file that nobody listens on is left by a server that was killed. Only a connection can tell: the file
            // looks the same.
            match UnixStream::connect(path) {
                Ok(client) => Err(socket_in_use(&client)),
                // Its owner is unknown.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
                Err(_) => fs::remove_file(path),
            }
        }
        // A wrong path in the configuration must not remove a file of the operator.
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of this name that is not a socket",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The error about a socket that has a listener.
fn socket_in_use(client: &UnixStream) -> io::Error {
    let owner = rustix::net::sockopt::socket_peercred(client);
    let is_own = owner.is_ok_and(|owner| owner.pid == rustix::process::getpid());
    let message = if is_own {
        "this process listens on this socket already"
    } else {
        "another process listens on this socket"
    };
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

/// The sockets that systemd passed (sd_listen_fds(3)), by name and by index.
static INHERITED: LazyLock<Mutex<HashMap<String, OwnedFd>>> = LazyLock::new(|| {
    let mut sockets = HashMap::new();
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|value| value.parse::<i32>().ok())
    };
    // The variables are inherited by children, which do not have the sockets: the number says whose they are.
    if number("LISTEN_PID").and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id()) {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        for index in 0..number("LISTEN_FDS").unwrap_or(0).clamp(0, 1024) {
            // SAFETY: LISTEN_PID says that these descriptors were passed to this process to own, and this
            // runs once.
            let socket = unsafe { OwnedFd::from_raw_fd(FIRST_INHERITED + index) };
            let name = names
                .next()
                .filter(|name| !name.is_empty() && *name != "unknown");
            if let Some(name) = name
                && let Ok(copy) = socket.try_clone()
            {
                sockets.entry(name.to_owned()).or_insert(copy);
            }
            sockets.insert(index.to_string(), socket);
        }
    }
    Mutex::new(sockets)
});

fn inherited(name: &str) -> io::Result<BoundSocket> {
    let sockets = INHERITED.lock().unwrap_or_else(PoisonError::into_inner);
    let socket = sockets.get(name).ok_or_else(|| {
        let mut known: Vec<_> = sockets.keys().map(String::as_str).collect();
        known.sort_unstable();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("systemd passed no socket of this name; it passed: {known}"),
        )
    })?;
    let socket = socket.try_clone()?;
    SockRef::from(&socket).set_nonblocking(true)?;
    match SockRef::from(&socket).domain()? {
        Domain::UNIX => Ok(BoundSocket::Unix(UnixListener::from(socket))),
        Domain::IPV4 | Domain::IPV6 => Ok(BoundSocket::Tcp(TcpListener::from(socket))),
        other => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the socket that systemd passed is neither TCP nor Unix: {other:?}"),
        )),
    }
}
