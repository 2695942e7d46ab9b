//! A connection as its task uses it: events, streams, and its end.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_quic_protocol::{ConnectionStats, Dir, QuicVersion, ReadState, Side, StreamId};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;

use crate::core::ConnectionCore;
use crate::events::{QuicCloseReason, QuicEvent, StreamError, StreamRead};
use crate::tls::{self, QuicHandshake};
use crate::work::WorkQueue;

/// A connection, for one task of its worker.
///
/// The task polls events until there are none, reads and writes streams, and returns. The endpoint wakes it once for
/// all packets of a batch, and sends what it wrote when all tasks that it woke have run: acknowledgements and data
/// share packets. Nothing has to be flushed.
///
/// Dropping it closes the connection with the error code 0.
pub struct QuicConnection {
    state: Rc<ConnectionCore>,
    work: Rc<WorkQueue>,
}

impl QuicConnection {
    pub(crate) fn new(state: Rc<ConnectionCore>, work: Rc<WorkQueue>) -> Self {
        Self { state, work }
    }

    /// The next event. After [`QuicEvent::Closed`], it is that forever.
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<QuicEvent> {
        self.state.poll_event(cx)
    }

    /// The version of QUIC.
    pub fn version(&self) -> QuicVersion {
        self.state.protocol.borrow().version()
    }

    /// Opens a stream; `None` if the peer allows no more now, or the connection is closed. Then
    /// [`StreamEvent::Available`](crate::StreamEvent::Available) follows.
    pub fn open(&self, direction: Dir) -> Option<StreamId> {
        self.state.protocol.borrow_mut().open(direction)
    }

    /// Passes the data of a stream to `sink`, in order and without copying, at most about `limit` bytes.
    ///
    /// # Errors
    /// The peer reset the stream, or it is not open for reading.
    pub fn read(
        &self,
        stream: StreamId,
        limit: usize,
        sink: impl FnMut(Bytes),
    ) -> Result<StreamRead, StreamError> {
        if !self.can_read(stream) {
            return Err(StreamError::Closed);
        }
        let mut protocol = self.state.protocol.borrow_mut();
        let read = protocol.read(stream, limit, sink);
        let has_credit_to_send = protocol.has_credit_to_send();
        drop(protocol);
        if has_credit_to_send {
            self.work.schedule(&self.state);
        }
        Ok(match read? {
            ReadState::Blocked => StreamRead::Blocked,
            ReadState::Limited => StreamRead::Limited,
            ReadState::Finished => StreamRead::Finished,
        })
    }

    /// Writes as much of the chunks as the windows allow, without copying, and takes that out of them. Returns the
    /// number of bytes; if something is left, [`StreamEvent::Writable`](crate::StreamEvent::Writable) follows.
    ///
    /// # Errors
    /// The peer does not read the stream any more, or it is not open for writing.
    pub fn write(&self, stream: StreamId, chunks: &mut [Bytes]) -> Result<usize, StreamError> {
        if !self.can_write(stream) {
            return Err(StreamError::Closed);
        }
        let bytes = self.state.protocol.borrow_mut().write(stream, chunks)?;
        if bytes > 0 {
            self.work.schedule(&self.state);
        }
        Ok(bytes)
    }

    /// Ends a stream after what was written. [`StreamEvent::Finished`](crate::StreamEvent::Finished) follows when the peer has
    /// all of it.
    ///
    /// # Errors
    /// As [`QuicConnection::write`].
    pub fn finish(&self, stream: StreamId) -> Result<(), StreamError> {
        if !self.can_write(stream) {
            return Err(StreamError::Closed);
        }
        self.state.protocol.borrow_mut().finish(stream)?;
        self.work.schedule(&self.state);
        Ok(())
    }

    /// Abandons a stream that is written (RFC 9000 section 3.1).
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn reset(&self, stream: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.can_write(stream) {
            return Err(StreamError::Closed);
        }
        self.state.protocol.borrow_mut().reset(stream, code)?;
        self.work.schedule(&self.state);
        Ok(())
    }

    /// Discards what comes on a stream, and asks the peer to stop sending it (RFC 9000 section 3.5).
    ///
    /// # Errors
    /// The stream is not open for reading.
    pub fn stop_sending(&self, stream: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.can_read(stream) {
            return Err(StreamError::Closed);
        }
        self.state
            .protocol
            .borrow_mut()
            .stop_sending(stream, code)?;
        self.work.schedule(&self.state);
        Ok(())
    }

    /// Sets the priority of a stream that is written: what waits on one with a higher priority is sent first. Streams with
    /// the same one, 0 unless it is set, are sent in turns: each sends all that was written before its turn.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn set_priority(&self, stream: StreamId, priority: i32) -> Result<(), StreamError> {
        if !self.can_write(stream) {
            return Err(StreamError::Closed);
        }
        let mut protocol = self.state.protocol.borrow_mut();
        Ok(protocol.set_priority(stream, priority)?)
    }

    /// The streams with data that the peer has not acknowledged. A graceful end waits until there are none.
    pub fn unacknowledged_streams(&self) -> usize {
        self.state.protocol.borrow().sending_streams()
    }

    /// Closes the connection now: what is not sent is lost. The peer gets the code and the text.
    pub fn close(&self, code: u64, text: Bytes) {
        self.state
            .close(Instant::now(), code, text, QuicCloseReason::Local);
        self.work.schedule(&self.state);
    }

    /// Facts of the handshake; `None` until there are any.
    pub fn handshake(&self) -> Option<QuicHandshake> {
        tls::handshake(self.state.protocol.borrow().tls())
    }

    /// The certificates of the peer, its own first. They have been verified when the handshake is complete.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        tls::peer_certificates(self.state.protocol.borrow().tls())
    }

    /// Whether what a server reads is early data (RFC 9001 section 9.2), which an attacker may have replayed. It ends
    /// when the handshake is complete: then all that was read is from this client, now.
    pub fn is_early(&self) -> bool {
        let protocol = self.state.protocol.borrow();
        protocol.side().is_server() && protocol.is_handshaking()
    }

    /// Whether a client can send early data, before [`QuicEvent::Connected`].
    pub fn can_send_early(&self) -> bool {
        let protocol = self.state.protocol.borrow();
        protocol.side().is_client() && protocol.has_early_data() && protocol.is_handshaking()
    }

    /// The current address of the peer: clients migrate (RFC 9000 section 9).
    pub fn remote_address(&self) -> SocketAddr {
        self.state.protocol.borrow().remote_address()
    }

    /// Whether the peer has shown that it receives at this address (RFC 9000 section 8).
    pub fn is_address_validated(&self) -> bool {
        self.state.protocol.borrow().is_address_validated()
    }

    /// The local address of packets, if the system reported it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.state.protocol.borrow().local_ip()
    }

    /// The estimated round-trip time.
    pub fn round_trip_time(&self) -> Duration {
        self.state.protocol.borrow().round_trip_time()
    }

    /// Counters of packets, frames and the path.
    pub fn statistics(&self) -> ConnectionStats {
        self.state.protocol.borrow().stats()
    }

    /// Tells how many bytes of this connection the application holds that it has not used. They count as those that it has
    /// not read.
    pub fn set_unread(&self, bytes: usize) {
        self.state.unread.set(bytes);
    }

    /// Asks the peer for a sign of life (PING), so that the idle timeout does not end the connection.
    pub fn ping(&self) {
        self.state.protocol.borrow_mut().ping();
        self.work.schedule(&self.state);
    }

    /// Changes the keys of packets (RFC 9001 section 6). They change by themselves before they are used up.
    pub fn update_keys(&self) {
        self.state.protocol.borrow_mut().update_keys();
        self.work.schedule(&self.state);
    }

    fn can_read(&self, stream: StreamId) -> bool {
        stream.dir() == Dir::Bi || stream.initiator() != self.side()
    }

    fn can_write(&self, stream: StreamId) -> bool {
        stream.dir() == Dir::Bi || stream.initiator() == self.side()
    }

    fn side(&self) -> Side {
        self.state.protocol.borrow().side()
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.close(0, Bytes::new());
        self.state.protocol.borrow_mut().discard_received();
    }
}

impl std::fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicConnection")
            .field("remote_address", &self.remote_address())
            .finish_non_exhaustive()
    }
}
