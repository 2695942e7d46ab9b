//! What the frames of packets do (RFC 9000 section 12.4).

use std::time::{Duration, Instant};

use crate::error::TransportError;
use crate::frame::QuicFrame;
use crate::packet::{PacketKind, Space};
use crate::varint::Reader;

use super::migration::PathResponse;
use super::receive::ReceivedPacket;
use super::timers::ConnectionTimer;
use super::{Connection, ConnectionStage, EndpointRequest, SideState};

/// How long an acknowledgement is delayed at most, the `max_ack_delay` of this end.
// The default of the transport parameter (RFC 9000 section 18.2), so that it need not be announced.
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

impl Connection {
    /// Handles the frames of a packet. `expected` was the next packet number before it came.
    pub(super) fn process_packet(
        &mut self,
        now: Instant,
        packet: &ReceivedPacket<'_>,
        expected: u64,
    ) -> Result<(), TransportError> {
        let mut reader = Reader::new(packet.payload);
        // RFC 9000 section 12.4 makes it an error: no sender has a reason to make one.
        if reader.is_empty() {
            return Err(TransportError::protocol_violation(
                "a packet without frames",
            ));
        }
        let mut is_ack_eliciting = false;
        let mut is_probing = true;
        while !reader.is_empty() {
            let frame = QuicFrame::read(&mut reader)?;
            is_ack_eliciting |= frame.is_ack_eliciting();
            is_probing &= frame.is_probing();
            // RFC 9000 section 12.5: without this, an Initial packet, whose keys anybody can compute, could close
            // streams or move the connection.
            let is_allowed = match packet.kind {
                PacketKind::OneRtt => true,
                PacketKind::ZeroRtt => frame.is_for_early_data(),
                _ => frame.is_for_handshake(),
            };
            if !is_allowed {
                return Err(TransportError::protocol_violation(
                    "a frame of another packet type",
                ));
            }
            match frame {
                // The two frequent frames have arms of their own, so that the large match below is not on the path of
                // data.
                QuicFrame::Stream(frame) => self.streams.on_stream_frame(&frame)?,
                QuicFrame::Ack(ack) => self.on_ack(now, packet.space, &ack)?,
                frame => self.process_frame(now, packet, frame)?,
            }
            // What follows CONNECTION_CLOSE in the packet has no meaning any more, and must not be responded to.
            if self.state == ConnectionStage::Draining {
                return Ok(());
            }
        }
        if is_ack_eliciting {
            self.acknowledge_later(now, packet, expected);
        }
        if packet.space == Space::Data
            && !is_probing
            && packet.source.remote != self.path.remote
            // Only the newest packet moves the connection: an old one that arrives late from the former address would
            // move it back (RFC 9000 section 9.3).
            && self.spaces.data.received.largest() == Some(packet.number)
        {
            self.migrate(now, packet)?;
        }
        Ok(())
    }

    fn acknowledge_later(&mut self, now: Instant, packet: &ReceivedPacket<'_>, expected: u64) {
        // Its keys may have been discarded meanwhile.
        let Some(space) = self.spaces.get_mut(packet.space) else {
            return;
        };
        space
            .received
            .on_ack_eliciting(packet.number, expected, packet.source.ecn);
        if packet.space == Space::Data
            && !space.received.is_due()
            // The delay counts from the first packet that waits. Set anew by each, a steady slow sender would never
            // get its ACK.
            && self.timers.get(ConnectionTimer::AckDelay).is_none()
        {
            self.timers
                .set(ConnectionTimer::AckDelay, now.checked_add(MAX_ACK_DELAY));
        }
    }

    fn process_frame(
        &mut self,
        now: Instant,
        packet: &ReceivedPacket<'_>,
        frame: QuicFrame<'_>,
    ) -> Result<(), TransportError> {
        match frame {
            QuicFrame::Stream(_) | QuicFrame::Ack(_) | QuicFrame::Padding | QuicFrame::Ping => {}
            // Limits of the peer that are no reason to do anything: what is read gives credit.
            QuicFrame::DataBlocked | QuicFrame::StreamsBlocked => {}
            QuicFrame::StreamDataBlocked(stream) => self.streams.on_stream_data_blocked(stream)?,
            QuicFrame::ResetStream {
                stream,
                code,
                final_size,
            } => self.streams.on_reset(stream, code, final_size)?,
            QuicFrame::StopSending { stream, code } => {
                self.streams.on_stop_sending(stream, code)?
            }
            QuicFrame::Crypto { offset, data } => {
                self.on_crypto(now, packet.space, offset, data)?
            }
            QuicFrame::MaxData(most) => self.streams.on_max_data(most),
            QuicFrame::MaxStreamData { stream, most } => {
                self.streams.on_max_stream_data(stream, most)?;
            }
            QuicFrame::MaxStreams { direction, most } => {
                self.streams.on_max_streams(direction, most)
            }
            QuicFrame::NewToken(token) => match &self.side_state {
                SideState::Client {
                    server_name,
                    tokens,
                    ..
                } => tokens.insert(server_name, token),
                // Only clients come back with tokens, so only they get any (RFC 9000 section 19.7).
                SideState::Server { .. } => {
                    return Err(TransportError::protocol_violation("a token of a client"));
                }
            },
            QuicFrame::NewConnectionId(new) => {
                if self.remote_ids.on_new(&new)? {
                    self.register_reset_token();
                }
            }
            QuicFrame::RetireConnectionId(sequence) => {
                let retired = self.local_ids.on_retired(sequence, &packet.destination)?;
                if let Some(id) = retired {
                    self.endpoint_events.push_back(EndpointRequest::Retire(id));
                    // A new one for each that is retired, so that a client that changes its address again has one left
                    // (RFC 9000 section 5.1.1).
                    self.endpoint_events.push_back(EndpointRequest::Issue(1));
                }
            }
            QuicFrame::PathChallenge(data) => {
                self.stats.frame_rx.path_challenge += 1;
                self.respond_to_challenge(PathResponse {
                    remote: packet.source.remote,
                    local_ip: packet.source.local_ip,
                    data,
                    received: packet.datagram_size,
                });
            }
            QuicFrame::PathResponse(data) => {
                self.stats.frame_rx.path_response += 1;
                self.on_path_response(&packet.source, data);
            }
            QuicFrame::Close {
                by_application,
                code,
                reason,
            } => self.on_close(now, by_application, code, reason),
            QuicFrame::HandshakeDone => self.on_handshake_done(now)?,
        }
        Ok(())
    }
}
