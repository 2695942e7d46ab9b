//! Datagrams that are received: decryption (RFC 9001 section 5), and which packets are dropped (RFC 9000 section 5.2).

use std::time::Instant;

use rustls::quic::DirectionalKeys;

use crate::connection_id::{ConnectionId, RESET_TOKEN_LENGTH, ResetToken};
use crate::datagram::DatagramSource;
use crate::error::{ConnectionEnd, TransportError};
use crate::observer::{DropReason, KeyUpdateReason};
use crate::packet::{Packet, PacketKind, Space};
use crate::stream_id::Side;

use super::timers::ConnectionTimer;
use super::{Connection, ConnectionStage, SideState};

/// A packet that is authentic.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedPacket<'a> {
    pub(super) kind: PacketKind,
    pub(super) space: Space,
    pub(super) number: u64,
    pub(super) destination: ConnectionId,
    /// That of a long header.
    pub(super) packet_source: ConnectionId,
    pub(super) source: DatagramSource,
    /// Its own bytes.
    pub(super) size: usize,
    /// The bytes of its datagram.
    pub(super) datagram_size: usize,
    pub(super) payload: &'a [u8],
}

impl Connection {
    /// Handles a datagram, in whose place packets are decrypted.
    pub fn handle_datagram(&mut self, now: Instant, source: DatagramSource, datagram: &mut [u8]) {
        self.observe_time(now);
        let size = datagram.len();
        self.stats.udp_rx.datagrams += 1;
        self.stats.udp_rx.bytes += size as u64;
        self.stats.udp_rx.ios += 1;
        if matches!(
            self.state,
            ConnectionStage::Draining | ConnectionStage::Drained
        ) {
            return;
        }
        // Bytes count before anything is decrypted: what the limit of three times needs is that they came from the
        // address, and a client whose packet cannot be read yet, as an earlier one is lost, would otherwise wait for a
        // server that may not send.
        if self.is_current_path(&source) {
            self.path.received = self.path.received.saturating_add(size as u64);
        } else if self.side.is_client() {
            // Servers do not migrate (section 9).
            return self.observe_dropped(None, size, DropReason::Invalid);
        }
        self.is_loss_timer_old = true;
        // A short header does not have the length of its destination (RFC 9000 section 17.3.1): all IDs of an endpoint
        // have one length.
        let id_length = self.local_id.len();
        let mut destination = None;
        let mut rest = datagram;
        while !rest.is_empty() {
            // What does not parse is dropped without an error: anybody on the way can add bytes to a datagram, and
            // nothing of it is authentic yet.
            let rest_size = rest.len();
            let Ok((packet, after)) = Packet::parse(rest, id_length) else {
                self.observe_dropped(None, rest_size, DropReason::Invalid);
                break;
            };
            rest = after;
            // Packets for several connections are not coalesced (section 12.2).
            if *destination.get_or_insert(packet.destination) == packet.destination {
                self.handle_packet(now, source, size, packet);
            } else {
                let (kind, size) = (packet.kind, packet.bytes.len());
                self.observe_dropped(Some(kind), size, DropReason::OtherConnection);
            }
        }
        if self.state == ConnectionStage::Closing {
            self.on_datagram_while_closing(&source);
        }
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        source: DatagramSource,
        datagram_size: usize,
        mut packet: Packet<'_>,
    ) {
        let Some(space) = packet.kind.space() else {
            self.observe_received_unnumbered(&packet);
            return match packet.kind {
                PacketKind::Retry if packet.version == Some(self.version) => {
                    self.on_retry(now, &packet);
                }
                PacketKind::Retry => {}
                _ => self.on_version_negotiation(&packet),
            };
        };
        let (kind, destination, packet_source) = (packet.kind, packet.destination, packet.source);
        let size = packet.bytes.len();
        let is_long = kind != PacketKind::OneRtt;
        // The source ID does not change in a handshake; packets with another one are dropped, so that nobody but an
        // attacker who sees the first flight can take part in it (RFC 9000 section 7.2).
        if is_long && self.peer_id.is_some_and(|id| id != packet_source) {
            return self.observe_dropped(Some(kind), size, DropReason::Invalid);
        }
        if is_long && packet.version != Some(self.version) && !self.is_original_initial(&packet) {
            return self.observe_dropped(Some(kind), size, DropReason::OtherVersion);
        }
        // A server has no use for a token (RFC 9000 section 17.2.2). It is dropped and closes nothing: anybody can make
        // Initial packets.
        if kind == PacketKind::Initial && self.side.is_client() && !packet.token.is_empty() {
            return;
        }
        let opened = match kind {
            PacketKind::OneRtt => self.open_one_rtt(now, &mut packet),
            PacketKind::ZeroRtt => self.open_early(&mut packet),
            _ => self.open_handshake(space, &mut packet),
        };
        match opened {
            Ok(None) => {
                let reason = if self.has_receiving_keys(kind) {
                    DropReason::Undecryptable
                } else {
                    DropReason::NoKeys
                };
                self.observe_dropped(Some(kind), size, reason);
            }
            Ok(Some(Opened {
                number,
                has_reserved_bits: false,
                payload,
            })) => self.on_packet(
                now,
                ReceivedPacket {
                    kind,
                    space,
                    number,
                    destination,
                    packet_source,
                    source,
                    size,
                    datagram_size,
                    payload,
                },
            ),
            // The reserved bits are under header protection and in the associated data, so they are examined after the
            // packet is known to be authentic: before, an error would tell an attacker about single bits (RFC 9001
            // section 5.4, RFC 9000 section 17.2).
            Ok(Some(_)) => {
                let error = TransportError::protocol_violation("reserved bits are set");
                self.close_by_error(now, error);
            }
            Err(error) => self.close_by_error(now, error),
        }
    }

    /// Whether packets of this type could be decrypted.
    fn has_receiving_keys(&self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::Initial => self.spaces.initial.is_some(),
            PacketKind::Handshake => self.spaces.handshake.is_some(),
            PacketKind::ZeroRtt => self.side == Side::Server && self.has_early_data(),
            PacketKind::OneRtt => {
                let is_early =
                    self.state == ConnectionStage::Handshake && self.side == Side::Server;
                self.keys.is_some() && !is_early
            }
            PacketKind::Retry | PacketKind::VersionNegotiation => false,
        }
    }

    /// Whether it is an Initial packet of the version with which the client began.
    fn is_original_initial(&self, packet: &Packet<'_>) -> bool {
        packet.kind == PacketKind::Initial && self.original_keys(packet).is_some()
    }

    /// The keys of Initial packets of the version with which the client began, if this is not the selected one.
    fn original_keys(&self, packet: &Packet<'_>) -> Option<&DirectionalKeys> {
        match &self.side_state {
            SideState::Server {
                original: Some(original),
                ..
            } if packet.version == Some(original.version) => Some(&original.remote),
            _ => None,
        }
    }

    fn open_handshake<'a>(
        &mut self,
        space: Space,
        packet: &'a mut Packet<'_>,
    ) -> Result<Option<Opened<'a>>, TransportError> {
        let level = match space {
            Space::Initial => &self.spaces.initial,
            _ => &self.spaces.handshake,
        };
        let Some(level) = level else {
            return Ok(None);
        };
        let keys = self.original_keys(packet).unwrap_or(&level.keys.remote);
        let Some(unprotected) = packet.unprotect(&*keys.header) else {
            return Ok(None);
        };
        let number = unprotected.number(level.space.received.expected());
        let payload = packet.decrypt(&*keys.packet, unprotected, number);
        Ok(payload.map(|payload| Opened {
            number,
            has_reserved_bits: unprotected.has_reserved_bits(),
            payload,
        }))
    }

    fn open_early<'a>(
        &mut self,
        packet: &'a mut Packet<'_>,
    ) -> Result<Option<Opened<'a>>, TransportError> {
        let SideState::Server {
            early_keys: Some(keys),
            ..
        } = &self.side_state
        else {
            return Ok(None);
        };
        let Some(unprotected) = packet.unprotect(&*keys.header) else {
            return Ok(None);
        };
        let number = unprotected.number(self.spaces.data.received.expected());
        let payload = packet.decrypt(&*keys.packet, unprotected, number);
        Ok(payload.map(|payload| Opened {
            number,
            has_reserved_bits: unprotected.has_reserved_bits(),
            payload,
        }))
    }

    #[inline]
    fn open_one_rtt<'a>(
        &mut self,
        now: Instant,
        packet: &'a mut Packet<'_>,
    ) -> Result<Option<Opened<'a>>, TransportError> {
        // Decryption may overwrite it. A short header has at least a byte before.
        let token = packet.bytes.last_chunk::<RESET_TOKEN_LENGTH>().copied();
        // A server must not process 1-RTT packets before the handshake is complete (RFC 9001 section 5.7).
        let is_early = self.state == ConnectionStage::Handshake && self.side == Side::Server;
        let Some(keys) = self.keys.as_mut().filter(|_| !is_early) else {
            return Ok(None);
        };
        let mut opened = None;
        if let Some(unprotected) = packet.unprotect(&*keys.remote_header) {
            let expected = self.spaces.data.received.expected();
            let number = unprotected.number(expected);
            let numbers = (expected, self.spaces.data.sent.next_number());
            if let Some(decrypted) = keys.decrypt(packet, unprotected, number, numbers)? {
                if decrypted.is_first_with_key {
                    let timeout = self.path.probe_timeout(self.peer.ack_delay());
                    let timeout = timeout.saturating_mul(3);
                    self.timers
                        .set(ConnectionTimer::KeyDiscard, now.checked_add(timeout));
                }
                opened = Some(Opened {
                    number,
                    has_reserved_bits: unprotected.has_reserved_bits(),
                    payload: decrypted.payload,
                });
            }
        }
        if opened.is_none()
            && token.map(ResetToken) == self.remote_ids.reset_token()
            && token.is_some()
        {
            self.lose(now, ConnectionEnd::Reset);
        }
        Ok(opened)
    }

    fn on_packet(&mut self, now: Instant, packet: ReceivedPacket<'_>) {
        let Some(space) = self.spaces.get_mut(packet.space) else {
            return;
        };
        if space.received.contains(packet.number) {
            return self.observe_dropped(Some(packet.kind), packet.size, DropReason::Duplicate);
        }
        if self.state == ConnectionStage::Closing {
            self.observe_received(&packet);
            return self.on_packet_while_closing(now, &packet);
        }
        let expected = space.received.expected();
        space.received.insert(packet.number, now, packet.source.ecn);
        self.observe_key_phase(KeyUpdateReason::Remote);
        self.observe_received(&packet);
        self.has_received = true;
        self.restart_idle_timer(now);
        self.restarts_idle = true;
        match packet.kind {
            PacketKind::OneRtt => {
                if let SideState::Server { early_keys, .. } = &mut self.side_state {
                    *early_keys = None;
                }
            }
            PacketKind::Handshake if self.side.is_server() => {
                self.path.is_validated |= self.is_current_path(&packet.source);
                self.discard_space(now, Space::Initial);
            }
            PacketKind::Initial if self.peer_id.is_none() => {
                self.peer_id = Some(packet.packet_source);
                self.remote_ids.set_initial(packet.packet_source);
            }
            _ => {}
        }
        if let Err(error) = self.process_packet(now, &packet, expected) {
            self.close_by_error(now, error);
        }
    }
}

/// A packet that was decrypted.
struct Opened<'a> {
    number: u64,
    has_reserved_bits: bool,
    payload: &'a [u8],
}
