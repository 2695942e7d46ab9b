//! `MemoryConnection`: an in-memory connection for responses that switch protocols.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_http::Duplex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// One end of a connection in memory.
pub(super) struct MemoryConnection(DuplexStream);

/// The size of the buffer between writer and reader, in bytes.
const BUFFER: usize = 64 * 1024;

/// Both ends of a connection.
pub(super) fn pair() -> (MemoryConnection, MemoryConnection) {
    let (one, other) = tokio::io::duplex(BUFFER);
    (MemoryConnection(one), MemoryConnection(other))
}

impl Duplex for MemoryConnection {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
