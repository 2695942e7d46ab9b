//! An idle FastCGI connection, which belongs to no thread.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use apus_transport::descriptors::DescriptorPermit;
use apus_transport::{ReadInterestSocket, StreamSocket, Transport, unread_memory};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::runtime::{self, Handle};

use super::{FastCgiClient, FastCgiClientConnection};
use crate::ResponseRules;

/// An idle connection, which any thread may take over.
///
/// Most applications serve one connection at a time with each of their processes. A process whose connection
/// is idle at one worker would be lost to the others.
#[derive(Debug)]
pub struct ParkedFastCgi {
    socket: ParkedStream,
    rules: ResponseRules,
    requests: u64,
    opened_at: Instant,
    parked_at: Instant,
}

#[derive(Debug)]
enum ParkedStream {
    Tcp(TcpStream, DescriptorPermit),
    /// It stays registered with the runtime that parked it, which is likely to take it again.
    Unix(ReadInterestSocket, DescriptorPermit, runtime::Id),
}

impl ParkedFastCgi {
    pub(super) fn new(inner: FastCgiClientConnection) -> Option<Self> {
        let socket = match inner.serial.transport {
            Transport::Clear(StreamSocket::Tcp(socket, descriptor)) => {
                // A socket of tokio belongs to the reactor of one runtime; without it any thread can take the
                // connection.
                ParkedStream::Tcp(socket.into_std().ok()?, descriptor)
            }
            Transport::Clear(StreamSocket::Unix(socket, descriptor)) => {
                ParkedStream::Unix(socket, descriptor, Handle::try_current().ok()?.id())
            }
            Transport::Tls(_) => return None,
        };
        Some(Self {
            socket,
            rules: inner.rules,
            requests: inner.serial.requests,
            opened_at: inner.serial.opened_at,
            parked_at: Instant::now(),
        })
    }

    /// Takes the connection over on this thread.
    ///
    /// # Errors
    /// The runtime of this thread cannot register it.
    pub fn resume(self) -> io::Result<FastCgiClient> {
        let is_here = |id| Handle::try_current().is_ok_and(|here| here.id() == id);
        let socket = match self.socket {
            ParkedStream::Tcp(socket, descriptor) => {
                StreamSocket::Tcp(tokio::net::TcpStream::from_std(socket)?, descriptor)
            }
            ParkedStream::Unix(socket, descriptor, left_by) if is_here(left_by) => {
                StreamSocket::Unix(socket, descriptor)
            }
            ParkedStream::Unix(socket, descriptor, _) => {
                StreamSocket::Unix(ReadInterestSocket::new(socket.into_std())?, descriptor)
            }
        };
        let transport = Transport::Clear(socket);
        let mut connection = FastCgiClient::new(transport, self.rules);
        connection.0.serial.requests = self.requests;
        connection.0.serial.opened_at = self.opened_at;
        Ok(connection)
    }

    /// Checks the socket without waiting whether the connection can carry a request: not if the application
    /// closed it or sent something unexpected.
    pub fn is_usable(&self) -> bool {
        // A system call instead of the readiness that a reactor knows: the socket may be registered with the
        // reactor of another thread, or with none.
        let mut byte = [0_u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // Only that there is nothing to read is good. An end is an end, and bytes now belong to no request.
        matches!(
            rustix::net::recv(self.as_fd(), &mut byte, flags),
            Err(Errno::AGAIN | Errno::INTR)
        )
    }

    /// Whether the application waits for another request on this connection. The system shows only a part of that:
    /// over a Unix socket, where the bytes that it did not read are counted.
    ///
    /// PHP leaves the end of a request's body unread until then. A script that called
    /// `fastcgi_finish_request` still works meanwhile, and occupies the connection.
    pub fn is_awaited(&self) -> bool {
        let ParkedStream::Unix(socket, ..) = &self.socket else {
            return true;
        };
        unread_memory(socket).is_ok_and(|unread| unread == 0)
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// When it became idle.
    pub fn parked_at(&self) -> Instant {
        self.parked_at
    }
}

impl AsFd for ParkedFastCgi {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ParkedStream::Tcp(socket, _) => socket.as_fd(),
            ParkedStream::Unix(socket, ..) => socket.as_fd(),
        }
    }
}
