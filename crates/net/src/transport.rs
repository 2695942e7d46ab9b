//! The byte stream under HTTP: a TCP or Unix socket, in clear text or under TLS.

use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::Sealed;

use crate::socket::StreamSocket;
use crate::tls::TlsStream;

/// The byte stream of a connection.
pub(crate) enum Transport {
    Clear(StreamSocket),
    Tls(Box<TlsStream>),
}

impl Transport {
    /// Reads into the spare capacity of `buffer`; 0 at the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_read(cx, buffer),
            Self::Tls(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Writes some of `slices`. Bytes it counts may still wait in TLS for [`Self::poll_flush`].
    pub(crate) fn poll_write(
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
    pub(crate) fn poll_write_more(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_send_more(cx, bytes),
            Self::Tls(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    /// Whether files and sealed memory go out by themselves: not under TLS.
    pub(crate) fn sends_files(&self) -> bool {
        matches!(self, Self::Clear(_))
    }

    /// Sends some of a file without a copy through this process; 0 where the file ends.
    pub(crate) fn poll_send_file(
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
    pub(crate) fn poll_send_sealed(
        &mut self,
        cx: &mut Context<'_>,
        sealed: &Sealed,
        from: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(socket) => socket.poll_send_sealed(cx, sealed, from),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Sends what TLS kept back.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_flush(cx),
        }
    }

    /// Whether there is something to send with [`Self::poll_flush`].
    pub(crate) fn keeps_back(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.keeps_back(),
        }
    }

    /// Waits until much can be written. TLS encrypts what it is given even if it has to keep it then;
    /// this spares that memory. In clear text nothing is kept.
    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.socket_mut().poll_writable_now(cx),
        }
    }

    /// Has the kernel take no more than `bytes` that it cannot send yet, so that what is to be sent is
    /// chosen late. TLS adds what it holds.
    pub(crate) fn limit_unsent(&mut self, bytes: u32) {
        let socket = match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.socket_mut(),
        };
        if let StreamSocket::Tcp(socket, _) = socket {
            let _ = socket2::SockRef::from(&*socket).set_tcp_notsent_lowat(bytes);
        }
    }

    /// Whether the stream is known to have been cut off rather than ended. In clear text nobody can
    /// tell.
    pub(crate) fn is_cut_off(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.is_cut_off(),
        }
    }

    /// Lets the end of the connection be a reset, which no client takes for the end of content.
    pub(crate) fn reset_when_dropped(&mut self) {
        let socket = match self {
            Self::Clear(socket) => socket,
            // Without a close_notify the client can tell already.
            Self::Tls(_) => return,
        };
        if let StreamSocket::Tcp(socket, _) = socket {
            let _ = socket2::SockRef::from(&*socket).set_linger(Some(Duration::ZERO));
        }
    }

    /// Says that our side of the stream ends, as TLS wants it said before the socket is closed.
    pub(crate) fn poll_close_notify(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => {
                stream.close_notify();
                stream.poll_flush(cx)
            }
        }
    }

    /// Ends our side of the stream, while the other may go on.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_close_notify(cx))?;
        Poll::Ready(match self {
            Self::Clear(socket) => socket.shutdown(),
            Self::Tls(stream) => stream.socket_mut().shutdown(),
        })
    }
}
