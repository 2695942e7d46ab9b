//! Loss detection and congestion control (RFC 9002), the size of packets (RFC 8899) and ECN validation (RFC 9000 section
//! 13.4.2).
//!
//! Nothing here knows frames, keys or sockets, and the time is always passed in. Each packet number space has a
//! [`SentPackets`]. Each path has an [`RttEstimator`], a [`ProbeTimeout`], a [`CongestionController`], a [`Pacer`], an
//! [`MtuDiscovery`] and an [`EcnValidation`].
//!
//! # An ACK frame arrives
//!
//! 1. An end of a range that is not below [`SentPackets::next_number`], or a range for which [`SentPackets::is_skipped`]
//!    is true, is an error of the peer (PROTOCOL_VIOLATION).
//! 2. [`SentPackets::acknowledge`] for each range, best the smallest first, so that stream data is acknowledged in order.
//!    Its callback passes each packet that is newly acknowledged to [`CongestionController::on_ack`] if it was
//!    [in flight](SentPacket::in_flight), to [`MtuDiscovery::on_probe_acked`] or [`MtuDiscovery::on_packet_acked`], and
//!    counts those that were [marked](SentPacket::is_ecn_marked).
//! 3. If the largest acknowledged packet is newly acknowledged and any newly acknowledged packet elicited the ACK,
//!    [`RttEstimator::update`] (section 5.1).
//! 4. If the largest acknowledged packet number has increased, [`EcnValidation::on_ack`]. If it returns true,
//!    [`CongestionController::on_loss`] with the time at which the largest acknowledged packet was sent and zero bytes.
//! 5. [`SentPackets::detect_lost`]. Its callback returns the frames for retransmission, and passes probes to
//!    [`MtuDiscovery::on_probe_lost`], others to [`MtuDiscovery::on_packet_lost`]. Then, for the [`LostPackets`] that it
//!    returns: [`CongestionController::on_loss`] if `newest_sent` is there, and [`MtuDiscovery::on_losses_end`]; if that
//!    returns true, [`CongestionController::on_mtu_update`].
//! 6. [`CongestionController::on_end_acks`], then [`Pacer::update`], and [`ProbeTimeout::reset`] unless the peer may not
//!    have validated the address of this client yet (section 6.2.1).
//!
//! # The timer
//!
//! It is set to the earliest [`LostPackets::next_loss_time`] of the spaces, or if there is none, to
//! [`ProbeTimeout::deadline`]. When a loss time has come, steps 5 and 6 are done for its space, without the reset. When a
//! probe timeout has come, [`ProbeTimeout::on_expired`], and one or two probes are sent in the space that it has named
//! (section 6.2.4). A loss time is of the last call of [`SentPackets::detect_lost`] for the space, and none if the space is
//! discarded by [`SentPackets::drain`].
//!
//! # Packets are sent
//!
//! [`Pacer::delay`], [`Pacer::budget`] and [`CongestionController::window`] once for a run of packets,
//! [`SentPackets::push`] for each packet, then once with the bytes of all that are in flight
//! [`CongestionController::on_sent`] and [`Pacer::on_sent`], and [`EcnValidation::on_sent`]. All packets of a run have the
//! same [time](SentPacket::time). After packets that do not elicit an ACK, [`SentPackets::pop_excess`] until it returns
//! `None`. CONNECTION_CLOSE, packets that are not in flight and probes of a probe timeout ignore window and pacer.
//!
//! # Persistent congestion (section 7.6)
//!
//! It is found by [`SentPackets::detect_lost`] in the packets of one space that one call declares lost, as section 7.6.2
//! allows: [`LostPackets::is_persistent`] compares the longest such period with the duration of
//! [`RttEstimator::persistent_congestion_duration`].

mod congestion;
mod ecn;
mod mtu;
mod pacer;
mod pto;
mod rtt;
mod sent_packets;
#[cfg(test)]
mod simulation;

pub use congestion::CongestionPhase;
pub(crate) use congestion::{Bbr, CongestionController, Cubic};
pub(crate) use ecn::{EcnCounts, EcnValidation};
pub(crate) use mtu::{DEFAULT_LARGEST, MtuDiscovery};
pub(crate) use pacer::Pacer;
pub(crate) use pto::ProbeTimeout;
pub(crate) use rtt::RttEstimator;
pub(crate) use sent_packets::{SentPacket, SentPackets, is_lost_by_reordering};
