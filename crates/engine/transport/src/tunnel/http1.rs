//! The HTTP/1.1 connection of a tunnel: bytes that arrived early, then the transport itself.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use apus_http::Duplex;
use rustix::net::Shutdown;

use crate::input::InputBuffer;
use crate::transport::Transport;

/// An HTTP/1.1 connection after its switch to a tunnel.
pub struct Http1Tunnel {
    transport: Transport,
    early: InputBuffer,
    closer: TunnelCloser,
}

/// Closes the connection of an [`Http1Tunnel`] from outside of it.
#[derive(Clone, Debug)]
pub struct TunnelCloser(Rc<Cell<Option<RawFd>>>);

impl TunnelCloser {
    /// The tunnel reads the end of the connection, and its writes fail, as if the client had gone. Nothing happens to a tunnel that
    /// has ended.
    pub fn close(&self) {
        // By the socket, so that an open tunnel asks for nothing when it reads and writes, and ends as its service ends it.
        if let Some(socket) = self.0.get() {
            // SAFETY: a tunnel takes its descriptor out of the cell before it closes it.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

thread_local! {
    /// The buffer that tunnels of this thread read into, so that an idle tunnel holds none.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Http1Tunnel {
    /// The tunnel over this connection; `early` are bytes that were read from it already.
    pub fn new(transport: Transport, early: InputBuffer) -> Self {
        let socket = transport.socket().as_fd().as_raw_fd();
        Self {
            transport,
            early,
            closer: TunnelCloser(Rc::new(Cell::new(Some(socket)))),
        }
    }

    /// What closes its connection.
    pub fn closer(&self) -> TunnelCloser {
        self.closer.clone()
    }
}

impl Duplex for Http1Tunnel {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.early.is_empty() {
            let mut read = READ.take();
            read.reserve_exact(buffer.len());
            let polled = self.transport.poll_read(cx, &mut read);
            let len = read.len().min(buffer.len());
            if let (Some(to), Some(from)) = (buffer.get_mut(..len), read.get(..len)) {
                to.copy_from_slice(from);
            }
            if read.len() > len {
                // The transport filled more than the caller's buffer.
                self.early = InputBuffer::new(read.split_off(len));
            }
            read.clear();
            READ.set(read);
            return polled.map_ok(|_| len);
        }
        let unread = self.early.unread();
        let len = unread.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..len), unread.get(..len)) {
            to.copy_from_slice(from);
        }
        self.early.consume(len);
        // A tunnel may be idle for hours, and the buffer is not needed again.
        if self.early.is_empty() {
            self.early = InputBuffer::default();
        }
        Poll::Ready(Ok(len))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.transport.poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_shutdown(cx)
    }

    fn undelivered(&self) -> u64 {
        self.transport.undelivered()
    }
}

impl Drop for Http1Tunnel {
    fn drop(&mut self) {
        // The number may be that of another connection next.
        self.closer.0.set(None);
    }
}
