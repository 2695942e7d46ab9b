//! The HTTP/1.1 connection of a tunnel: bytes that arrived early, then the transport itself.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use apus_http::Duplex;

use crate::input::InputBuffer;
use crate::transport::Transport;

/// An HTTP/1.1 connection after its switch to a tunnel.
pub struct Http1Tunnel {
    transport: Transport,
    early: InputBuffer,
}

thread_local! {
    /// The buffer that tunnels of this thread read into, so that an idle tunnel holds none.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Http1Tunnel {
    /// The tunnel over this connection; `early` are bytes that were read from it already.
    pub fn new(transport: Transport, early: InputBuffer) -> Self {
        Self { transport, early }
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
