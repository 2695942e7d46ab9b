//! Estimation of the round-trip time (RFC 9002 section 5).

use std::time::{Duration, Instant};

/// The least duration of timers (section 6.1.2).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);
/// The round-trip time before the first sample (section 6.2.2).
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(333);
/// Probe timeouts in which all packets are lost in persistent congestion (section 7.6.1).
const PERSISTENT_CONGESTION_THRESHOLD: u32 = 3;

/// The round-trip time of a path.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    latest: Duration,
    smoothed: Duration,
    variance: Duration,
    min: Duration,
    /// When the first sample was taken.
    first_sample: Option<Instant>,
}

impl RttEstimator {
    /// A path without samples.
    pub(crate) fn new() -> Self {
        Self::with_initial(INITIAL_ROUND_TRIP)
    }

    /// A path without samples whose round trip is assumed to take this time, as that of a path before to the same peer.
    pub(crate) fn with_initial(round_trip: Duration) -> Self {
        Self {
            latest: round_trip,
            smoothed: round_trip,
            variance: round_trip / 2,
            min: round_trip,
            first_sample: None,
        }
    }

    /// Takes a sample: `latest` since the largest acknowledged packet was sent, of which the peer has spent `ack_delay`
    /// before it sent the ACK. The caller limits `ack_delay` by the `max_ack_delay` of the peer once the handshake is
    /// confirmed, and passes zero for Initial packets (section 5.3).
    pub(crate) fn update(&mut self, now: Instant, latest: Duration, ack_delay: Duration) {
        self.latest = latest;
        // The first sample replaces the assumed time at once: averaged into 333 ms it would take twenty round trips to
        // be forgotten.
        if self.first_sample.is_none() {
            self.first_sample = Some(now);
            self.min = latest;
            self.smoothed = latest;
            self.variance = latest / 2;
            return;
        }
        self.min = self.min.min(latest);
        let adjusted = match latest.checked_sub(ack_delay) {
            // A delay that would make the path faster than it ever was is claimed, not true (RFC 9002 section 5.3).
            Some(adjusted) if adjusted >= self.min => adjusted,
            _ => latest,
        };
        let difference = self.smoothed.abs_diff(adjusted);
        self.variance = (self.variance.saturating_mul(3).saturating_add(difference)) / 4;
        self.smoothed = (self.smoothed.saturating_mul(7).saturating_add(adjusted)) / 8;
    }

    /// The last sample, without any adjustment.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// The smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The variation of the round-trip time, `rttvar`.
    pub(crate) fn variance(&self) -> Duration {
        self.variance
    }

    /// The least sample.
    pub(crate) fn min(&self) -> Duration {
        self.min
    }

    /// When the first sample was taken.
    pub(crate) fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    /// The time after which a packet is lost if a later one was acknowledged (section 6.1.2): 9/8 round trips.
    pub(crate) fn loss_delay(&self) -> Duration {
        // The larger of both: a path that has become slower must not look like one that loses packets (section 6.1.2).
        let round_trip = self.latest.max(self.smoothed);
        round_trip.saturating_add(round_trip / 8).max(GRANULARITY)
    }

    /// The probe timeout without backoff and without the `max_ack_delay` of the peer (section 6.2.1).
    pub(crate) fn pto_base(&self) -> Duration {
        let variance = self.variance.saturating_mul(4).max(GRANULARITY);
        self.smoothed.saturating_add(variance)
    }

    /// The longest time between two lost packets, with none acknowledged between, that is not persistent congestion
    /// (section 7.6.1). `max_ack_delay` is that of the peer, in every packet number space.
    pub(crate) fn persistent_congestion_duration(&self, max_ack_delay: Duration) -> Duration {
        self.pto_base()
            .saturating_add(max_ack_delay)
            .saturating_mul(PERSISTENT_CONGESTION_THRESHOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_sample_replaces_the_initial_values() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.smoothed(), ms(333));
        assert_eq!(rtt.pto_base(), ms(999));
        assert_eq!(rtt.first_sample(), None);
        let now = Instant::now();
        rtt.update(now, ms(100), ms(50));
        assert_eq!(rtt.first_sample(), Some(now));
        assert_eq!(
            (rtt.latest(), rtt.smoothed(), rtt.variance(), rtt.min()),
            (ms(100), ms(100), ms(50), ms(100))
        );
        rtt.update(now + ms(1), ms(200), ms(0));
        assert_eq!(rtt.first_sample(), Some(now));
    }

    #[test]
    fn the_delay_of_an_ack_is_subtracted_down_to_the_least_sample() {
        for (ack_delay, adjusted) in [(19, 101), (20, 100), (21, 120), (120, 120), (121, 120)] {
            let mut rtt = RttEstimator::new();
            let now = Instant::now();
            rtt.update(now, ms(100), ms(0));
            rtt.update(now, ms(120), ms(ack_delay));
            assert_eq!(rtt.smoothed(), (ms(100) * 7 + ms(adjusted)) / 8);
            assert_eq!(rtt.variance(), (ms(50) * 3 + ms(adjusted - 100)) / 4);
            assert_eq!(rtt.min(), ms(100));
        }
    }

    #[test]
    fn the_least_sample_counts_before_its_ack_delay_is_subtracted() {
        let mut rtt = RttEstimator::new();
        let now = Instant::now();
        rtt.update(now, ms(100), ms(0));
        rtt.update(now, ms(80), ms(10));
        assert_eq!(rtt.min(), ms(80));
        assert_eq!(rtt.smoothed(), (ms(100) * 7 + ms(80)) / 8);
    }

    #[test]
    fn a_packet_is_lost_after_nine_eighths_of_the_larger_round_trip() {
        let mut rtt = RttEstimator::new();
        let now = Instant::now();
        rtt.update(now, ms(80), ms(0));
        assert_eq!(rtt.loss_delay(), ms(90));
        rtt.update(now, ms(160), ms(0));
        assert_eq!(rtt.loss_delay(), ms(180));
        rtt.update(now, ms(8), ms(0));
        assert_eq!(rtt.loss_delay(), rtt.smoothed() + rtt.smoothed() / 8);
    }

    #[test]
    fn timers_take_at_least_a_millisecond() {
        let mut rtt = RttEstimator::new();
        let now = Instant::now();
        rtt.update(now, Duration::from_micros(80), ms(0));
        assert_eq!(rtt.loss_delay(), ms(1));
        assert_eq!(rtt.pto_base(), Duration::from_micros(1_080));
        assert_eq!(
            rtt.persistent_congestion_duration(ms(25)),
            Duration::from_micros(3 * 26_080)
        );
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let mut rtt = RttEstimator::with_initial(Duration::MAX);
        let now = Instant::now();
        rtt.update(now, Duration::MAX, Duration::MAX);
        rtt.update(now, Duration::MAX, Duration::ZERO);
        assert_eq!(rtt.loss_delay(), Duration::MAX);
        assert_eq!(
            rtt.persistent_congestion_duration(Duration::MAX),
            Duration::MAX
        );
    }
}
