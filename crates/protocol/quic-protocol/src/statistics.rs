//! Counters of a connection.

use std::time::Duration;

/// Datagrams in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Runs of datagrams that were sent, or datagrams that were received.
    pub ios: u64,
}

/// Frames in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameStats {
    /// PATH_CHALLENGE frames.
    pub path_challenge: u64,
    /// PATH_RESPONSE frames.
    pub path_response: u64,
}

/// The current path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStats {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The congestion window in bytes.
    pub cwnd: u64,
    /// Recovery periods that began: a loss or a mark begins one, and those of packets that were sent before belong to it
    /// (RFC 9002 section 7.3.2).
    pub congestion_events: u64,
    /// Packets that were lost, without probes of the path MTU.
    pub lost_packets: u64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// The most bytes of a UDP payload.
    pub current_mtu: u16,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Datagrams that were sent.
    pub udp_tx: UdpStats,
    /// Datagrams that were received.
    pub udp_rx: UdpStats,
    /// Frames that were sent.
    pub frame_tx: FrameStats,
    /// Frames that were received.
    pub frame_rx: FrameStats,
    /// The current path.
    pub path: PathStats,
}
