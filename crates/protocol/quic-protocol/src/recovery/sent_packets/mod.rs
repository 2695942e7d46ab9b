//! The sent packets of a packet number space, and which of them are lost (RFC 9002 section 6.1).

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::RttEstimator;

/// Later packets that are acknowledged before a packet is lost (section 6.1.1).
// RFC 9002 recommends three and forbids less: with less, slight reordering would look like loss.
const PACKET_THRESHOLD: u64 = 3;
/// Packets that do not elicit an ACK and that are remembered. A peer need not acknowledge them.
const MAX_NOT_ACK_ELICITING: usize = 256;
/// Skipped packet numbers that are remembered.
// The distance of skipped numbers doubles, so that few of them are in flight at a time.
const REMEMBERED_SKIPS: usize = 4;
/// Slots whose memory an idle connection keeps.
const IDLE_SLOTS: usize = 8;

/// Whether later packets that were acknowledged, and not the time, tell that a packet is lost.
pub(crate) fn is_lost_by_reordering(number: u64, largest_acked: u64) -> bool {
    largest_acked.saturating_sub(number) >= PACKET_THRESHOLD
}

/// A packet that is neither acknowledged nor lost. `F` is what the caller remembers of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentPacket<F> {
    /// When it was sent. No packet of the same space was sent later and has a smaller number.
    pub(crate) time: Instant,
    /// Its bytes, without those of UDP and IP.
    pub(crate) size: u16,
    /// Whether it has other frames than ACK, PADDING and CONNECTION_CLOSE.
    pub(crate) ack_eliciting: bool,
    /// Whether it counts for congestion control: it elicits an ACK or has PADDING.
    pub(crate) in_flight: bool,
    /// Whether it is a probe of a larger size, whose loss is no sign of congestion (RFC 8899 section 3).
    pub(crate) is_mtu_probe: bool,
    /// Whether it was sent as ECT(0).
    pub(crate) is_ecn_marked: bool,
    /// Its frames.
    pub(crate) frames: F,
}

#[derive(Debug)]
enum PacketSlot<F> {
    Sent(SentPacket<F>),
    /// Acknowledged or skipped, as is every slot after it until this number of slots.
    Vacant {
        run: u32,
    },
}

/// The packets of one packet number space that are neither acknowledged nor lost, and the packet numbers.
///
/// They are in a ring whose index is the packet number minus that of the oldest one, so that it needs no search and no
/// allocation per packet. Its size is bounded by the congestion window, and for packets that do not count for it by
/// [`pop_excess`](Self::pop_excess).
#[derive(Debug)]
pub(crate) struct SentPackets<F> {
    /// The first one, if there is any, is [`PacketSlot::Sent`].
    slots: VecDeque<PacketSlot<F>>,
    /// The packet number of the first slot, or the next one if there is none.
    base: u64,
    bytes_in_flight: u64,
    ack_eliciting: usize,
    not_ack_eliciting: usize,
    last_ack_eliciting: Option<Instant>,
    /// The last skipped packet numbers, [`u64::MAX`] where there is none.
    skipped: [u64; REMEMBERED_SKIPS],
}

/// What [`SentPackets::detect_lost`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostPackets {
    /// When the next packet is lost if it is not acknowledged before.
    pub(crate) next_loss_time: Option<Instant>,
    /// When the newest lost packet was sent that is a sign of congestion: one in flight that is no probe of a larger size.
    pub(crate) newest_sent: Option<Instant>,
    /// The bytes of the lost packets that are a sign of congestion.
    pub(crate) bytes: u64,
    /// The longest time between two lost packets that elicit ACKs, with none acknowledged between, of those that were
    /// sent after the first sample of the round-trip time.
    pub(crate) longest_period: Duration,
}

impl LostPackets {
    /// Whether they are persistent congestion (section 7.6).
    pub(crate) fn is_persistent(&self, rtt: &RttEstimator, max_ack_delay: Duration) -> bool {
        self.longest_period > rtt.persistent_congestion_duration(max_ack_delay)
    }
}

impl<F> SentPackets<F> {
    /// A space whose first packet number is zero.
    pub(crate) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            base: 0,
            bytes_in_flight: 0,
            ack_eliciting: 0,
            not_ack_eliciting: 0,
            last_ack_eliciting: None,
            skipped: [u64::MAX; REMEMBERED_SKIPS],
        }
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// The largest number of a packet that was sent or skipped.
    #[cfg(test)]
    pub(crate) fn largest_sent(&self) -> Option<u64> {
        self.next_number().checked_sub(1)
    }

    /// The oldest packet that is neither acknowledged nor lost.
    pub(crate) fn oldest(&self) -> Option<&SentPacket<F>> {
        match self.slots.front() {
            Some(PacketSlot::Sent(packet)) => Some(packet),
            Some(PacketSlot::Vacant { .. }) | None => None,
        }
    }

    /// Whether all packets are acknowledged or lost.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes of the packets that count for congestion control.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Whether a packet that elicits an ACK is neither acknowledged nor lost.
    pub(crate) fn has_ack_eliciting(&self) -> bool {
        self.ack_eliciting > 0
    }

    /// When the last packet that elicits an ACK was sent, while any such packet is neither acknowledged nor lost.
    pub(crate) fn last_ack_eliciting(&self) -> Option<Instant> {
        self.last_ack_eliciting.filter(|_| self.has_ack_eliciting())
    }

    /// Leaves the next packet number out. A peer that acknowledges it acknowledges packets that it has not received
    /// (RFC 9000 section 21.4).
    pub(crate) fn skip(&mut self) {
        self.skipped.rotate_right(1);
        self.skipped[0] = self.next_number();
        if self.slots.is_empty() {
            self.base += 1;
        } else {
            self.slots.push_back(PacketSlot::Vacant { run: 1 });
        }
    }

    /// Whether one of the last skipped packet numbers is in the range.
    pub(crate) fn is_skipped(&self, range: &RangeInclusive<u64>) -> bool {
        self.skipped.iter().any(|number| range.contains(number))
    }

    /// Adds the packet with the number [`next_number`](Self::next_number), which it returns.
    #[inline]
    pub(crate) fn push(&mut self, packet: SentPacket<F>) -> u64 {
        let number = self.next_number();
        if packet.in_flight {
            self.bytes_in_flight += u64::from(packet.size);
        }
        if packet.ack_eliciting {
            self.ack_eliciting += 1;
            self.last_ack_eliciting = Some(packet.time);
        } else {
            self.not_ack_eliciting += 1;
        }
        self.slots.push_back(PacketSlot::Sent(packet));
        number
    }

    /// The oldest packet, if too many are remembered that do not elicit an ACK. It is to be taken for lost, without a
    /// reaction of congestion control. To be called after such packets were sent.
    pub(crate) fn pop_excess(&mut self) -> Option<(u64, SentPacket<F>)> {
        (self.not_ack_eliciting > MAX_NOT_ACK_ELICITING)
            .then(|| self.pop_front())
            .flatten()
    }

    /// Removes the packets with these numbers and passes them, the oldest first. Takes time for those that are newly
    /// acknowledged only, if ranges begin where earlier ones did.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        range: RangeInclusive<u64>,
        on_acked: &mut impl FnMut(u64, SentPacket<F>),
    ) {
        let (start, end) = range.into_inner();
        if start <= self.base {
            while self.base <= end
                && let Some((number, packet)) = self.pop_front()
            {
                on_acked(number, packet);
            }
        } else if start < self.next_number() && start <= end {
            self.acknowledge_after_gap(start, end, on_acked);
        }
    }

    fn acknowledge_after_gap(
        &mut self,
        start: u64,
        end: u64,
        on_acked: &mut impl FnMut(u64, SentPacket<F>),
    ) {
        let first = (start - self.base) as usize;
        let last = (end.min(self.next_number() - 1) - self.base) as usize;
        let mut index = first;
        while index <= last
            && let Some(slot) = self.slots.get_mut(index)
        {
            match std::mem::replace(slot, PacketSlot::Vacant { run: 1 }) {
                PacketSlot::Sent(packet) => {
                    self.forget(&packet);
                    on_acked(self.base + index as u64, packet);
                    index += 1;
                }
                // Runs of acknowledged slots are stepped over in one step. Without them, a peer that repeats all its
                // ranges in each ACK would cost time for the whole window with every packet.
                PacketSlot::Vacant { run } => {
                    *slot = PacketSlot::Vacant { run };
                    index += run as usize;
                }
            }
        }
        if let Some(slot) = self.slots.get_mut(first) {
            let run = u32::try_from(index - first).unwrap_or(u32::MAX);
            *slot = PacketSlot::Vacant { run };
        }
    }

    /// Removes the packets that are lost and passes them, the oldest first (section 6.1): those that were sent three
    /// packets or [`RttEstimator::loss_delay`] before `largest_acked`.
    #[inline]
    pub(crate) fn detect_lost(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        largest_acked: u64,
        on_lost: &mut impl FnMut(u64, SentPacket<F>),
    ) -> LostPackets {
        // Nothing is older than what was acknowledged: the usual case without losses ends here, inlined.
        if self.base >= largest_acked {
            return LostPackets::default();
        }
        self.remove_lost(now, rtt, largest_acked, on_lost)
    }

    /// As numbers and times grow together, the lost packets are the oldest ones.
    fn remove_lost(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        largest_acked: u64,
        on_lost: &mut impl FnMut(u64, SentPacket<F>),
    ) -> LostPackets {
        let loss_delay = rtt.loss_delay();
        let mut lost = LostPackets::default();
        let mut next_number = None;
        let mut period_start: Option<Instant> = None;
        while self.base < largest_acked
            && let Some(PacketSlot::Sent(packet)) = self.slots.front()
        {
            let is_lost = is_lost_by_reordering(self.base, largest_acked)
                || now.saturating_duration_since(packet.time) >= loss_delay;
            if !is_lost {
                lost.next_loss_time = packet.time.checked_add(loss_delay);
                break;
            }
            let Some((number, packet)) = self.pop_front() else {
                break;
            };
            // An acknowledged packet between two lost ones ends the period (RFC 9002 section 7.6.2).
            if next_number.is_some_and(|next| self.has_acknowledged(next..number)) {
                period_start = None;
            }
            next_number = Some(number + 1);
            if packet.in_flight && !packet.is_mtu_probe {
                lost.newest_sent = Some(packet.time);
                lost.bytes += u64::from(packet.size);
            }
            if packet.ack_eliciting
                && !packet.is_mtu_probe
                && rtt.first_sample().is_some_and(|first| packet.time > first)
            {
                let start = *period_start.get_or_insert(packet.time);
                let period = packet.time.saturating_duration_since(start);
                lost.longest_period = lost.longest_period.max(period);
            }
            on_lost(number, packet);
        }
        lost
    }

    /// Whether a packet number between those of two lost packets was acknowledged, and not skipped.
    fn has_acknowledged(&self, numbers: std::ops::Range<u64>) -> bool {
        let skipped = self
            .skipped
            .iter()
            .filter(|number| numbers.contains(number))
            .count();
        numbers.end - numbers.start > skipped as u64
    }

    /// Removes all packets, as the keys of the space are discarded (section 6.4), 0-RTT is rejected, or all is sent again
    /// after a Retry packet. Packet numbers go on.
    pub(crate) fn drain(&mut self, on_removed: &mut impl FnMut(u64, SentPacket<F>)) {
        while let Some((number, packet)) = self.pop_front() {
            on_removed(number, packet);
        }
        self.last_ack_eliciting = None;
        self.shrink();
    }

    /// Returns memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink_to(IDLE_SLOTS);
    }

    #[inline]
    fn pop_front(&mut self) -> Option<(u64, SentPacket<F>)> {
        let Some(PacketSlot::Sent(packet)) = self.slots.pop_front() else {
            return None;
        };
        let number = self.base;
        self.base += 1;
        while let Some(PacketSlot::Vacant { .. }) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        self.forget(&packet);
        Some((number, packet))
    }

    #[inline]
    fn forget(&mut self, packet: &SentPacket<F>) {
        if packet.in_flight {
            self.bytes_in_flight -= u64::from(packet.size);
        }
        if packet.ack_eliciting {
            self.ack_eliciting -= 1;
        } else {
            self.not_ack_eliciting -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
