//! What happens when timers expire.

use std::time::Instant;

use crate::error::ConnectionEnd;
use crate::packet::Space;

use super::timers::ConnectionTimer;
use super::{Connection, ConnectionStage};

/// Packets that are sent when the probe timeout expires (RFC 9002 section 6.2.4).
const PROBES: u8 = 2;

impl Connection {
    /// Handles the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.observe_time(now);
        self.update_loss_timer();
        for timer in ConnectionTimer::ALL {
            if self.timers.take_expired(timer, now) {
                self.expire(now, timer);
            }
        }
    }

    fn expire(&mut self, now: Instant, timer: ConnectionTimer) {
        match timer {
            ConnectionTimer::Loss => {
                self.on_loss_timeout(now);
                self.observe_recovery();
            }
            ConnectionTimer::Idle => self.lose(now, ConnectionEnd::TimedOut),
            ConnectionTimer::KeepAlive => self.ping(),
            ConnectionTimer::Close => self.drain(),
            ConnectionTimer::PathValidation => self.on_path_validation_failed(),
            ConnectionTimer::KeyDiscard => {
                if let Some(keys) = &mut self.keys {
                    keys.discard_previous();
                }
            }
            ConnectionTimer::AckDelay => self.spaces.data.received.set_immediate(),
            ConnectionTimer::Shrink => self.shrink(),
            // Packets can be sent again.
            ConnectionTimer::Pacing => {}
        }
    }

    /// Returns memory that an idle connection does not need.
    fn shrink(&mut self) {
        self.spaces.data.sent.shrink();
        self.events.shrink_to(0);
        self.endpoint_events.shrink_to(0);
        self.path_responses.shrink_to(0);
        self.streams.shrink();
    }

    /// Restarts the idle timeout and the time until a PING.
    pub(super) fn restart_idle_timer(&mut self, now: Instant) {
        if self.is_closed() {
            return;
        }
        if let Some(timeout) = self.idle_timeout {
            // A timeout of less would end connections over slow paths before a lost packet is known to be lost (RFC
            // 9000 section 10.1).
            let timeout = timeout.max(self.three_probe_timeouts());
            self.timers
                .set(ConnectionTimer::Idle, now.checked_add(timeout));
        } else {
            self.timers.set(ConnectionTimer::Idle, None);
        }
        if let Some(interval) = self.config.keep_alive
            && self.state == ConnectionStage::Established
        {
            self.timers
                .set(ConnectionTimer::KeepAlive, now.checked_add(interval));
        }
    }

    /// Computes when packets are lost or a probe is sent (RFC 9002 appendix A.8).
    pub(super) fn update_loss_timer(&mut self) {
        if std::mem::take(&mut self.is_loss_timer_old) && !self.is_closed() {
            let at = self.loss_time().map(|(at, _)| at).or_else(|| {
                let (at, _) = self.probe_time()?;
                Some(at)
            });
            self.timers.set(ConnectionTimer::Loss, at);
        }
    }

    /// When the next packet is lost by time, and its space.
    fn loss_time(&self) -> Option<(Instant, Space)> {
        Space::ALL
            .into_iter()
            .filter_map(|space| Some((self.spaces.get(space)?.next_loss_time?, space)))
            .min_by_key(|(at, _)| *at)
    }

    /// When the probe timeout expires, and the space in which probes are sent.
    fn probe_time(&self) -> Option<(Instant, Space)> {
        if self.path.is_amplification_limited(1) {
            // Nothing could be sent. The next datagram of the client starts it again.
            return None;
        }
        let sent = Space::ALL.map(|space| {
            self.spaces
                .get(space)
                .and_then(|space| space.sent.last_ack_eliciting())
        });
        let ack_delay = self.is_confirmed.then(|| self.max_ack_delay());
        let deadline = self
            .probe_timeout
            .deadline(&self.path.rtt, sent, ack_delay)
            .and_then(|(at, space)| Some((at, Space::ALL.get(space).copied()?)));
        if deadline.is_some() || self.is_peer_validated {
            return deadline;
        }
        // The server may wait for bytes of this client (RFC 9002 section 6.2.2.1).
        let at = self
            .probe_timeout
            .deadline_without_packets(&self.path.rtt, self.probe_base)?;
        let space = match self.spaces.handshake {
            Some(_) => Space::Handshake,
            None => Space::Initial,
        };
        Some((at, space))
    }

    fn on_loss_timeout(&mut self, now: Instant) {
        self.is_loss_timer_old = true;
        // Losses before probes: a packet that is known to be lost is sent again, whereas a probe only asks (RFC 9002
        // appendix A.9).
        if let Some((_, space)) = self.loss_time() {
            self.detect_lost(now, space);
            self.path.update_pacer(now);
            return;
        }
        let Some((_, space)) = self.probe_time() else {
            return;
        };
        self.probe_timeout.on_expired();
        self.probe_base = now;
        let Some(packets) = self.spaces.get_mut(space) else {
            return;
        };
        packets.probes = PROBES;
        // Handshake data is sent again whole: a ClientHello or a flight of certificates is useless with a gap, and it
        // costs a round trip for each packet that is found out to be lost.
        packets.crypto_sent.send_all_again();
        // A path is validated within three probe timeouts. To find by a later acknowledgement that the challenge is lost
        // would take too long.
        if space == Space::Data {
            self.path.is_challenge_pending |= self.path.challenge.is_some();
        }
        self.probe_other_spaces(space);
        self.probe_streams();
    }

    /// Probes also have what is in flight in the other spaces (RFC 9002 section 6.2.4). Without it, a server whose window is
    /// full of Handshake packets could not repeat the ServerHello that its client needs to read them, as an Initial packet
    /// that was declared lost starts no timer. 1-RTT packets start no timer either before the client has HANDSHAKE_DONE: a
    /// request that was lost together with Finished would wait for a second timeout, and a server that has completed the
    /// handshake, which drops Handshake packets, would not learn that the address of the client has changed.
    fn probe_other_spaces(&mut self, probed: Space) {
        for level in [Space::Initial, Space::Handshake] {
            if level != probed
                && let Some(packets) = self.spaces.get_mut(level)
                && (packets.sent.has_ack_eliciting() || packets.crypto_sent.has_pending())
            {
                packets.probes = packets.probes.max(1);
                packets.crypto_sent.send_all_again();
            }
        }
        if self.can_send_data() && self.spaces.data.sent.has_ack_eliciting() {
            self.spaces.data.probes = self.spaces.data.probes.max(1);
        }
    }

    /// The probe of Application Data has data that the peer may lack, in place of a PING.
    fn probe_streams(&mut self) {
        if self.spaces.data.probes > 0
            && !self.streams.has_data()
            && let Some(oldest) = self.spaces.data.sent.oldest()
            && let Some(record) = oldest.frames.stream()
        {
            self.streams.on_lost(record);
        }
    }
}
