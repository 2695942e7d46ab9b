//! The byte stream under HTTP: a TCP or Unix socket, in clear text or under TLS.

use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::SealedMemory;

use crate::socket::StreamSocket;
use crate::tls::TlsStream;

/// The byte stream of a connection.
pub enum Transport {
    /// A socket.
    Clear(StreamSocket),
    /// TLS over a socket.
    Tls(Box<TlsStream>),
}

impl Transport {
    /// Reads into the spare capacity of `buffer`; 0 at the end.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_read(cx, buffer),
            Self::Tls(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Waits until a read may return something, without a buffer for it. Under TLS only a read can tell.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Clear(socket) => socket.poll_readable(cx),
            // Decrypted bytes may wait in TLS, of which the socket knows nothing.
            Self::Tls(_) => Poll::Ready(()),
        }
    }

    /// Writes some of `slices`. Bytes that it counts may still wait in TLS for [`Self::poll_flush`].
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_write(cx, slices),
            Self::Tls(stream) => stream.poll_write(cx, slices),
        }
    }

    /// Writes some of `bytes`, which a file follows at once.
    pub fn poll_write_more(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_send_more(cx, bytes),
            Self::Tls(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    /// Whether files and sealed memory can be sent without a copy: not under TLS.
    pub fn sends_files(&self) -> bool {
        matches!(self, Self::Clear(_))
    }

    /// Sends some of a file without a copy through this process; 0 where the file ends.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_send_file(cx, file, offset, len),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Sends some of sealed memory, from its byte `from` on, without a copy through this process.
    pub fn poll_send_sealed(
        &mut self,
        cx: &mut Context<'_>,
        sealed: &SealedMemory,
        from: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_send_sealed(cx, sealed, from),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Whether ALPN (RFC 7301) settled on HTTP/2.
    pub fn is_http2(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.is_http2(),
        }
    }

    /// Sends the encrypted bytes that TLS still holds.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_flush(cx),
        }
    }

    /// Whether encrypted bytes wait for [`Self::poll_flush`].
    pub fn has_unsent_records(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.has_unsent_records(),
        }
    }

    pub(crate) fn socket(&self) -> &StreamSocket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Has the system find out whether a peer that ended its side is still there.
    pub fn watch_half_closed(&self) {
        self.socket().watch_half_closed();
    }

    /// Whether the connection was reset, or failed.
    pub fn is_gone(&self) -> bool {
        self.socket().is_gone()
    }

    /// The bytes that were written and did not reach the peer yet; 0 if the system cannot tell.
    pub fn undelivered(&self) -> u64 {
        self.socket().undelivered()
    }

    /// Waits until the socket has space. TLS encrypts all that it gets, even if it has to hold it then, and
    /// this wait saves that memory. In clear text nothing is held.
    pub fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.socket_mut().poll_writable_now(cx),
        }
    }

    /// Limits the bytes that the kernel takes and cannot send yet, so that the next bytes to send are chosen
    /// late. TLS adds the bytes that it holds.
    pub fn limit_unsent(&mut self, bytes: u32) {
        let socket = match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.socket_mut(),
        };
        // The option is one of TCP (`TCP_NOTSENT_LOWAT`).
        if let StreamSocket::Tcp(socket, _) = socket {
            let _ = socket2::SockRef::from(&*socket).set_tcp_notsent_lowat(bytes);
        }
    }

    /// Whether the stream is known to be cut off instead of ended. In clear text that is unknown.
    pub fn is_cut_off(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.is_cut_off(),
        }
    }

    /// Ends the connection with a reset, which no client takes for the end of a body.
    pub fn reset_when_dropped(&mut self) {
        let socket = match self {
            Self::Clear(socket) => socket,
            // The missing `close_notify` shows it.
            Self::Tls(_) => return,
        };
        if let StreamSocket::Tcp(socket, _) = socket {
            // With a linger time of zero, close(2) sends a reset and no FIN.
            let _ = socket2::SockRef::from(&*socket).set_linger(Some(Duration::ZERO));
        }
    }

    /// Ends our side of the stream, which TLS requires before the socket is closed.
    pub fn poll_close_notify(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => {
                stream.close_notify();
                stream.poll_flush(cx)
            }
        }
    }

    /// Ends our side of the stream, while the other stays open.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The alert has to leave before the end of the stream, behind which nothing can be sent.
        ready!(self.poll_close_notify(cx))?;
        Poll::Ready(match self {
            Self::Clear(socket) => socket.shutdown(),
            Self::Tls(stream) => stream.socket_mut().shutdown(),
        })
    }
}
