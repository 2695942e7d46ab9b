//! The events of a connection for its observer, if there is one.

use std::time::Instant;

use crate::connection_id::ConnectionId;
use crate::observer::{
    ConnectionObserver, DropReason, KeyUpdateReason, LossReason, ObservedEnd, ObservedEvent,
    ObservedFrame, ObservedPacket, ObservedParameters, RecoveryMetrics,
};
use crate::packet::{PacketKind, Space};
use crate::recovery::CongestionPhase;
use crate::transport_parameters::TransportParameters;

use super::Connection;
use super::receive::ReceivedPacket;

/// The observer, and the last values that it got.
pub(super) struct Observation {
    observer: Box<dyn ConnectionObserver>,
    /// The time of the input that is handled.
    now: Instant,
    key_phase: bool,
    key_updates: u64,
    congestion: Option<CongestionPhase>,
    metrics: Option<RecoveryMetrics>,
    is_closed: bool,
}

/// A packet that is about to be encrypted.
pub(super) struct UnsentPacket {
    kind: PacketKind,
    number: u64,
    frames: Vec<ObservedFrame>,
}

impl Observation {
    pub(super) fn new(now: Instant, observer: Box<dyn ConnectionObserver>) -> Box<Self> {
        Box::new(Self {
            observer,
            now,
            key_phase: false,
            key_updates: 0,
            congestion: None,
            metrics: None,
            is_closed: false,
        })
    }

    fn emit(&mut self, event: ObservedEvent) {
        self.observer.on_event(self.now, event);
    }
}

// Each function begins with the one branch that a connection without an observer costs.
impl Connection {
    /// An input comes at this time.
    #[inline]
    pub(super) fn observe_time(&mut self, now: Instant) {
        if let Some(observation) = &mut self.observation {
            observation.now = now;
        }
    }

    /// The connection begins, with these parameters of this end.
    pub(super) fn observe_start(&mut self, local: &TransportParameters, remote_id: ConnectionId) {
        if let Some(observation) = &mut self.observation {
            observation.emit(ObservedEvent::Started {
                version: self.version,
                remote: self.path.remote,
                local_id: self.local_id,
                remote_id,
            });
            observation.emit(ObservedEvent::ParametersSet {
                is_local: true,
                parameters: Box::new(ObservedParameters::of(local)),
            });
        }
    }

    pub(super) fn observe_peer_parameters(&mut self) {
        if let Some(observation) = &mut self.observation {
            observation.emit(ObservedEvent::ParametersSet {
                is_local: false,
                parameters: Box::new(ObservedParameters::of(&self.peer)),
            });
        }
    }

    /// The frames of a packet that is about to be encrypted in its place.
    #[inline]
    pub(super) fn observe_unsent(
        &self,
        (kind, number): (PacketKind, u64),
        payload: Option<&[u8]>,
    ) -> Option<UnsentPacket> {
        self.observation.as_ref()?;
        Some(UnsentPacket {
            kind,
            number,
            frames: ObservedFrame::all(payload.unwrap_or_default()),
        })
    }

    /// The packet was encrypted.
    pub(super) fn observe_sent(&mut self, packet: UnsentPacket, size: usize) {
        let UnsentPacket {
            kind,
            number,
            frames,
        } = packet;
        self.observe_key_phase(KeyUpdateReason::Local);
        if let Some(observation) = &mut self.observation {
            observation.emit(ObservedEvent::PacketSent(ObservedPacket {
                kind,
                number: Some(number),
                size,
                destination: *self.remote_ids.active(),
                source: (kind != PacketKind::OneRtt).then_some(self.local_id),
                frames,
            }));
        }
    }

    #[inline]
    pub(super) fn observe_received(&mut self, packet: &ReceivedPacket<'_>) {
        if let Some(observation) = &mut self.observation {
            let is_long = packet.kind != PacketKind::OneRtt;
            observation.emit(ObservedEvent::PacketReceived(ObservedPacket {
                kind: packet.kind,
                number: Some(packet.number),
                size: packet.size,
                destination: packet.destination,
                source: is_long.then_some(packet.packet_source),
                frames: ObservedFrame::all(packet.payload),
            }));
        }
    }

    /// Retry or Version Negotiation came.
    pub(super) fn observe_received_unnumbered(&mut self, packet: &crate::packet::Packet<'_>) {
        if let Some(observation) = &mut self.observation {
            observation.emit(ObservedEvent::PacketReceived(ObservedPacket {
                kind: packet.kind,
                number: None,
                size: packet.bytes.len(),
                destination: packet.destination,
                source: Some(packet.source),
                frames: Vec::new(),
            }));
        }
    }

    #[inline]
    pub(super) fn observe_dropped(
        &mut self,
        kind: Option<PacketKind>,
        size: usize,
        reason: DropReason,
    ) {
        if let Some(observation) = &mut self.observation {
            observation.emit(ObservedEvent::PacketDropped { kind, size, reason });
        }
    }

    /// Packets of a space are lost: their numbers, and whether they were probes of a larger size.
    pub(super) fn observe_lost(&mut self, space: Space, largest: u64, lost: &[(u64, bool)]) {
        let kind = match space {
            Space::Initial => PacketKind::Initial,
            Space::Handshake => PacketKind::Handshake,
            Space::Data if self.keys.is_some() => PacketKind::OneRtt,
            Space::Data => PacketKind::ZeroRtt,
        };
        let Some(observation) = &mut self.observation else {
            return;
        };
        for &(number, is_mtu_probe) in lost {
            let is_reordering = crate::recovery::is_lost_by_reordering(number, largest);
            observation.emit(ObservedEvent::PacketLost {
                kind,
                number,
                reason: if is_reordering {
                    LossReason::Reordering
                } else {
                    LossReason::Time
                },
                is_mtu_probe,
            });
        }
    }

    /// Loss detection or congestion control may have new values.
    #[inline]
    pub(super) fn observe_recovery(&mut self) {
        if self.observation.is_some() {
            self.observe_metrics();
        }
    }

    fn observe_metrics(&mut self) {
        let Some(observation) = &mut self.observation else {
            return;
        };
        let (path, rtt) = (&self.path, &self.path.rtt);
        let metrics = RecoveryMetrics {
            min_rtt: rtt.min(),
            smoothed_rtt: rtt.smoothed(),
            latest_rtt: rtt.latest(),
            rtt_variance: rtt.variance(),
            pto_count: self.probe_timeout.count(),
            congestion_window: path.congestion.window(),
            bytes_in_flight: self.spaces.bytes_in_flight(),
        };
        if observation.metrics.replace(metrics) != Some(metrics) {
            observation.emit(ObservedEvent::MetricsUpdated(metrics));
        }
        let new = path.congestion.phase();
        let old = observation.congestion.replace(new);
        if old != Some(new) {
            observation.emit(ObservedEvent::CongestionStateUpdated { old, new });
        }
    }

    /// The handshake has made keys.
    pub(super) fn observe_keys(&mut self, kind: PacketKind) {
        if let Some(observation) = &mut self.observation {
            observation.emit(ObservedEvent::KeyUpdated {
                kind,
                phase: 0,
                reason: KeyUpdateReason::Tls,
            });
        }
    }

    /// The keys of 1-RTT packets may have been updated.
    #[inline]
    pub(super) fn observe_key_phase(&mut self, reason: KeyUpdateReason) {
        if let Some(observation) = &mut self.observation
            && let Some(keys) = &self.keys
            && keys.phase != observation.key_phase
        {
            observation.key_phase = keys.phase;
            observation.key_updates += 1;
            let phase = observation.key_updates;
            observation.emit(ObservedEvent::KeyUpdated {
                kind: PacketKind::OneRtt,
                phase,
                reason,
            });
        }
    }

    /// The connection is closed or lost. Only the first reason is an event.
    pub(super) fn observe_end(&mut self, end: impl FnOnce() -> ObservedEnd) {
        if let Some(observation) = &mut self.observation
            && !std::mem::replace(&mut observation.is_closed, true)
        {
            observation.emit(ObservedEvent::Closed(end()));
        }
    }
}
