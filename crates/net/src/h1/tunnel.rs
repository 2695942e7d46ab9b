//! The connection as a tunnel has it: what the client sent early, then the transport itself.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use apus_http::Duplex;

use crate::input::Input;
use crate::transport::Transport;

/// A connection after HTTP.
pub(crate) struct Raw {
    transport: Transport,
    early: Input,
    read: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(transport: Transport, early: Input) -> Self {
        Self {
            transport,
            early,
            read: Vec::new(),
        }
    }
}

impl Duplex for Raw {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.early.is_empty() {
            self.read.clear();
            self.read.reserve_exact(buffer.len());
            let read = ready!(self.transport.poll_read(cx, &mut self.read))?;
            // The transport may have had room for more than was asked for.
            self.early = Input::new(std::mem::take(&mut self.read));
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
        }
        let unread = self.early.unread();
        let len = unread.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..len), unread.get(..len)) {
            to.copy_from_slice(from);
        }
        self.early.consume(len);
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
}
