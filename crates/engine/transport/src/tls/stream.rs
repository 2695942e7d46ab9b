//! TLS over a socket, which moves bytes between rustls, which does no I/O, and the socket.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::ReadBuf;

use crate::socket::StreamSocket;

/// The most plaintext that one write takes: four full records. It bounds the encrypted bytes that wait for
/// the socket.
const MAX_WRITE: usize = 64 * 1024;

/// The most reads of bytes that nobody wants any more, of 4 KB each.
// A peer that sends without end must not hold the worker.
const DISCARDED_READS: usize = 64;

/// An established TLS connection.
pub struct TlsStream {
    socket: StreamSocket,
    session: Connection,
    /// Whether the socket ended without a `close_notify` alert.
    cut_off: bool,
    /// Whether records wait for the socket that reading has queued, and for which nobody else may flush.
    owes_flush: bool,
}

impl TlsStream {
    /// A stream whose handshake has not ended yet: see [`Self::poll_handshake`].
    pub fn new(socket: StreamSocket, session: impl Into<Connection>) -> Self {
        let mut session = session.into();
        // `MAX_WRITE` is the limit.
        session.set_buffer_limit(None);
        Self {
            socket,
            session,
            cut_off: false,
            owes_flush: false,
        }
    }

    /// Processes what the session has received already, and then these bytes, which were read from the socket
    /// behind a ClientHello.
    ///
    /// # Errors
    /// They are no TLS, or break its rules. The alert waits for [`Self::poll_flush`].
    pub fn receive(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            self.process_records()?;
            if bytes.is_empty() {
                return Ok(());
            }
            if self.session.read_tls(&mut bytes)? == 0 {
                // After a `close_notify` nothing is read.
                return Ok(());
            }
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

    /// Whether the stream ended without a `close_notify` alert (RFC 9112 section 9.8): a body without another
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
        if self.owes_flush && self.poll_flush(cx).is_ready() {
            self.owes_flush = false;
        }
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
        // What TLS holds leaves first, or each write to a slow peer would add to it.
        ready!(self.poll_flush(cx))?;
        let mut left = MAX_WRITE;
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
        // That the socket takes nothing now is no reason to wait: TLS has the bytes, and the caller must not write
        // them again.
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
            Err(error) => {
                // A message that is larger than rustls takes has no separate alert.
                if error.kind() == io::ErrorKind::InvalidData {
                    self.session.send_close_notify();
                    let _ = self.poll_flush(cx);
                }
                return Poll::Ready(Err(error));
            }
        };
        let has_unsent = self.session.wants_write();
        let processed = self.process_records();
        // Alerts, such as `no_renegotiation`, and KeyUpdate are sent although nobody writes. What waited before
        // is sent by its writer.
        if self.session.wants_write() && !has_unsent {
            self.owes_flush = self.poll_flush(cx).is_pending();
        }
        if let Err(error) = processed {
            // What waited before the alert is sent with it, if the socket has room.
            let _ = self.poll_flush(cx);
            self.discard_received(cx);
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(read))
    }

    /// Reads what has arrived behind an error: a reset caused by unread bytes would destroy the alert.
    fn discard_received(&mut self, cx: &mut Context<'_>) {
        for _ in 0..DISCARDED_READS {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = self.socket.poll_read_buf(cx, &mut buffer);
            if !matches!(polled, Poll::Ready(Ok(_))) || buffer.filled().is_empty() {
                return;
            }
        }
    }

    /// Decrypts the records that were read, and queues the responses to them.
    fn process_records(&mut self) -> io::Result<()> {
        if let Err(error) = self.session.process_new_packets() {
            // The alert names the cause to the client; the connection ends either way. rustls has none for a
            // few errors.
            if !self.session.wants_write() {
                self.session.send_close_notify();
            }
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        // rustls holds the response to a KeyUpdate back until something is written (RFC 8446 section 4.6.3).
        if !self.session.is_handshaking() {
            self.session.writer().write(b"").map(drop)?;
        }
        Ok(())
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
