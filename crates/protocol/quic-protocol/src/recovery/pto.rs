//! The probe timeout (RFC 9002 section 6.2).

use std::time::{Duration, Instant};

use super::RttEstimator;

/// Doublings of the timeout.
// The idle timeout ends the connection long before; the bound is against an overflow.
const MAX_BACKOFF: u32 = 16;

/// How often the probe timeout has expired without an ACK since.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeTimeout {
    count: u32,
}

impl ProbeTimeout {
    /// When it expires, and the index of the packet number space that a probe is sent in (section 6.2.1, appendix A.8).
    ///
    /// For the spaces Initial, Handshake and Application Data, `last_ack_eliciting` is
    /// [`SentPackets::last_ack_eliciting`](super::SentPackets::last_ack_eliciting). `max_ack_delay` is that of the peer,
    /// `None` until the handshake is confirmed, as there is no probe timeout for Application Data before.
    pub(crate) fn deadline(
        &self,
        rtt: &RttEstimator,
        last_ack_eliciting: [Option<Instant>; 3],
        max_ack_delay: Option<Duration>,
    ) -> Option<(Instant, usize)> {
        let ack_delays = [Some(Duration::ZERO), Some(Duration::ZERO), max_ack_delay];
        last_ack_eliciting
            .into_iter()
            .zip(ack_delays)
            .enumerate()
            .filter_map(|(space, (sent, ack_delay))| {
                let timeout = self.backed_off(rtt.pto_base().saturating_add(ack_delay?));
                Some((sent?.checked_add(timeout)?, space))
            })
            .min_by_key(|(time, _)| *time)
    }

    /// When it expires for a client without packets in flight whose address the server may not have validated yet
    /// (section 6.2.2.1). `now` is when the last packet was acknowledged or discarded.
    pub(crate) fn deadline_without_packets(
        &self,
        rtt: &RttEstimator,
        now: Instant,
    ) -> Option<Instant> {
        now.checked_add(self.backed_off(rtt.pto_base()))
    }

    fn backed_off(&self, timeout: Duration) -> Duration {
        timeout.saturating_mul(1 << self.count.min(MAX_BACKOFF))
    }

    /// How often it has expired since it was reset.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// It has expired: the next one takes twice the time.
    pub(crate) fn on_expired(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// A packet is acknowledged, or the keys of a space are discarded.
    pub(crate) fn reset(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A probe timeout of 300 ms.
    fn rtt() -> RttEstimator {
        RttEstimator::with_initial(ms(100))
    }

    #[test]
    fn the_space_whose_timeout_is_the_earliest_is_probed() {
        let now = Instant::now();
        let pto = ProbeTimeout::default();
        let at = |milliseconds| Some(now + ms(milliseconds));
        let ack_delay = Some(ms(25));
        for (sent, ack_delay, deadline) in [
            ([None, None, None], ack_delay, None),
            ([at(0), None, None], ack_delay, Some((300, 0))),
            ([at(2), at(1), None], ack_delay, Some((301, 1))),
            ([None, None, at(0)], ack_delay, Some((325, 2))),
            ([None, None, at(0)], None, None),
            ([None, at(24), at(0)], ack_delay, Some((324, 1))),
            ([None, at(25), at(0)], ack_delay, Some((325, 1))),
            ([None, at(26), at(0)], ack_delay, Some((325, 2))),
            ([None, at(26), at(0)], None, Some((326, 1))),
        ] {
            let deadline = deadline.map(|(time, space)| (now + ms(time), space));
            assert_eq!(pto.deadline(&rtt(), sent, ack_delay), deadline);
        }
    }

    #[test]
    fn each_expiry_doubles_the_timeout_with_the_ack_delay() {
        let now = Instant::now();
        let mut pto = ProbeTimeout::default();
        for count in 0..20 {
            assert_eq!(pto.count(), count);
            let factor = 1 << count.min(16);
            let deadline = pto.deadline(&rtt(), [None, None, Some(now)], Some(ms(25)));
            assert_eq!(deadline, Some((now + ms(325) * factor, 2)));
            let deadline = pto.deadline_without_packets(&rtt(), now);
            assert_eq!(deadline, Some(now + ms(300) * factor));
            pto.on_expired();
        }
        pto.reset();
        assert_eq!(pto.count(), 0);
    }

    #[test]
    fn a_time_out_of_range_is_none() {
        let now = Instant::now();
        let rtt = RttEstimator::with_initial(Duration::MAX);
        let pto = ProbeTimeout::default();
        assert_eq!(pto.deadline(&rtt, [Some(now); 3], None), None);
        assert_eq!(pto.deadline_without_packets(&rtt, now), None);
    }
}
