//! Acknowledgements and losses of sent packets (RFC 9000 section 13, RFC 9002).

use std::time::{Duration, Instant};

use crate::error::TransportError;
use crate::frame::Ack;
use crate::packet::Space;
use crate::recovery::SentPacket;

use super::Connection;
use super::record::{Control, SentFrames};

impl Connection {
    /// An ACK frame (RFC 9000 section 19.3).
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        space: Space,
        ack: &Ack<'_>,
    ) -> Result<(), TransportError> {
        let Some(packets) = self.spaces.get_mut(space) else {
            return Ok(());
        };
        // A peer that acknowledges what it has not received would make this end send faster than the path allows,
        // against others: the optimistic ACK (RFC 9000 section 21.4). Numbers are skipped for nothing else than to
        // find it.
        let is_unsent = ack.largest >= packets.sent.next_number()
            || ack.ranges().any(|range| packets.sent.is_skipped(&range));
        if is_unsent {
            return Err(TransportError::protocol_violation(
                "an acknowledgement of a packet that was not sent",
            ));
        }
        let mut acked = Acknowledged::default();
        // Without losses each ACK has one range: it allocates nothing.
        if ack.is_single_range() {
            if let Some(range) = ack.ranges().next() {
                self.acknowledge(now, space, range, ack.largest, &mut acked);
            }
        } else {
            let ranges: Vec<_> = ack.ranges().collect();
            // Ascending, as the ring of sent packets is: it drops acknowledged packets at its front.
            for range in ranges.into_iter().rev() {
                self.acknowledge(now, space, range, ack.largest, &mut acked);
            }
        }
        let Some(packets) = self.spaces.get_mut(space) else {
            return Ok(());
        };
        let is_newer = packets
            .largest_acknowledged
            .is_none_or(|largest| ack.largest > largest);
        if is_newer {
            packets.largest_acknowledged = Some(ack.largest);
        }
        // A sample is taken of the largest packet, if it is newly acknowledged, and if any of them was to be
        // acknowledged at once: an ACK of ACKs may come at any later time (RFC 9002 section 5.1).
        if let Some(sent) = acked.largest_sent.filter(|_| acked.any_ack_eliciting) {
            let delay = self.ack_delay(space, ack.delay);
            self.path
                .rtt
                .update(now, now.saturating_duration_since(sent), delay);
        }
        // Only ACKs that raise the largest number: others may be reordered, and their counts are smaller than what is
        // known (RFC 9000 section 13.4.2.1).
        if is_newer && self.path.ecn.on_ack(space.index(), acked.marked, ack.ecn) {
            let sent = acked.largest_sent.unwrap_or(now);
            // A CE mark is answered as a loss is, with no bytes that have to be sent again (RFC 9002 section 7.1).
            let is_event = self.path.congestion.on_loss(now, sent, false, 0);
            self.stats.path.congestion_events += u64::from(is_event);
        }
        if space == Space::Data
            && let Some(keys) = &mut self.keys
        {
            keys.on_acknowledged(ack.largest);
        }
        if acked.any {
            if space == Space::Handshake {
                // A server reads Handshake packets only of a client that it can reach, so its ACK ends the client's
                // anti-deadlock probes (RFC 9002 section 6.2.2.1).
                self.is_peer_validated = true;
            }
            if self.is_peer_validated {
                // A client that the server has not validated keeps its backoff: a server that takes long for the handshake
                // is not to be probed all the more often (RFC 9002 section 6.2.1).
                self.probe_timeout.reset();
            }
            self.probe_base = now;
        }
        // After the sample of the round-trip time, on which the threshold of time depends (RFC 9002 appendix A.7).
        self.detect_lost(now, space);
        let in_flight = self.spaces.bytes_in_flight();
        let path = &mut self.path;
        path.congestion
            // BBR models the path once for an ACK, with all packets of it, and not once for a packet.
            .on_end_acks(now, in_flight, path.is_app_limited);
        path.update_pacer(now);
        self.is_loss_timer_old = true;
        self.observe_recovery();
        Ok(())
    }

    #[inline]
    fn acknowledge(
        &mut self,
        now: Instant,
        space: Space,
        range: std::ops::RangeInclusive<u64>,
        largest: u64,
        acked: &mut Acknowledged,
    ) {
        let Some(packets) = self.spaces.get_mut(space) else {
            return;
        };
        let (path, streams) = (&mut self.path, &mut self.streams);
        let (received, crypto) = (&mut packets.received, &mut packets.crypto_sent);
        let mut has_mtu_changed = false;
        packets
            .sent
            .acknowledge(range, &mut |number, packet: SentPacket<SentFrames>| {
                acked.any = true;
                acked.any_ack_eliciting |= packet.ack_eliciting;
                acked.marked += u64::from(packet.is_ecn_marked);
                // Packets from before a migration say nothing about the round-trip time and the capacity of the new
                // path (RFC 9000 section 9.4).
                let is_of_path = space != Space::Data || number >= path.first_number;
                if number == largest && is_of_path {
                    acked.largest_sent = Some(packet.time);
                }
                if is_of_path {
                    if packet.in_flight {
                        let size = packet.size.into();
                        path.congestion.on_ack(
                            now,
                            packet.time,
                            size,
                            path.is_app_limited,
                            &path.rtt,
                        );
                    }
                    if packet.is_mtu_probe {
                        has_mtu_changed |= path.mtu.on_probe_acked(number, packet.size);
                    } else if space == Space::Data {
                        path.mtu.on_packet_acked(number, packet.size);
                    }
                }
                if let Some(acknowledged) = packet.frames.acknowledged() {
                    received.on_ack_acknowledged(acknowledged);
                }
                if let Some(stream) = packet.frames.stream() {
                    streams.on_acknowledged(stream);
                }
                if let Some(others) = packet.frames.take_others() {
                    for stream in others.streams {
                        streams.on_acknowledged(stream);
                    }
                    for control in others.stream_controls {
                        streams.on_control_acknowledged(control);
                    }
                    for range in others.crypto {
                        crypto.on_acknowledged(range);
                    }
                }
            });
        if has_mtu_changed {
            self.path.on_mtu_changed(now);
        }
    }

    /// The time that the peer has spent before it sent an ACK (RFC 9002 section 5.3).
    fn ack_delay(&self, space: Space, delay: u64) -> Duration {
        // A peer does not delay ACKs of the handshake on purpose (RFC 9002 section 5.3).
        if space != Space::Data {
            return Duration::ZERO;
        }
        let micros = delay.saturating_mul(1 << self.peer.ack_delay_exponent);
        let delay = Duration::from_micros(micros);
        // Until the handshake is confirmed, a peer may wait longer than it has announced, for its keys (RFC 9002
        // section 5.3).
        if self.is_confirmed {
            // A peer that claims long delays would otherwise make the estimate of the path too short.
            delay.min(self.max_ack_delay())
        } else {
            delay
        }
    }

    /// Finds the packets of a space that are lost (RFC 9002 section 6.1).
    pub(super) fn detect_lost(&mut self, now: Instant, space: Space) {
        let Some(packets) = self.spaces.get_mut(space) else {
            return;
        };
        let Some(largest) = packets.largest_acknowledged else {
            return;
        };
        // A copy, as the closure below borrows the path; it has a few durations.
        let rtt = self.path.rtt.clone();
        let mut lost_frames = Vec::new();
        let is_observed = self.observation.is_some();
        let mut observed = Vec::new();
        let mut marked = 0;
        let mut any_of_path = false;
        let (path, stats) = (&mut self.path, &mut self.stats.path);
        let lost = packets
            .sent
            .detect_lost(now, &rtt, largest, &mut |number, packet| {
                marked += u64::from(packet.is_ecn_marked);
                if is_observed {
                    observed.push((number, packet.is_mtu_probe));
                }
                if packet.is_mtu_probe {
                    // The loss of a probe is expected, and no sign of congestion (RFC 9000 section 14.4).
                    path.mtu.on_probe_lost();
                } else {
                    stats.lost_packets += 1;
                    any_of_path |= space != Space::Data || number >= path.first_number;
                    if space == Space::Data && number >= path.first_number {
                        path.mtu.on_packet_lost(number, packet.size);
                    }
                }
                lost_frames.push(packet.frames);
            });
        packets.next_loss_time = lost.next_loss_time;
        if is_observed {
            self.observe_lost(space, largest, &observed);
        }
        for frames in lost_frames {
            self.on_frames_lost(space, frames);
        }
        // What is lost of a path before a migration says nothing about this one.
        if let Some(sent) = lost.newest_sent.filter(|_| any_of_path) {
            let is_persistent = lost.is_persistent(&rtt, self.max_ack_delay());
            let congestion = &mut self.path.congestion;
            let is_event = congestion.on_loss(now, sent, is_persistent, lost.bytes);
            self.stats.path.congestion_events += u64::from(is_event);
        }
        if marked > 0 {
            self.path.ecn.on_lost(marked);
        }
        if self.path.mtu.on_losses_end(now) {
            self.path.on_mtu_changed(now);
        }
    }

    /// Schedules those frames of a lost packet again that are still needed.
    pub(super) fn on_frames_lost(&mut self, space: Space, frames: SentFrames) {
        if let Some(stream) = frames.stream() {
            self.streams.on_lost(stream);
        }
        let Some(others) = frames.take_others() else {
            return;
        };
        for stream in others.streams {
            self.streams.on_lost(stream);
        }
        for control in others.stream_controls {
            self.streams.on_control_lost(control);
        }
        for control in others.controls {
            match control {
                Control::HandshakeDone => self.is_handshake_done_pending = true,
                Control::NewToken => self.is_new_token_pending = true,
                Control::NewConnectionId(sequence) => self.local_ids.on_lost(sequence),
                // It waits again, so there is room for it.
                Control::RetireConnectionId(sequence) => {
                    let _ = self.remote_ids.retire(sequence);
                }
                Control::PathChallenge => {
                    self.path.is_challenge_pending = self.path.challenge.is_some();
                }
            }
        }
        if let Some(packets) = self.spaces.get_mut(space) {
            for range in others.crypto {
                packets.crypto_sent.on_lost(range);
            }
        }
    }
}

/// What an ACK frame acknowledges for the first time.
#[derive(Debug, Default)]
struct Acknowledged {
    any: bool,
    any_ack_eliciting: bool,
    /// Packets that were sent as ECT(0).
    marked: u64,
    /// When the largest one was sent.
    largest_sent: Option<Instant>,
}
