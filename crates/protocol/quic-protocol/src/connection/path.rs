//! A network path (RFC 9000 sections 8 and 9): its address, its congestion control and the size of its packets.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::config::{CongestionAlgorithm, TransportConfig};
use crate::recovery::{
    Bbr, CongestionController, Cubic, DEFAULT_LARGEST, EcnValidation, MtuDiscovery, Pacer,
    RttEstimator,
};

/// The size of packets that every path passes (RFC 9000 section 14).
pub(crate) const MIN_MTU: u16 = 1_200;
/// Bytes that may be sent for each byte that came from an address that is not validated (section 8.1).
const AMPLIFICATION: u64 = 3;

/// A network path.
pub(crate) struct NetworkPath {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    /// Whether the peer has proved that it receives packets at its address.
    pub(crate) is_validated: bool,
    /// Bytes of UDP payloads.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) rtt: RttEstimator,
    pub(crate) congestion: Box<dyn CongestionController>,
    pub(crate) pacer: Pacer,
    pub(crate) mtu: MtuDiscovery,
    pub(crate) ecn: EcnValidation,
    /// The first packet of Application Data that was sent on this path.
    pub(crate) first_number: u64,
    /// The data of PATH_CHALLENGE frames that were sent.
    pub(crate) challenge: Option<[u8; 8]>,
    /// Whether PATH_CHALLENGE has to be sent.
    pub(crate) is_challenge_pending: bool,
    /// Whether there was less to send than the window allows.
    pub(crate) is_app_limited: bool,
}

impl NetworkPath {
    pub(crate) fn new(
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        config: &TransportConfig,
        can_discover_mtu: bool,
    ) -> Self {
        let congestion: Box<dyn CongestionController> = match config.congestion {
            CongestionAlgorithm::Cubic => Box::new(Cubic::new(config.initial_window, MIN_MTU)),
            CongestionAlgorithm::Bbr => Box::new(Bbr::new(config.initial_window, MIN_MTU)),
        };
        let rtt = RttEstimator::new();
        Self {
            remote,
            local_ip,
            is_validated: false,
            sent: 0,
            received: 0,
            pacer: Pacer::new(now, &*congestion, &rtt, MIN_MTU),
            rtt,
            congestion,
            // Without the option that forbids the system to fragment, a probe always arrives and proves nothing.
            mtu: if can_discover_mtu {
                MtuDiscovery::new(DEFAULT_LARGEST)
            } else {
                MtuDiscovery::disabled()
            },
            ecn: EcnValidation::new(),
            first_number: 0,
            challenge: None,
            is_challenge_pending: false,
            // Until the first run is blocked by the window, nothing shows that the window is too small.
            is_app_limited: true,
        }
    }

    /// Whether these bytes would exceed what an unvalidated address may get.
    #[inline]
    pub(crate) fn is_amplification_limited(&self, bytes: u64) -> bool {
        !self.is_validated && self.sent + bytes > self.received.saturating_mul(AMPLIFICATION)
    }

    /// The bytes that an unvalidated address may still get.
    pub(crate) fn amplification_room(&self) -> u64 {
        let most = self.received.saturating_mul(AMPLIFICATION);
        most.saturating_sub(self.sent)
    }

    /// The probe timeout without backoff, and the time that the peer may delay an ACK.
    pub(crate) fn probe_timeout(&self, max_ack_delay: Duration) -> Duration {
        self.rtt.pto_base().saturating_add(max_ack_delay)
    }

    /// The size of packets has changed.
    pub(crate) fn on_mtu_changed(&mut self, now: Instant) {
        self.congestion.on_mtu_update(self.mtu.current());
        self.update_pacer(now);
    }

    pub(crate) fn update_pacer(&mut self, now: Instant) {
        let mtu = self.mtu.current();
        self.pacer.update(now, &*self.congestion, &self.rtt, mtu);
    }
}
