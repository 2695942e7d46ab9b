//! Congestion controllers (RFC 9002 section 7).

use std::time::Instant;

use super::RttEstimator;

mod bbr;
mod cubic;

pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;

/// What a congestion controller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionPhase {
    /// The window grows by what is acknowledged, until a first loss. BBR: startup.
    SlowStart,
    /// CUBIC: the window grows slowly.
    CongestionAvoidance,
    /// BBR: the queue that startup has filled is emptied.
    Drain,
    /// BBR: the bandwidth is measured.
    ProbeBandwidth,
    /// BBR: the least round-trip time is measured.
    ProbeRtt,
}

/// How many bytes of a path may be in flight, and how fast they are sent.
pub(crate) trait CongestionController: Send {
    /// Packets were sent at this time, of which `bytes` count for congestion control. `in_flight`: the bytes in flight before them.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64);
    /// A packet in flight is acknowledged. `sent` is when it was sent. `app_limited`: the connection had less to send than
    /// the window allowed.
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    );
    /// All packets of an ACK frame were passed to [`on_ack`](Self::on_ack), and those lost to [`on_loss`](Self::on_loss).
    /// `in_flight` are the bytes that are still in flight.
    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool);
    /// Packets are lost, or marked by the path (zero bytes). `sent` is when the newest one was sent. Returns whether a
    /// recovery period begins: the losses of one may be told by several ACK frames (RFC 9002 section 7.3.2).
    fn on_loss(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent: bool,
        lost_bytes: u64,
    ) -> bool;
    /// The size of packets has changed.
    fn on_mtu_update(&mut self, mtu: u16);
    /// What it does now.
    fn phase(&self) -> CongestionPhase;
    /// The bytes that may be in flight.
    fn window(&self) -> u64;
    /// Bytes per second, if the controller sets them. Otherwise, the window is spread over a round trip.
    fn pacing_rate(&self) -> Option<u64>;
    /// A copy for a path that is tried.
    fn clone_box(&self) -> Box<dyn CongestionController>;
}
