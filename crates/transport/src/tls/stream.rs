//! TLS over a socket, which moves bytes between rustls, which does no I/O, and the socket.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::ReadBuf;

use crate::socket::StreamSocket;

/// The most plaintext that one write takes: four full records. It bounds the encrypted bytes that wait for
/// the socket.
const WRITE_MOST: usize = 64 * 1024;

/// An established TLS connection.
pub struct TlsStream {
    socket: StreamSocket,
    session: Connection,
    /// Whether the socket ended without a close_notify alert.
    cut_off: bool,
}

impl TlsStream {
    /// A stream whose handshake has not ended yet: see [`Self::poll_handshake`].
    pub fn new(socket: StreamSocket, session: impl Into<Connection>) -> Self {
        let mut session = session.into();
        // `WRITE_MOST` is the limit.
        session.set_buffer_limit(None);
        Self {
            socket,
            session,
            cut_off: false,
        }
    }

    /// The session, for what was negotiated.
    pub fn session(&self) -> &Connection {
        &self.session
    }

    /// Whether ALPN (RFC 7301) settled on HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(b"h2")
    }

    /// Whether the stream ended without a close_notify alert (RFC 9112 section 9.8): a body without another
    /// end is incomplete then.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// The socket below.
    pub fn socket(&self) -> &StreamSocket {
        &self.socket
    }

    /// The socket below, to change it.
    pub fn socket_mut(&mut self) -> &mut StreamSocket {
        &mut self.socket
    }

    /// Performs one step of the handshake; ready when it is complete.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Err(error) = ready!(self.poll_flush(cx)) {
                return Poll::Ready(Err(error));
            }
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Reads decrypted bytes into the spare capacity of `buffer`; 0 at the end.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.session.reader().fill_buf() {
                Ok(plain) => {
                    let len = plain.len().min(buffer.capacity() - buffer.len());
                    buffer.extend_from_slice(plain.get(..len).unwrap_or_default());
                    self.session.reader().consume(len);
                    return Poll::Ready(Ok(len));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    // No close_notify: the framing of HTTP mostly shows whether anything is missing.
                    self.cut_off = true;
                    return Poll::Ready(Ok(0));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_fill(cx))?;
        }
    }

    /// Encrypts and writes some of `slices`; ready when TLS has them, even if the socket has not.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let mut left = WRITE_MOST;
        let mut part = smallvec::SmallVec::<[IoSlice<'_>; 8]>::new();
        for slice in slices {
            let len = slice.len().min(left);
            part.push(IoSlice::new(slice.get(..len).unwrap_or_default()));
            left -= len;
            if left == 0 {
                break;
            }
        }
        let written = self.session.writer().write_vectored(&part)?;
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(written))
    }

    /// Writes the encrypted bytes that wait for the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = SocketIo {
                socket: &mut self.socket,
                cx,
            };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether encrypted bytes wait for the socket.
    pub fn has_unsent_records(&self) -> bool {
        self.session.wants_write()
    }

    /// Queues the alert that ends our side.
    pub fn close_notify(&mut self) {
        self.session.send_close_notify();
    }

    /// Reads records from the socket and decrypts them; 0 at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut socket = SocketIo {
            socket: &mut self.socket,
            cx,
        };
        let read = match self.session.read_tls(&mut socket) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if let Err(error) = self.session.process_new_packets() {
            // The alert names the cause to the client; the connection ends either way.
            let _ = self.poll_flush(cx);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(read))
    }
}

/// The socket for rustls, during one poll.
struct SocketIo<'a, 'c> {
    socket: &'a mut StreamSocket,
    cx: &'a mut Context<'c>,
}

fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for SocketIo<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        or_would_block(self.socket.poll_read_buf(self.cx, &mut buffer))?;
        Ok(buffer.filled().len())
    }
}

impl Write for SocketIo<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(self.socket.poll_write(self.cx, &[IoSlice::new(bytes)]))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.socket.poll_write(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
