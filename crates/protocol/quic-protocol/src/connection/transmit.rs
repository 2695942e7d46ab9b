//! Datagrams to send: which packets are due, and how many congestion control allows (RFC 9002 section 7).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::datagram::{EcnCodepoint, Transmit};
use crate::error::TransportError;
use crate::frame::kind;
use crate::packet::{PacketKind, SentHeader, Space, TAG};
use crate::recovery::SentPacket;

use super::migration::PathResponse;
use super::path::MIN_MTU;
use super::record::SentFrames;
use super::timers::ConnectionTimer;
use super::write::PacketPlan;
use super::{Connection, ConnectionStage};

/// Room that a further packet in a datagram needs: its header, a frame and the tag.
// A long header with two IDs of 20 bytes, a length, a number and the tag take up to 70 bytes. With little room for
// frames behind them, a further packet is not worth its encryption.
const MIN_PACKET: usize = 160;

/// The time after which a connection that sends nothing returns memory.
// Long enough that a browser that loads the resources of a page does not meet a ring that has to grow again, and short
// beside the minutes for which it keeps the idle connection.
const IDLE_BEFORE_SHRINK: Duration = Duration::from_secs(5);
/// Room for a packet with PATH_CHALLENGE.
// A short header with an ID of 20 bytes, nine bytes of the frame and a tag, and then some.
const MIN_CHALLENGE: usize = 64;

/// What congestion control allows for a run of datagrams.
#[derive(Clone, Copy, Debug)]
struct SendLimits {
    /// Bytes that may be sent by the congestion window, and by the pacer.
    window: u64,
    pacing: u64,
}

impl Connection {
    /// Makes a run of at most `max_datagrams` datagrams of one size in the buffer, which has to be empty. `None` if there
    /// is nothing to send now.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.observe_time(now);
        match self.state {
            ConnectionStage::Draining | ConnectionStage::Drained => return None,
            ConnectionStage::Closing => return self.transmit_close(buffer),
            ConnectionStage::Handshake | ConnectionStage::Established => {}
        }
        let transmit = self
            // Packets to other addresses come first: they are few, small, and have deadlines, whereas the run can go
            // on for long.
            .transmit_off_path(now, buffer)
            .or_else(|| self.transmit_run(now, max_datagrams.max(1), buffer))
            .or_else(|| self.transmit_mtu_probe(now, buffer));
        match self.state {
            // An error in the making of packets.
            // If there is a transmit, the buffer is in use: CONNECTION_CLOSE follows with the next call.
            ConnectionStage::Closing if transmit.is_none() => self.transmit_close(buffer),
            _ => transmit,
        }
    }

    fn transmit_run(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mtu = if self.is_probing() {
            // The path may have stopped to pass larger packets. When no packet arrives, no acknowledgement tells so.
            usize::from(MIN_MTU)
        } else {
            usize::from(self.path.mtu.current())
        };
        let in_flight = self.spaces.bytes_in_flight();
        let mut limits = SendLimits {
            window: self.path.congestion.window().saturating_sub(in_flight),
            pacing: 0,
        };
        // Window and pacer are asked once for a run of packets. To ask them for each packet was a part of the 1 us
        // that quinn-proto took for one.
        let pacing_delay = self.path.pacer.delay(now, mtu as u64);
        if pacing_delay.is_none() {
            // One datagram at least, as the pacer has said that it may go now; a budget of less than a datagram would
            // never send.
            limits.pacing = self.path.pacer.budget().max(mtu as u64);
        }
        // ECN is decided once, too: all datagrams of a run are sent by one system call, which has one TOS for all of
        // them.
        let probe_timeout = self.path.rtt.pto_base();
        let is_ecn_marked = self.path.ecn.is_marking(now, probe_timeout);
        let mut segment_size = 0;
        let mut datagrams = 0;
        let mut is_blocked = false;
        while datagrams < max_datagrams {
            let begin = buffer.len();
            let Some(most) = self.datagram_room(begin, mtu) else {
                break;
            };
            // A whole datagram has to fit into the window. Filling the rest of it with small packets would make the
            // silly windows of TCP.
            let may_send = limits.window >= mtu as u64 && limits.pacing > 0;
            is_blocked = !may_send && self.has_frames();
            let sent = self.write_datagram(now, most, may_send, is_ecn_marked, buffer);
            if let Err(error) = sent {
                self.close_by_error(now, error);
                buffer.truncate(begin);
                break;
            }
            let size = buffer.len() - begin;
            if size == 0 {
                break;
            }
            limits.window = limits.window.saturating_sub(size as u64);
            limits.pacing = limits.pacing.saturating_sub(size as u64);
            datagrams += 1;
            segment_size = segment_size.max(size);
            // The kernel cuts a run into segments of one size, of which only the last may be shorter (UDP_SEGMENT
            // of udp(7)).
            if size < mtu {
                break;
            }
        }
        // The caller's limit ended the run, so what is left waits for the caller, not for the network.
        if datagrams == max_datagrams {
            is_blocked = self.has_frames();
        }
        // The window must not grow by acknowledgements of a sender that does not use it (RFC 9002 section 7.8).
        self.path.is_app_limited = !is_blocked;
        // No timer when the window is full: then an ACK lets the connection go on, and a timer would wake it for
        // nothing.
        let is_pacing = is_blocked && (pacing_delay.is_some() || limits.pacing == 0);
        let pacing_at = match pacing_delay {
            Some(at) => Some(at),
            None if is_pacing => self.path.pacer.delay(now, mtu as u64).or(Some(now)),
            None => None,
        };
        self.timers.set(
            ConnectionTimer::Pacing,
            pacing_at.filter(|_| is_pacing && limits.window >= mtu as u64),
        );
        if datagrams == 0 {
            return None;
        }
        let after = self.spaces.bytes_in_flight();
        let sent = after.saturating_sub(in_flight);
        if sent > 0 {
            self.path.congestion.on_sent(now, sent, in_flight);
            self.path.pacer.on_sent(sent);
            // Only after something that is in flight: ACKs alone do not let the ring grow, and a timer for each of
            // them costs.
            let at = now.checked_add(IDLE_BEFORE_SHRINK);
            self.timers.set(ConnectionTimer::Shrink, at);
            self.observe_recovery();
        }
        self.path.sent += buffer.len() as u64;
        let ecn = is_ecn_marked.then_some(EcnCodepoint::Ect0);
        let segment_size = (datagrams > 1).then_some(segment_size);
        let (remote, local_ip) = (self.path.remote, self.path.local_ip);
        Some(self.transmit(buffer, datagrams, segment_size, ecn, (remote, local_ip)))
    }

    /// The bytes that the next datagram may have after `sent` bytes of this run; `None` if the address has to be validated
    /// before. A challenge of a path fits into a small datagram (RFC 9000 section 8.2.1).
    #[inline]
    fn datagram_room(&self, sent: usize, mtu: usize) -> Option<usize> {
        if !self.path.is_amplification_limited((sent + mtu) as u64) {
            return Some(mtu);
        }
        let room = usize::try_from(self.path.amplification_room()).unwrap_or(usize::MAX);
        // After a migration, less than a full datagram may be allowed. Without this one, a path to which a client has
        // sent a single small packet could never be validated. In the handshake a small datagram would be dropped by
        // the client, as those with Initial packets need 1,200 bytes.
        let is_enough = self.is_confirmed && sent == 0 && room >= MIN_CHALLENGE;
        is_enough.then_some(room.min(mtu))
    }

    fn transmit(
        &mut self,
        buffer: &[u8],
        datagrams: usize,
        segment_size: Option<usize>,
        ecn: Option<EcnCodepoint>,
        (destination, src_ip): (SocketAddr, Option<IpAddr>),
    ) -> Transmit {
        self.stats.udp_tx.datagrams += datagrams as u64;
        self.stats.udp_tx.bytes += buffer.len() as u64;
        self.stats.udp_tx.ios += 1;
        Transmit {
            destination,
            ecn,
            size: buffer.len(),
            segment_size,
            src_ip,
        }
    }

    /// Whether a probe timeout has expired, and the next packets are probes.
    #[inline]
    fn is_probing(&self) -> bool {
        Space::ALL
            .into_iter()
            .filter_map(|space| self.spaces.get(space))
            .any(|packets| packets.probes > 0)
    }

    /// Whether frames other than ACK wait to be sent.
    #[inline]
    fn has_frames(&self) -> bool {
        (self.streams.has_data() || self.has_control()) && self.can_send_data()
            || self.has_handshake_frames()
    }

    fn has_handshake_frames(&self) -> bool {
        [&self.spaces.initial, &self.spaces.handshake]
            .into_iter()
            .flatten()
            .any(|level| level.space.crypto_sent.has_pending())
    }

    /// Whether there are keys for Application Data.
    #[inline]
    pub(super) fn can_send_data(&self) -> bool {
        self.keys.is_some() || self.side.is_client() && self.has_early_data()
    }

    /// Writes a datagram of at most `mtu` bytes, if there is anything to send.
    fn write_datagram(
        &mut self,
        now: Instant,
        mtu: usize,
        may_send: bool,
        is_ecn_marked: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<(), TransportError> {
        let begin = buffer.len();
        let end = begin + mtu;
        let plan = |space, has_frames, padded_end| PacketPlan {
            now,
            space,
            end,
            padded_end,
            has_frames,
            is_ecn_marked,
        };
        // The path of nearly all packets, which has one space and no padding: the loop over the spaces below costs
        // more.
        if self.spaces.is_handshake_over() {
            if let Some(has_frames) = self.due_in_data(may_send) {
                let padded_end = if has_frames && self.needs_full_datagram() {
                    end.min(begin + usize::from(MIN_MTU))
                } else {
                    0
                };
                self.write_packet(&plan(Space::Data, has_frames, padded_end), buffer)?;
            }
            return Ok(());
        }
        // During the handshake, packets of several spaces share a datagram.
        let mut has_initial = false;
        for space in Space::ALL {
            let Some(has_frames) = self.due(space, may_send) else {
                continue;
            };
            if end - buffer.len() < MIN_PACKET {
                break;
            }
            // A server pads datagrams with ack-eliciting Initial packets, a client those with any (RFC 9000 section
            // 14.1): so both learn that the path carries 1,200 bytes in both directions.
            has_initial |= space == Space::Initial && (has_frames || self.side.is_client());
            // The padding goes into the last packet, as PADDING frames of the first would take the room of the others.
            let is_last = Space::ALL
                .into_iter()
                .all(|later| later <= space || self.due(later, may_send).is_none());
            let is_full = has_initial || has_frames && self.needs_full_datagram();
            let padded_end = if is_full && is_last {
                begin + usize::from(MIN_MTU)
            } else {
                0
            };
            let is_written = self.write_packet(&plan(space, has_frames, padded_end), buffer)?;
            // A client discards Initial keys with its first Handshake packet, a server when it receives one (RFC 9001
            // section 4.9.1).
            if is_written && space == Space::Handshake && self.side.is_client() {
                self.discard_space(now, Space::Initial);
            }
        }
        if has_initial && buffer.len() > begin && buffer.len() < begin + usize::from(MIN_MTU) {
            // The last packet had no room for its frames. What follows the packets is ignored (RFC 9000 section 12.2).
            buffer.resize(begin + usize::from(MIN_MTU), 0);
        }
        Ok(())
    }

    /// Whether a packet of this space is due, and whether it may have frames other than ACK.
    fn due(&self, space: Space, may_send: bool) -> Option<bool> {
        if space == Space::Data {
            return self.due_in_data(may_send);
        }
        let packets = match space {
            Space::Initial => &self.spaces.initial.as_ref()?.space,
            _ => &self.spaces.handshake.as_ref()?.space,
        };
        // Probes ignore the congestion window: they are how it finds out that its packets were lost (RFC 9002 section
        // 7.5).
        let has_frames = packets.probes > 0 || may_send && packets.crypto_sent.has_pending();
        // ACKs of the handshake are not delayed: the peer's first estimate of the round-trip time comes from them (RFC
        // 9000 section 13.2.1).
        (has_frames || packets.received.has_unacknowledged()).then_some(has_frames)
    }

    #[inline]
    fn due_in_data(&self, may_send: bool) -> Option<bool> {
        if !self.can_send_data() {
            return None;
        }
        let packets = &self.spaces.data;
        let may_send = may_send || packets.probes > 0;
        let has_frames =
            packets.probes > 0 || may_send && (self.streams.has_data() || self.has_control());
        let is_ack_due = packets.received.is_due() && self.keys.is_some();
        (has_frames || is_ack_due).then_some(has_frames)
    }

    /// Whether the next packet has frames whose datagrams must not be small (RFC 9000 section 8.2.1).
    fn needs_full_datagram(&self) -> bool {
        self.path.is_challenge_pending
            || self
                .path_responses
                .iter()
                .any(|response| response.remote == self.path.remote)
    }

    /// PATH_RESPONSE to another address, or PATH_CHALLENGE on the path before a migration.
    fn transmit_off_path(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.keys.is_none() || self.path_responses.is_empty() && self.previous_path.is_none() {
            return None;
        }
        let remote = self.path.remote;
        let other = self
            .path_responses
            .iter()
            .position(|response| response.remote != remote);
        if let Some(response) = other.and_then(|index| self.path_responses.remove(index)) {
            return self.transmit_response(now, &response, buffer);
        }
        // Both paths are challenged. If the migration was forged by somebody who copies packets to another address,
        // the client responds on the old one and the connection stays there (RFC 9000 section 9.3.3).
        let previous = self.previous_path.as_mut()?;
        let data = previous
            .challenge
            .filter(|_| previous.is_challenge_pending)?;
        previous.is_challenge_pending = false;
        let destination = (previous.remote, previous.local_ip);
        self.stats.frame_tx.path_challenge += 1;
        let size = usize::from(MIN_MTU);
        self.transmit_probe(now, kind::PATH_CHALLENGE, data, size, destination, buffer)
    }

    fn transmit_response(
        &mut self,
        now: Instant,
        response: &PathResponse,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        // The address is not validated (section 8.2.2).
        // An address that somebody has forged would otherwise get 1,200 bytes for a short challenge.
        let size = usize::from(MIN_MTU).min(response.received.saturating_mul(3));
        let destination = (response.remote, response.local_ip);
        self.stats.frame_tx.path_response += 1;
        self.transmit_probe(
            now,
            kind::PATH_RESPONSE,
            response.data,
            size,
            destination,
            buffer,
        )
    }

    /// Sends a packet that probes another path than the current one.
    fn transmit_probe(
        &mut self,
        now: Instant,
        kind: u8,
        data: [u8; 8],
        size: usize,
        destination: (SocketAddr, Option<IpAddr>),
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let frame = |buffer: &mut Vec<u8>| {
            buffer.push(kind);
            buffer.extend_from_slice(&data);
        };
        self.write_lone_packet(now, size, false, frame, buffer)?;
        Some(self.transmit(buffer, 1, None, None, destination))
    }

    /// Sends a packet that is larger than the path is known to pass (RFC 8899).
    fn transmit_mtu_probe(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        // Not before: a lost probe would look like a handshake that stalls, and an address that was not validated has
        // a limit of bytes.
        if !self.is_confirmed || !self.path.is_validated {
            return None;
        }
        let in_flight = self.spaces.bytes_in_flight();
        let size = self.path.mtu.poll_probe(now)?;
        let frame = |buffer: &mut Vec<u8>| buffer.push(kind::PING);
        self.write_lone_packet(now, size.into(), true, frame, buffer)?;
        self.path.congestion.on_sent(now, size.into(), in_flight);
        self.path.pacer.on_sent(size.into());
        self.path.sent += u64::from(size);
        let destination = (self.path.remote, self.path.local_ip);
        Some(self.transmit(buffer, 1, None, None, destination))
    }

    /// Writes a 1-RTT packet of this size with one frame, which is not sent again.
    fn write_lone_packet(
        &mut self,
        now: Instant,
        size: usize,
        is_mtu_probe: bool,
        frame: impl FnOnce(&mut Vec<u8>),
        buffer: &mut Vec<u8>,
    ) -> Option<()> {
        let keys = self.keys.as_ref()?;
        let packets = &self.spaces.data;
        let number = packets.sent.next_number();
        let begin = buffer.len();
        let start = SentHeader {
            kind: PacketKind::OneRtt,
            version: self.version,
            destination: self.remote_ids.active(),
            source: &self.local_id,
            token: &[],
            number,
            number_length: crate::packet::number_length(number, packets.largest_acknowledged),
            key_phase: keys.phase,
            is_greased: false,
        }
        .write(buffer);
        let frames_at = buffer.len();
        frame(buffer);
        let padded_end = (begin + size.saturating_sub(TAG)).max(start.least_end());
        if buffer.len() < padded_end {
            buffer.resize(padded_end, kind::PADDING);
        }
        let observed = self.observe_unsent((PacketKind::OneRtt, number), buffer.get(frames_at..));
        let keys = self.keys.as_mut()?;
        if !start.seal(buffer, &*keys.local_header, &*keys.local) {
            buffer.truncate(begin);
            return None;
        }
        if let Err(error) = keys.count_sent(number) {
            self.close_by_error(now, error);
            return None;
        }
        if let Some(observed) = observed {
            self.observe_sent(observed, buffer.len() - begin);
        }
        self.spaces.data.sent.push(SentPacket {
            time: now,
            size: u16::try_from(buffer.len() - begin).unwrap_or(u16::MAX),
            ack_eliciting: true,
            // A probe of a path is not in flight on the current one, so neither its loss nor its ACK changes that
            // window.
            in_flight: is_mtu_probe,
            is_mtu_probe,
            is_ecn_marked: false,
            frames: SentFrames::default(),
        });
        self.stats.path.sent_packets += 1;
        self.is_loss_timer_old = true;
        Some(())
    }

    /// Sends CONNECTION_CLOSE, which congestion control does not limit.
    fn transmit_close(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let mtu = usize::from(MIN_MTU);
        // The limit of three times the received bytes is for CONNECTION_CLOSE, too: a forged ClientHello with an error
        // gets one.
        let is_limited = self.path.is_amplification_limited(mtu as u64);
        let closing = self.closing.as_mut()?;
        if is_limited || !std::mem::take(&mut closing.is_pending) {
            return None;
        }
        // Packets that an error has left unfinished may be in it.
        buffer.clear();
        self.write_close_packets(mtu, buffer);
        if buffer.is_empty() {
            return None;
        }
        self.path.sent += buffer.len() as u64;
        let destination = (self.path.remote, self.path.local_ip);
        Some(self.transmit(buffer, 1, None, None, destination))
    }
}
