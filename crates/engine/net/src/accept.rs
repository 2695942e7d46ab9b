//! The accept loop of a listening socket, which continues after every failure.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;

use apus_http::Peer;
use apus_transport::descriptors::DescriptorPermit;
use apus_transport::{ReadInterestSocket, StreamSocket, canonical, descriptors};
use libc::sock_filter;
use rustix::net::SocketFlags;
use socket2::{SockFilter, SockRef};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::connection::{self, AcceptedSocket};
use crate::connection_table::{ConnectionPermit, ConnectionSlot};
use crate::listen::BoundSocket;
use crate::syn_filter::{self, SynFilter};
use crate::worker::{Worker, WorkerListener};

/// The pause of accept when the process has no descriptors or memory left. Clients wait in the queue of the
/// socket meanwhile.
const REST: Duration = Duration::from_millis(50);

/// How long a removed listener waits for clients that have begun to connect: longer than most round trips,
/// and shorter than the second after which ignored clients try again.
const HANDSHAKE: Duration = Duration::from_millis(200);

/// How long further accept failures are not logged after one was: they may repeat after every pause.
const QUIET: Duration = Duration::from_secs(10);

/// A listening socket of this worker's runtime.
pub(crate) enum AcceptSocket {
    Tcp {
        listener: TcpListener,
        /// The local address of accepted connections; `None` if the socket listens on every address.
        local: Option<Peer>,
        /// Whether another process, such as systemd, passed the socket.
        is_inherited: bool,
    },
    Unix(AsyncFd<UnixListener>),
}

impl AcceptSocket {
    pub(crate) fn new(socket: BoundSocket, is_inherited: bool) -> io::Result<Self> {
        Ok(match socket {
            BoundSocket::Tcp(socket) => {
                // Accepted sockets inherit the option. Responses leave whole, in as few writes as possible.
                SockRef::from(&socket).set_tcp_nodelay(true)?;
                let address = canonical(socket.local_addr()?);
                let is_one = !address.ip().is_unspecified();
                Self::Tcp {
                    listener: TcpListener::from_std(socket)?,
                    local: is_one.then_some(Peer::Ip(address)),
                    is_inherited,
                }
            }
            BoundSocket::Unix(socket) => {
                // SAFETY: a listener keeps its descriptor, open, as long as it lives, and the `AsyncFd` owns
                // it.
                let socket =
                    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
                Self::Unix(socket)
            }
        })
    }

    async fn accept(&self) -> io::Result<AcceptedSocket> {
        match self {
            Self::Tcp {
                listener, local, ..
            } => {
                let (socket, peer) = listener.accept().await?;
                Ok(accepted_tcp(socket, peer, *local))
            }
            Self::Unix(listener) => {
                let accepted = listener.async_io(Interest::READABLE, accept_unix);
                accepted_unix(accepted.await?)
            }
        }
    }

    /// Accepts a connection that waits in the queue. The kernel is asked, because the runtime does not know
    /// yet of connections that came since it last waited for events.
    fn accept_queued(&self) -> io::Result<AcceptedSocket> {
        match self {
            Self::Tcp {
                listener, local, ..
            } => {
                let (socket, peer) = SockRef::from(listener).accept()?;
                socket.set_nonblocking(true)?;
                let peer = peer.as_socket().ok_or(io::ErrorKind::ConnectionAborted)?;
                let socket = TcpStream::from_std(socket.into())?;
                Ok(accepted_tcp(socket, peer, *local))
            }
            Self::Unix(listener) => accepted_unix(accept_unix(listener.get_ref())?),
        }
    }

    /// Makes the kernel drop the segments that a program drops, or with `None` none. Returns whether it does; not for a Unix socket,
    /// nor for one that another process passed, which may keep it open.
    fn filter(&self, program: Option<&[sock_filter]>) -> bool {
        let Self::Tcp {
            listener,
            is_inherited: false,
            ..
        } = self
        else {
            return false;
        };
        let socket = SockRef::from(listener);
        let attached = match program {
            None => socket.detach_filter(),
            Some(program) => {
                let instructions = program
                    .iter()
                    .map(|sock_filter { code, jt, jf, k }| SockFilter::new(*code, *jt, *jf, *k));
                socket.attach_filter(&instructions.collect::<Vec<_>>())
            }
        };
        if let Err(error) = &attached {
            tracing::debug!(%error, "the kernel takes no filter for a listening socket");
        }
        attached.is_ok()
    }

    /// Makes the kernel ignore clients that begin to connect from now on: a connection that enters the queue
    /// between the last accept and the close of the socket would be reset. These clients try again after a
    /// second (RFC 6298, section 2.1), when the socket is closed and another may have its port. Returns whether it does.
    fn ignore_new_clients(&self) -> bool {
        // Tried before: to close the socket at once resets what is in its queue, and to accept until it is empty
        // leaves the time between the last accept and the close. Connections were reset when a reload moved a port
        // to another address.
        self.filter(Some(&syn_filter::DROP_ALL))
    }
}

fn accepted_tcp(socket: TcpStream, peer: SocketAddr, local: Option<Peer>) -> AcceptedSocket {
    // A system call for each connection, which a socket that listens on a single address saves.
    let local = local.unwrap_or_else(|| {
        let local = socket.local_addr();
        local.map_or(Peer::Unix, |address| Peer::Ip(canonical(address)))
    });
    AcceptedSocket {
        socket: StreamSocket::Tcp(socket, DescriptorPermit::of_client()),
        peer: Peer::Ip(canonical(peer)),
        local,
    }
}

fn accept_unix(listener: &UnixListener) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::accept_with(listener, flags)?)
}

fn accepted_unix(socket: OwnedFd) -> io::Result<AcceptedSocket> {
    Ok(AcceptedSocket {
        socket: StreamSocket::Unix(
            ReadInterestSocket::new(socket.into())?,
            DescriptorPermit::of_client(),
        ),
        peer: Peer::Unix,
        local: Peer::Unix,
    })
}

/// Accepts until `finish`, and then the connections that wait in the queue of the socket.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listener: Rc<WorkerListener>,
    socket: AcceptSocket,
    finish: Rc<Notify>,
) {
    let mut quiet_until = 0;
    let socket = Rc::new(socket);
    let mut refused: Option<Rc<SynFilter>> = None;
    loop {
        let accepted = tokio::select! {
            // The end of the listener goes first: a full queue would otherwise keep it open.
            biased;
            () = finish.notified() => break,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => {
                if !descriptors::are_short() {
                    if let Err(client) = start(&worker, &listener, accepted) {
                        let filter = refused.get_or_insert_with(|| {
                            let socket = Rc::downgrade(&socket);
                            let attach = move |program: Option<&[sock_filter]>| {
                                if let Some(socket) = socket.upgrade() {
                                    socket.filter(program);
                                }
                            };
                            SynFilter::new(&worker, Box::new(attach))
                        });
                        filter.count(client);
                    }
                } else if may_stay(&worker) {
                    let _ = start(&worker, &listener, accepted);
                    // The connections that were closed give their descriptors back before the next accept.
                    tokio::task::yield_now().await;
                }
            }
            // accept(2) reports errors of the new connection as its own: to rest after them would let a client that
            // resets its connections hold up all others.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                worker.counters.accept_failures.add(1);
                // EMFILE and ENFILE leave the connection in the queue, and the socket readable: without the rest
                // below, the loop would spin.
                let closed = worker.make_room(1, worker.clock.ticks());
                if worker.clock.ticks() >= quiet_until {
                    quiet_until = worker.clock.deadline(QUIET);
                    tracing::warn!(%error, closed, "cannot accept; idle connections were closed");
                }
                tokio::time::sleep(REST).await;
            }
        }
    }
    // From here on, `ignore_new_clients` has the filter of the socket.
    drop(refused);
    // Starts to serve a connection; false if there is none.
    let serve_next = |accepted: io::Result<AcceptedSocket>| match accepted {
        Ok(accepted) => {
            let _ = start(&worker, &listener, accepted);
            true
        }
        Err(error) => is_of_one_connection(&error),
    };
    if socket.ignore_new_clients() && listener.is_removed() {
        let handshakes = async { while serve_next(socket.accept().await) {} };
        let _ = tokio::time::timeout(HANDSHAKE, handshakes).await;
    }
    while serve_next(socket.accept_queued()) {}
}

/// Whether a connection may stay where descriptors are short. Idle connections close for it, and one more
/// than needed, until there are enough again. If none is idle, the last descriptors are kept for files.
fn may_stay(worker: &Worker) -> bool {
    let closed = worker.make_room(2, worker.clock.ticks());
    let is_refused = closed == 0 && descriptors::are_exhausted();
    if is_refused {
        worker.counters.accepted.add(1);
        worker.counters.refused.add(1);
    }
    !is_refused
}

/// Starts to serve a connection, unless a limit refuses it.
///
/// # Errors
/// The client may not connect.
fn start(
    worker: &Rc<Worker>,
    listener: &Rc<WorkerListener>,
    accepted: AcceptedSocket,
) -> Result<(), IpAddr> {
    let peer = accepted.peer;
    // A proxy is not one client: its clients are counted when their addresses are known.
    let proxies = listener.proxy_protocol_from();
    let client = if proxies.iter().any(|network| network.contains(&peer)) {
        None
    } else {
        peer.ip()
    };
    if let Some(client) = client
        && worker.is_refused(Some(client))
    {
        worker.counters.accepted.add(1);
        return Err(client);
    }
    let Some((mut slot, counted)) = admit(worker, client) else {
        return Ok(());
    };
    let (worker, listener) = (Rc::clone(worker), Rc::clone(listener));
    // Boxed: the runtime moves a task several times before it stores it.
    tokio::task::spawn_local(Box::pin(async move {
        let established = connection::establish(&worker, &listener, &mut slot, accepted).await;
        let Some(established) = established else {
            return;
        };
        if let Some(http2) = established.serve_http1(&worker).await {
            tokio::task::spawn_local(async move {
                let _counted = counted;
                http2.serve(&worker, &listener, &slot).await;
            });
        }
    }));
    Ok(())
}

/// Enters a connection of a client in the tables, unless a limit refuses it.
pub(crate) fn admit(
    worker: &Worker,
    client: Option<IpAddr>,
) -> Option<(ConnectionSlot, ConnectionPermit)> {
    worker.counters.accepted.add(1);
    let limits = worker.limits();
    let admit = || {
        let slot = worker.table.enter(client, limits.connections_per_address)?;
        let permit = worker.all.enter(limits.max_connections)?;
        // Last: a client that is past its own limit would close the idle connections of others, one with each attempt.
        let has_room = worker.table.open() <= limits.worker_connections
            || worker.make_room(1, worker.clock.ticks()) > 0;
        has_room.then_some((slot, permit))
    };
    let admitted = admit();
    match &admitted {
        None => worker.counters.refused.add(1),
        Some(_) => worker.counters.connections.set(worker.table.open() as u64),
    }
    admitted
}

/// Whether an error concerns only the connection that was to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            // A rule of a firewall reports EPERM for the connection that it has refused (accept(2)).
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}
