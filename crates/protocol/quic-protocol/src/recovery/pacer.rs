//! Pacing (RFC 9002 section 7.7).

use std::time::{Duration, Instant};

use super::{CongestionController, RttEstimator};

/// The rate compared with a window in each round trip (section 7.7).
const GAIN: f64 = 1.25;
/// Seconds whose bytes may be sent at once.
const BURST: f64 = 0.002;
/// Packets that may always be sent at once, as the initial window (section 7.2).
const MIN_BURST: f64 = 10.0;
/// Packets that may be sent at once at any rate. To make them takes less than a millisecond.
const MAX_BURST: f64 = 256.0;
/// The part of a burst that is waited for. The rest is what may come together while a timer is late.
const AWAITED: f64 = 0.75;
/// Bytes that one system call sends at most. More are not waited for.
const SEGMENTATION_RUN: f64 = 64_000.0;
/// Seconds that are not worth a timer.
const MIN_WAIT: f64 = 0.000_05;
/// The longest time between two questions to the pacer.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Spreads packets over the round trip: a bucket of bytes that fills at the pacing rate.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Bytes per second.
    rate: f64,
    /// Bytes that the bucket holds at most.
    capacity: f64,
    /// Bytes in the bucket; below zero when more were sent.
    tokens: f64,
    filled: Instant,
}

impl Pacer {
    /// With a full bucket.
    pub(crate) fn new(
        now: Instant,
        controller: &dyn CongestionController,
        rtt: &RttEstimator,
        mtu: u16,
    ) -> Self {
        let mut pacer = Self {
            rate: f64::INFINITY,
            capacity: 0.0,
            tokens: 0.0,
            filled: now,
        };
        pacer.update(now, controller, rtt, mtu);
        pacer.tokens = pacer.capacity;
        pacer
    }

    /// Takes over the rate, which is that of the controller or that of its window: after all ACKs of a batch, and after
    /// the size of packets has changed.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        controller: &dyn CongestionController,
        rtt: &RttEstimator,
        mtu: u16,
    ) {
        // Filled at the old rate before the new one counts: the time that is past was one of the old rate.
        self.fill(now);
        self.rate = match controller.pacing_rate() {
            Some(rate) => rate.max(1) as f64,
            // Infinite if the round trip takes no time.
            None => GAIN * controller.window().max(1) as f64 / rtt.smoothed().as_secs_f64(),
        };
        let mtu = f64::from(mtu);
        // Of the burst depends how much a system call with UDP_SEGMENT carries: a bucket of one packet would pace
        // smoothly, and cost a system call and a timer for each.
        self.capacity = (self.rate * BURST).clamp(MIN_BURST * mtu, MAX_BURST * mtu);
        self.tokens = self.tokens.min(self.capacity);
    }

    /// When `bytes`, the size of a packet, may be sent; `None` if now.
    #[inline]
    pub(crate) fn delay(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        self.fill(now);
        let missing = (bytes as f64).min(self.capacity) - self.tokens;
        if missing <= self.rate * MIN_WAIT {
            return None;
        }
        // The wait is for most of a burst and not for one packet, so that each timer is worth a full run.
        let awaited = (self.capacity * AWAITED).min(SEGMENTATION_RUN) - self.tokens;
        let wait = Duration::try_from_secs_f64(awaited.max(missing) / self.rate)
            .map_or(MAX_WAIT, |wait| wait.min(MAX_WAIT));
        now.checked_add(wait)
    }

    /// Bytes that may be sent at once after [`delay`](Self::delay) has returned `None`. At least one packet may be sent
    /// even if this is less.
    pub(crate) fn budget(&self) -> u64 {
        self.tokens.max(self.rate * MIN_WAIT).max(0.0) as u64
    }

    /// So many bytes were sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    #[inline]
    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        if !elapsed.is_zero() {
            self.filled = now;
            self.tokens = (self.tokens + self.rate * elapsed.as_secs_f64()).min(self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::congestion::Cubic;
    use super::*;

    const MTU: u16 = 1_200;

    fn rtt(milliseconds: u64) -> RttEstimator {
        RttEstimator::with_initial(Duration::from_millis(milliseconds))
    }

    /// A pacer of a window, in packets.
    fn pacer(now: Instant, window: u64, milliseconds: u64) -> Pacer {
        let controller = Cubic::new(window * u64::from(MTU), MTU);
        Pacer::new(now, &controller, &rtt(milliseconds), MTU)
    }

    /// Packets that are sent until the pacer delays, and the time that it names.
    fn send(pacer: &mut Pacer, now: Instant) -> (u64, Instant) {
        let mut packets = 0;
        loop {
            if let Some(time) = pacer.delay(now, MTU.into()) {
                return (packets, time);
            }
            pacer.on_sent(MTU.into());
            packets += 1;
        }
    }

    #[test]
    fn the_initial_window_is_sent_at_once() {
        let now = Instant::now();
        let mut pacer = pacer(now, 10, 100);
        assert_eq!(pacer.budget(), 12_000);
        assert_eq!(send(&mut pacer, now).0, 10);
        assert_eq!(pacer.budget(), 7);
    }

    #[test]
    fn a_delay_lasts_until_most_of_a_burst_can_be_sent() {
        let now = Instant::now();
        // 1.25 packets in a millisecond: a burst of ten packets, of which seven and a half are waited for.
        let mut pacer = pacer(now, 100, 100);
        assert_eq!(send(&mut pacer, now), (10, now + Duration::from_millis(6)));
        let early = now + Duration::from_micros(5_999);
        assert!(pacer.delay(now, MTU.into()).is_some());
        let (packets, time) = send(&mut pacer, early);
        assert!((7..=8).contains(&packets), "{packets}");
        assert!(time > early);
    }

    #[test]
    fn time_that_a_timer_is_late_is_not_lost_up_to_a_burst() {
        let now = Instant::now();
        for (milliseconds, packets) in [(6, 7), (8, 10), (9, 10), (1_000, 10)] {
            let mut pacer = pacer(now, 100, 100);
            send(&mut pacer, now);
            let later = now + Duration::from_millis(milliseconds);
            assert_eq!(send(&mut pacer, later).0, packets);
        }
    }

    #[test]
    fn the_rate_over_a_long_time_is_a_quarter_above_the_window() {
        for (window, milliseconds) in [(10, 50), (100, 20), (1_000, 20), (3_000, 10)] {
            let start = Instant::now();
            let mut now = start;
            let mut pacer = pacer(now, window, milliseconds);
            let mut sent = 0;
            while now < start + Duration::from_secs(1) {
                let (packets, time) = send(&mut pacer, now);
                sent += packets;
                now = time;
            }
            let expected = window as f64 * 1.25 * 1_000.0 / milliseconds as f64;
            let share = sent as f64 / expected;
            assert!((0.95..1.05).contains(&share), "{share} {window}");
        }
    }

    #[test]
    fn delays_at_high_rates_are_below_a_millisecond_and_for_whole_runs() {
        let now = Instant::now();
        // 1 Gbit/s.
        let mut pacer = pacer(now, 1_667, 20);
        let (packets, time) = send(&mut pacer, now);
        assert!(packets > 200, "{packets}");
        let wait = time - now;
        assert!(wait < Duration::from_millis(1), "{wait:?}");
        let (packets, _) = send(&mut pacer, time);
        assert!((50..70).contains(&packets), "{packets}");
    }

    #[test]
    fn there_is_no_delay_without_a_round_trip_time() {
        let now = Instant::now();
        let mut pacer = pacer(now, 10, 0);
        for _ in 0..10_000 {
            assert_eq!(pacer.delay(now, MTU.into()), None);
            pacer.on_sent(MTU.into());
        }
    }

    #[test]
    fn many_questions_do_not_lose_parts_of_bytes() {
        let mut now = Instant::now();
        let mut pacer = pacer(now, 10, 1_000);
        send(&mut pacer, now);
        // 15 bytes in a millisecond.
        for _ in 0..81_000 {
            now += Duration::from_micros(1);
            pacer.delay(now, MTU.into());
        }
        assert_eq!(pacer.delay(now, MTU.into()), None);
    }

    #[test]
    fn a_packet_larger_than_a_burst_and_a_time_before_are_harmless() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut pacer = pacer(later, 1, 60_000);
        assert_eq!(pacer.delay(now, u64::MAX), None);
        pacer.on_sent(1 << 40);
        assert_eq!(pacer.delay(later, u64::MAX), Some(later + MAX_WAIT));
    }
}
