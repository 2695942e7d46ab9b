//! A connected socket, TCP or Unix, with the calls that send files and memory without a copy.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::SealedMemory;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::TcpKeepalive;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::descriptors::DescriptorPermit;
use crate::read_interest::ReadInterestSocket;
use crate::unread::unread_memory;

/// A connected socket.
pub enum StreamSocket {
    /// A TCP socket.
    Tcp(TcpStream, DescriptorPermit),
    /// A Unix socket.
    Unix(ReadInterestSocket, DescriptorPermit),
}

impl StreamSocket {
    /// Reads into the spare capacity of `buffer`; 0 at the end.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let len = buffer.len();
        let mut spare = ReadBuf::uninit(buffer.spare_capacity_mut());
        ready!(self.poll_read_buf(cx, &mut spare))?;
        let read = spare.filled().len();
        // SAFETY: `spare` borrows the capacity behind `len`, and its first `read` bytes were filled.
        unsafe { buffer.set_len(len + read) };
        Poll::Ready(Ok(read))
    }

    /// Waits until a read may return something. An error is left to the read.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Tcp(socket, _) => socket.poll_read_ready(cx).map(drop),
            Self::Unix(socket, _) => socket.poll_readable(cx),
        }
    }

    /// Reads into `buffer`.
    pub fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket, _) => Pin::new(socket).poll_read(cx, buffer),
            Self::Unix(socket, _) => {
                // SAFETY: no byte of the slice is made uninitialised.
                let room = unsafe { buffer.unfilled_mut() };
                let read = ready!(socket.poll_read_into(cx, room))?;
                // SAFETY: this number of bytes was read into it.
                unsafe { buffer.assume_init(read) };
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Writes some of `slices`.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // One buffer, the usual case, is cheaper to send by the call that takes one.
        match (self, slices) {
            (Self::Tcp(socket, _), [bytes]) => match socket.try_write(bytes) {
                // Only now the task has to be woken.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Pin::new(socket).poll_write(cx, bytes)
                }
                written => Poll::Ready(written),
            },
            (Self::Tcp(socket, _), _) => Pin::new(socket).poll_write_vectored(cx, slices),
            (Self::Unix(socket, _), _) => socket.poll_write(cx, slices),
        }
    }

    /// Writes bytes that the kernel may hold back, because more follow at once.
    pub fn poll_send_more(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writable(cx, |socket| {
            // With `MSG_MORE`, the head of a response and the beginning of its file leave in one packet.
            rustix::net::send(socket, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)
        })
    }

    /// Sends a part of a file without a copy through this process.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<io::Result<usize>> {
        let len = usize::try_from(len)
            .unwrap_or(usize::MAX)
            .min(MAX_SEND_FILE);
        self.poll_writable(cx, |socket| {
            let mut offset = offset;
            rustix::fs::sendfile(socket, file, Some(&mut offset), len)
        })
    }

    /// Sends some of sealed memory, beginning at its byte `from`, without a copy through this process.
    pub fn poll_send_sealed(
        &mut self,
        cx: &mut Context<'_>,
        sealed: &SealedMemory,
        from: usize,
    ) -> Poll<io::Result<usize>> {
        let len = sealed.bytes().len().saturating_sub(from);
        let len = len.min(MAX_SEND_FILE);
        let offset = sealed.offset() + from as u64;
        let mut sent = 0;
        let polled = self.poll_writable(cx, |socket| {
            // The offset is passed with each call: the file is shared, and so is its own position.
            let mut at = offset + sent as u64;
            sent += rustix::fs::sendfile(socket, sealed.file(), Some(&mut at), len - sent)?;
            // All of the memory can be sent, so the socket is full. This error saves the call that would
            // report it.
            if sent < len {
                Err(Errno::AGAIN)
            } else {
                Ok(sent)
            }
        });
        if sent > 0 {
            return Poll::Ready(Ok(sent));
        }
        polled
    }

    /// Calls `call` until it does not block, and waits for space in between.
    pub fn poll_writable(
        &mut self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let socket = match self {
            Self::Tcp(socket, _) => socket,
            Self::Unix(socket, _) => return socket.poll_writable(cx, call),
        };
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_io(Interest::WRITABLE, || Ok(call(socket.as_fd())?)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Waits until a write of some size would succeed, by the prediction of the kernel.
    pub fn poll_writable_now(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writable(cx, |socket| {
            // Unlike the readiness that the runtime remembers, this also registers for the next change.
            let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
            match rustix::event::poll(&mut asked, Some(&Timespec::default()))? {
                0 => Err(Errno::AGAIN),
                ready => Ok(ready),
            }
        })
        .map_ok(|_| ())
    }

    /// Has the system find out whether a peer that ended its side is still there: one that is gone responds to its
    /// probes with a reset, at the latest when it has forgotten the connection.
    pub fn watch_half_closed(&self) {
        if let Self::Tcp(socket, _) = self {
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE)
                .with_interval(KEEPALIVE)
                .with_retries(3);
            // Without it, the next write finds out.
            let _ = socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive);
        }
    }

    /// Whether the connection was reset, or failed.
    pub fn is_gone(&self) -> bool {
        let socket = match self {
            Self::Tcp(socket, _) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        };
        // Errors and hang-ups are reported without being asked for.
        let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
        let _ = rustix::event::poll(&mut asked, Some(&Timespec::default()));
        let [found] = asked;
        found.revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// The bytes that were written and not taken by the other end; 0 if the system cannot tell.
    pub fn undelivered(&self) -> u64 {
        let bytes = match self {
            Self::Tcp(socket, _) => unread_memory(socket),
            Self::Unix(socket, _) => unread_memory(socket),
        };
        bytes.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
    }

    /// Ends our side of the stream.
    pub fn shutdown(&mut self) -> io::Result<()> {
        let socket = match self {
            Self::Tcp(socket, _) => socket2::SockRef::from(&*socket),
            Self::Unix(socket, _) => socket2::SockRef::from(&*socket),
        };
        socket.shutdown(Shutdown::Write)
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket, _) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        }
    }
}

/// The time after which a half-closed connection is probed, and between probes.
// With three probes, a peer without power is found to be gone after a minute.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The most bytes of a file that one call sends, so that one fast reader does not occupy the worker.
const MAX_SEND_FILE: usize = 512 * 1024;

/// The address of a client, as IPv4 for IPv4 clients of an IPv6 socket.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
