//! The end of a connection (RFC 9000 section 10).

use std::time::Instant;

use bytes::Bytes;

use crate::datagram::DatagramSource;
use crate::error::{ConnectionEnd, TransportError};
use crate::frame::QuicFrame;
use crate::observer::ObservedEnd;
use crate::packet::Space;
use crate::varint::{self, Reader};

use super::receive::ReceivedPacket;
use super::timers::ConnectionTimer;
use super::{Connection, ConnectionStage, EndpointRequest};

/// The CONNECTION_CLOSE frame that this end sends.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) by_application: bool,
    pub(super) code: u64,
    pub(super) frame: u64,
    pub(super) reason: Bytes,
    /// Whether it has to be sent.
    pub(super) is_pending: bool,
    /// Datagrams since it was sent, and after how many it is sent again.
    received: u32,
    repeat_after: u32,
}

impl Connection {
    /// Closes the connection for the application. What was not sent is lost.
    pub fn close(&mut self, now: Instant, code: u64, reason: Bytes) {
        if !self.is_closed() {
            self.observe_time(now);
            self.observe_end(|| ObservedEnd::Local { code });
            self.begin_closing(now, true, code.min(varint::MAX), 0, reason);
        }
    }

    /// Closes the connection because of an error.
    pub(super) fn close_by_error(&mut self, now: Instant, error: TransportError) {
        if self.is_closed() {
            return;
        }
        self.observe_end(|| ObservedEnd::Ended(error.clone().into()));
        let reason = Bytes::copy_from_slice(error.reason.as_bytes());
        self.begin_closing(
            now,
            false,
            error.code.into(),
            error.frame.unwrap_or(0),
            reason,
        );
        self.end = Some(error.into());
    }

    fn begin_closing(
        &mut self,
        now: Instant,
        by_application: bool,
        code: u64,
        frame: u64,
        reason: Bytes,
    ) {
        self.closing = Some(Box::new(Closing {
            by_application,
            code,
            frame,
            reason,
            is_pending: true,
            received: 0,
            repeat_after: 1,
        }));
        self.enter(now, ConnectionStage::Closing);
        self.discard_received();
    }

    /// Ends the connection at once, without a word to the peer.
    pub fn abandon(&mut self) {
        self.discard_received();
        self.observe_end(|| ObservedEnd::Abandoned);
        self.drain();
    }

    /// Returns the memory of data that nobody reads any more.
    pub fn discard_received(&mut self) {
        self.streams.discard_received();
        for space in Space::ALL {
            if let Some(packets) = self.spaces.get_mut(space) {
                packets.crypto_received.clear();
            }
        }
    }

    /// Enters the closing or draining state, which lasts three probe timeouts.
    fn enter(&mut self, now: Instant, state: ConnectionStage) {
        self.state = state;
        self.timers.clear();
        let at = now.checked_add(self.three_probe_timeouts());
        self.timers.set(ConnectionTimer::Close, at);
        self.is_loss_timer_old = false;
    }

    /// CONNECTION_CLOSE of the peer (section 19.19).
    pub(super) fn on_close(
        &mut self,
        now: Instant,
        by_application: bool,
        code: u64,
        reason: &[u8],
    ) {
        let reason = Bytes::copy_from_slice(reason);
        if self.state != ConnectionStage::Closing {
            let end = if by_application {
                ConnectionEnd::Application { code, reason }
            } else {
                ConnectionEnd::Peer { code, reason }
            };
            self.observe_end(|| ObservedEnd::Ended(end.clone()));
            self.end = Some(end);
        }
        self.closing = None;
        self.enter(now, ConnectionStage::Draining);
    }

    /// A packet in the closing state: does the peer close the connection, too?
    pub(super) fn on_packet_while_closing(&mut self, now: Instant, packet: &ReceivedPacket<'_>) {
        let mut reader = Reader::new(packet.payload);
        while !reader.is_empty() {
            match QuicFrame::read(&mut reader) {
                Ok(QuicFrame::Close {
                    by_application,
                    code,
                    reason,
                }) => return self.on_close(now, by_application, code, reason),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Repeats CONNECTION_CLOSE, each time after twice as many datagrams (section 10.2.1).
    pub(super) fn on_datagram_while_closing(&mut self, source: &DatagramSource) {
        let is_current_path = self.is_current_path(source);
        let Some(closing) = self.closing.as_mut().filter(|_| is_current_path) else {
            return;
        };
        if closing.is_pending {
            return;
        }
        closing.received += 1;
        if closing.received >= closing.repeat_after {
            closing.received = 0;
            closing.repeat_after = closing.repeat_after.saturating_mul(2);
            closing.is_pending = true;
        }
    }

    /// Ends the connection at once, without a packet.
    pub(super) fn lose(&mut self, now: Instant, reason: ConnectionEnd) {
        if self.is_closed() {
            return;
        }
        let is_reset = reason == ConnectionEnd::Reset;
        self.observe_end(|| ObservedEnd::Ended(reason.clone()));
        self.end = Some(reason);
        if is_reset {
            self.enter(now, ConnectionStage::Draining);
        } else {
            self.drain();
        }
    }

    /// The connection is over.
    pub(super) fn drain(&mut self) {
        if self.state != ConnectionStage::Drained {
            self.state = ConnectionStage::Drained;
            self.timers.clear();
            self.is_loss_timer_old = false;
            self.closing = None;
            self.endpoint_events.push_back(EndpointRequest::Drained);
        }
    }
}
