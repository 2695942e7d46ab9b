//! Writing of packets: headers, frames in their order, and encryption.

use std::time::{Instant, SystemTime};

use rustls::quic::{HeaderProtectionKey, PacketKey};

use crate::error::{TransportError, TransportErrorCode};
use crate::frame::{self, NewConnectionId, kind};
use crate::packet::{self, PacketKind, SentHeader, Space, TAG};
use crate::recovery::SentPacket;
use crate::varint;

use super::path::MIN_MTU;
use super::record::{Control, SentFrames};
use super::timers::ConnectionTimer;
use super::{Connection, SideState};

/// The exponent of the ACK delay of this end: that which counts without a transport parameter.
const ACK_DELAY_EXPONENT: u32 = 3;
/// Bytes that a token of NEW_TOKEN takes at most.
// Type and length of the frame, a mark and a nonce of 13 bytes, 26 bytes of contents with an IPv6 address, and a tag of
// 16. An estimate that is too small would overflow the packet, one that is too large delays the frame by a packet.
const NEW_TOKEN: usize = 80;
/// Room for a CRYPTO frame that is worth beginning: its header and some bytes.
const MIN_CRYPTO: usize = 1 + 8 + 2 + 16;
/// What is left of a packet at most after STREAM frames, when there is more data: it is filled with PADDING, so that all
/// packets of a run have the same size.
// UDP_SEGMENT cuts a buffer into datagrams of one size. A packet that is a few bytes short would end the run, and with
// it the system call.
const MIN_ROOM: usize = 48;

/// What a packet is written for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketPlan {
    pub(super) now: Instant,
    pub(super) space: Space,
    /// The index in the buffer at which the packet has to end.
    pub(super) end: usize,
    /// The index up to which it has to be padded.
    pub(super) padded_end: usize,
    /// Whether frames other than ACK may be sent.
    pub(super) has_frames: bool,
    pub(super) is_ecn_marked: bool,
}

impl Connection {
    /// Writes a packet; `false` if there is nothing to write.
    pub(super) fn write_packet(
        &mut self,
        plan: &PacketPlan,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, TransportError> {
        let &PacketPlan { now, space, .. } = plan;
        let kind = match space {
            Space::Initial => PacketKind::Initial,
            Space::Handshake => PacketKind::Handshake,
            Space::Data if self.keys.is_some() => PacketKind::OneRtt,
            Space::Data => PacketKind::ZeroRtt,
        };
        // Before the header is made, which has the number, and outside of the writing of frames, which may turn out to
        // have nothing.
        self.skip_number(space);
        // Grease of the fixed bit (RFC 9287 section 3.1) is for half of the packets at random. Handshake packets keep
        // it: they may reach a peer or a middlebox before the transport parameter has.
        let is_greased =
            self.peer.grease_quic_bit && kind == PacketKind::OneRtt && self.random.below(2) == 0;
        let Some(header) = self.next_header(kind, space) else {
            return Ok(false);
        };
        let header = SentHeader {
            is_greased,
            ..header
        };
        let number = header.number;
        let begin = buffer.len();
        let start = header.write(buffer);
        let frames_at = buffer.len();
        let end = plan.end.saturating_sub(TAG);
        let mut frames = SentFrames::default();
        // ACK comes first: it is what must not be cut off by a full packet, as the peer's loss detection waits for it.
        self.write_ack(now, kind, end, &mut frames, buffer);
        let before = buffer.len();
        if plan.has_frames {
            self.write_frames(space, kind, end, &mut frames, buffer);
        }
        let mut is_ack_eliciting = buffer.len() > before;
        let Some(packets) = self.spaces.get_mut(space) else {
            return Ok(false);
        };
        // A probe has to be ack-eliciting, or the peer would not respond to it (RFC 9002 section 6.2.4).
        if plan.has_frames && packets.probes > 0 && !is_ack_eliciting && buffer.len() < end {
            buffer.push(kind::PING);
            is_ack_eliciting = true;
        }
        // A packet without frames is a PROTOCOL_VIOLATION for the peer (RFC 9000 section 12.4).
        if buffer.len() == frames_at {
            buffer.truncate(begin);
            return Ok(false);
        }
        if is_ack_eliciting {
            packets.probes = packets.probes.saturating_sub(1);
        }
        // Header protection samples 16 bytes that begin four bytes after the start of the packet number (RFC 9001
        // section 5.4.2), so a packet with one PING needs padding.
        let padded_end = plan.padded_end.saturating_sub(TAG).max(start.least_end());
        let is_padded = buffer.len() < padded_end;
        if is_padded {
            buffer.resize(padded_end, kind::PADDING);
        }
        let observed = self.observe_unsent((kind, number), buffer.get(frames_at..));
        let (header_key, packet_key) = self.sending_keys(space)?;
        if !start.seal(buffer, header_key, packet_key) {
            buffer.truncate(begin);
            return Err(TransportError::internal("a packet cannot be encrypted"));
        }
        let size = buffer.len() - begin;
        if kind == PacketKind::OneRtt
            && let Some(keys) = &mut self.keys
        {
            // After the encryption, with which the number is used up in any case: the limit of the AEAD counts packets
            // that were encrypted, not those that were sent (RFC 9001 section 6.6).
            keys.count_sent(number)?;
        }
        if let Some(observed) = observed {
            self.observe_sent(observed, size);
        }
        let Some(packets) = self.spaces.get_mut(space) else {
            return Ok(false);
        };
        packets.sent.push(SentPacket {
            time: now,
            size: u16::try_from(size).unwrap_or(u16::MAX),
            ack_eliciting: is_ack_eliciting,
            // Padding counts for congestion control although nobody acknowledges it (RFC 9002 section 2); an ACK alone
            // does not.
            in_flight: is_ack_eliciting || is_padded,
            is_mtu_probe: false,
            is_ecn_marked: plan.is_ecn_marked,
            frames,
        });
        // The peer need not acknowledge packets that have ACK frames alone, so they would never leave the ring of a
        // receiver.
        if !is_ack_eliciting {
            while let Some((_, packet)) = packets.sent.pop_excess() {
                drop(packet);
            }
        }
        if plan.is_ecn_marked {
            self.path.ecn.on_sent(now, space.index(), 1);
        }
        self.stats.path.sent_packets += 1;
        self.is_loss_timer_old |= is_ack_eliciting;
        // Only the first one after something was received: otherwise repeated probes would keep a connection to a dead
        // peer alive for ever (RFC 9000 section 10.1).
        if is_ack_eliciting && std::mem::take(&mut self.restarts_idle) {
            self.restart_idle_timer(now);
        }
        Ok(true)
    }

    /// The header of the next packet of this kind, unless its packet number space is gone.
    #[inline]
    fn next_header(&self, kind: PacketKind, space: Space) -> Option<SentHeader<'_>> {
        let packets = self.spaces.get(space)?;
        let number = packets.sent.next_number();
        Some(SentHeader {
            kind,
            version: self.version,
            destination: self.remote_ids.active(),
            source: &self.local_id,
            token: match &self.side_state {
                SideState::Client { token, .. } => token.as_slice(),
                SideState::Server { .. } => &[],
            },
            number,
            number_length: packet::number_length(number, packets.largest_acknowledged),
            key_phase: self.keys.as_ref().is_some_and(|keys| keys.phase),
            is_greased: false,
        })
    }

    /// Leaves packet numbers out at random, ever more rarely (RFC 9000 section 21.4).
    #[inline]
    fn skip_number(&mut self, space: Space) {
        let sent = &mut self.spaces.data.sent;
        if space == Space::Data && sent.next_number() >= self.skip_at {
            sent.skip();
            self.skip_distance = self.skip_distance.saturating_mul(2);
            self.skip_at = sent
                .next_number()
                .saturating_add(1 + self.random.below(self.skip_distance));
        }
    }

    /// The keys of packets that are sent.
    fn sending_keys(
        &self,
        space: Space,
    ) -> Result<(&dyn HeaderProtectionKey, &dyn PacketKey), TransportError> {
        let level = match space {
            Space::Initial => &self.spaces.initial,
            Space::Handshake => &self.spaces.handshake,
            Space::Data => {
                // A client changes from 0-RTT to 1-RTT keys as soon as it has them, and never back (RFC 9001 section
                // 4.9.3).
                if let Some(keys) = &self.keys {
                    return Ok((&*keys.local_header, &*keys.local));
                }
                if let SideState::Client {
                    early_keys: Some(keys),
                    ..
                } = &self.side_state
                {
                    return Ok((&*keys.header, &*keys.packet));
                }
                &None
            }
        };
        level
            .as_ref()
            .map(|level| (&*level.keys.local.header, &*level.keys.local.packet))
            .ok_or_else(|| TransportError::internal("there are no keys"))
    }

    #[inline]
    fn write_ack(
        &mut self,
        now: Instant,
        kind: PacketKind,
        end: usize,
        frames: &mut SentFrames,
        buffer: &mut Vec<u8>,
    ) {
        // 0-RTT packets have no ACK: their keys are older than anything that the server has sent (RFC 9000 section
        // 17.2.3).
        let Some(space) = kind.space().filter(|_| kind != PacketKind::ZeroRtt) else {
            return;
        };
        let Some(packets) = self.spaces.get_mut(space) else {
            return;
        };
        // An ACK of packets that have ACK frames alone would be acknowledged by another one, for ever (RFC 9000
        // section 13.2.1).
        if !packets.received.has_unacknowledged() {
            return;
        }
        let (ranges, delay, counts) = packets.received.to_send(now);
        // The unit is 8 us by default (RFC 9000 section 18.2), as no other exponent is announced.
        let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX) >> ACK_DELAY_EXPONENT;
        let delay = delay.min(varint::MAX);
        let room = end.saturating_sub(buffer.len());
        if !frame::write_ack(ranges, delay, counts, room, buffer) {
            return;
        }
        if let Some(largest) = packets.received.largest() {
            // Once this packet is acknowledged, the ranges up to here need not be repeated (RFC 9000 section 13.2.4).
            frames.set_acknowledged(largest);
        }
        packets.received.on_ack_sent();
        if space == Space::Data {
            // Any packet has the ACK with it, so a response to a request mostly saves the ACK of the request a
            // datagram of its own.
            self.timers.set(ConnectionTimer::AckDelay, None);
        }
    }

    #[inline]
    fn write_frames(
        &mut self,
        space: Space,
        kind: PacketKind,
        end: usize,
        frames: &mut SentFrames,
        buffer: &mut Vec<u8>,
    ) {
        if space != Space::Data {
            return self.write_crypto_frames(space, end, frames, buffer);
        }
        // Control frames come before STREAM frames: credit that waits behind a full window of data would stop the
        // peer's uploads.
        if self.has_control() {
            self.write_controls(kind, end, frames, buffer);
        }
        while self.streams.has_data()
            && let Some(record) = self.streams.write_data(end, buffer)
        {
            frames.push_stream(record);
        }
        let room = end.saturating_sub(buffer.len());
        if room < MIN_ROOM && self.streams.has_data() {
            buffer.resize(end, kind::PADDING);
        }
    }

    /// Whether frames other than ACK and STREAM wait in Application Data.
    #[inline]
    pub(super) fn has_control(&self) -> bool {
        self.streams.has_control()
            || self.is_ping_pending
            || self.is_handshake_done_pending
            || self.is_new_token_pending
            || self.path.is_challenge_pending
            || !self.path_responses.is_empty()
            || self.local_ids.has_pending()
            || self.remote_ids.has_retired()
            || self.spaces.data.crypto_sent.has_pending()
    }

    /// Writes the frames of Application Data that are neither ACK nor STREAM, until the packet is full.
    fn write_controls(
        &mut self,
        kind: PacketKind,
        end: usize,
        frames: &mut SentFrames,
        buffer: &mut Vec<u8>,
    ) {
        let has_room = |buffer: &Vec<u8>, size: usize| buffer.len() + size <= end;
        // Without a look at the room: one byte is there in any packet that may have frames.
        if std::mem::take(&mut self.is_ping_pending) {
            buffer.push(kind::PING);
        }
        // 0-RTT packets may not have the frames below (RFC 9000 section 12.5, table 3): they respond to something of
        // the server.
        if kind == PacketKind::OneRtt {
            if self.is_handshake_done_pending && has_room(buffer, 1) {
                self.is_handshake_done_pending = false;
                buffer.push(kind::HANDSHAKE_DONE);
                // It is sent until it is acknowledged (RFC 9000 section 13.3): a client keeps its Handshake keys, and
                // probes with them, until it has come.
                frames.others().controls.push(Control::HandshakeDone);
            }
            self.write_path_frames(end, frames, buffer);
            self.write_crypto_frames(Space::Data, end, frames, buffer);
            while self.remote_ids.has_retired()
                && has_room(buffer, frame::most_of_integers(1))
                && let Some(sequence) = self.remote_ids.pop_retired()
            {
                frame::write_integers(kind::RETIRE_CONNECTION_ID, [sequence], buffer);
                let control = Control::RetireConnectionId(sequence);
                frames.others().controls.push(control);
            }
            if self.is_new_token_pending && has_room(buffer, NEW_TOKEN) {
                self.is_new_token_pending = false;
                self.write_new_token(frames, buffer);
            }
        }
        while self.local_ids.has_pending() && has_room(buffer, NewConnectionId::MAX) {
            if let Some(new) = self.local_ids.pop_pending() {
                new.write(buffer);
                let control = Control::NewConnectionId(new.sequence);
                frames.others().controls.push(control);
            }
        }
        while self.streams.has_control()
            && let Some(control) = self.streams.write_control(end, buffer)
        {
            frames.others().stream_controls.push(control);
        }
    }

    /// PATH_RESPONSE and PATH_CHALLENGE of the current path.
    fn write_path_frames(&mut self, end: usize, frames: &mut SentFrames, buffer: &mut Vec<u8>) {
        /// The type and the data.
        const SIZE: usize = 1 + 8;
        let remote = self.path.remote;
        while buffer.len() + SIZE <= end
            && let Some(index) = self
                .path_responses
                .iter()
                .position(|response| response.remote == remote)
            && let Some(response) = self.path_responses.remove(index)
        {
            // It is not recorded: a lost one is not sent again, as the peer repeats its challenge (RFC 9000 section
            // 13.3).
            buffer.push(kind::PATH_RESPONSE);
            buffer.extend_from_slice(&response.data);
            self.stats.frame_tx.path_response += 1;
        }
        if let Some(data) = self.path.challenge
            && self.path.is_challenge_pending
            && buffer.len() + SIZE <= end
        {
            self.path.is_challenge_pending = false;
            buffer.push(kind::PATH_CHALLENGE);
            buffer.extend_from_slice(&data);
            frames.others().controls.push(Control::PathChallenge);
            self.stats.frame_tx.path_challenge += 1;
        }
    }

    fn write_crypto_frames(
        &mut self,
        space: Space,
        end: usize,
        frames: &mut SentFrames,
        buffer: &mut Vec<u8>,
    ) {
        let Some(packets) = self.spaces.get_mut(space) else {
            return;
        };
        let crypto = &mut packets.crypto_sent;
        while crypto.has_pending() && buffer.len() + MIN_CRYPTO <= end {
            // The length gets two bytes, which suffice for 16,383: a shorter integer would move the data after it was
            // copied.
            let header = 1 + varint::size(crypto.next_offset()) + 2;
            let room = end.saturating_sub(buffer.len() + header) as u64;
            let range = crypto.take_next(room.min(0x3fff));
            frame::write_integers(kind::CRYPTO, [range.start, range.end - range.start], buffer);
            crypto.copy(range.clone(), buffer);
            frames.others().crypto.push(range);
        }
    }

    fn write_new_token(&mut self, frames: &mut SentFrames, buffer: &mut Vec<u8>) {
        let SideState::Server { tokens, .. } = &self.side_state else {
            return;
        };
        // The time of the system, and not `now`: a token is presented after a restart, too, where an `Instant` means
        // nothing.
        let time = SystemTime::now();
        if let Some(token) = tokens.new_token(self.version, time, self.path.remote.ip()) {
            frame::write_integers(kind::NEW_TOKEN, [token.len() as u64], buffer);
            buffer.extend_from_slice(&token);
            frames.others().controls.push(Control::NewToken);
        }
    }

    /// Writes CONNECTION_CLOSE in the packets of all spaces that have keys (RFC 9000 section 10.2.3).
    pub(super) fn write_close_packets(&mut self, mtu: usize, buffer: &mut Vec<u8>) {
        let Some(closing) = self.closing.take() else {
            return;
        };
        let begin = buffer.len();
        // A server does not know which keys the client has yet, so the frame is sent with each of them, in one
        // datagram.
        let initial = self.spaces.initial.is_some().then_some(PacketKind::Initial);
        let handshake = self.spaces.handshake.is_some();
        let one_rtt = self.keys.is_some();
        let kinds = [
            initial,
            handshake.then_some(PacketKind::Handshake),
            one_rtt.then_some(PacketKind::OneRtt),
        ];
        let last = kinds.into_iter().flatten().last();
        for kind in kinds.into_iter().flatten() {
            let Some(space) = kind.space() else {
                continue;
            };
            let Some(header) = self.next_header(kind, space) else {
                continue;
            };
            let packet_at = buffer.len();
            let start = header.write(buffer);
            let frames_at = buffer.len();
            // Room for the packets of other spaces.
            let most = if Some(kind) == last {
                (begin + mtu).saturating_sub(buffer.len() + TAG)
            } else {
                mtu / 4
            };
            // The application is not exposed before the handshake is complete (section 10.2.3).
            let is_hidden = closing.by_application && space != Space::Data;
            if is_hidden {
                let code = TransportErrorCode::APPLICATION_ERROR.into();
                frame::write_close(false, code, 0, &[], most, buffer);
            } else {
                let (code, frame) = (closing.code, closing.frame);
                let by_application = closing.by_application;
                frame::write_close(by_application, code, frame, &closing.reason, most, buffer);
            }
            let padded_end = if Some(kind) == last && initial.is_some() {
                begin + usize::from(MIN_MTU) - TAG
            } else {
                start.least_end()
            };
            if buffer.len() < padded_end {
                buffer.resize(padded_end, kind::PADDING);
            }
            let number = header.number;
            let observed = self.observe_unsent((kind, number), buffer.get(frames_at..));
            let is_sealed = self
                .sending_keys(space)
                .is_ok_and(|(header_key, packet_key)| start.seal(buffer, header_key, packet_key));
            if !is_sealed {
                buffer.truncate(packet_at);
                continue;
            }
            if let Some(packets) = self.spaces.get_mut(space) {
                packets.sent.skip();
            }
            if let Some(observed) = observed {
                self.observe_sent(observed, buffer.len() - packet_at);
            }
        }
        self.closing = Some(closing);
    }
}
