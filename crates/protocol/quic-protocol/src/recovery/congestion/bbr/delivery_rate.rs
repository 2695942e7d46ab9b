//! Estimation of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Measures how fast packets are delivered: the bytes that are acknowledged between the time when a packet is sent and
/// that when it is acknowledged.
///
/// The state when a packet was sent is kept once for all packets of that time.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryRate {
    /// All bytes that were acknowledged.
    delivered: u64,
    delivered_time: Option<Instant>,
    /// When the newest acknowledged packet was sent, or the first after nothing was in flight.
    first_sent: Option<Instant>,
    /// Until more bytes are delivered, packets are limited by the application; zero if they are not.
    app_limited_until: u64,
    /// In the order of their times.
    runs: VecDeque<SentRun>,
    /// The newest run of which packets are acknowledged, in the present batch.
    acked: Option<(SentRun, Instant)>,
}

/// The state when packets were sent.
#[derive(Clone, Copy, Debug)]
struct SentRun {
    time: Instant,
    first_sent: Instant,
    delivered: u64,
    delivered_time: Instant,
    is_app_limited: bool,
}

/// What the packets of one batch of ACKs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateSample {
    /// Bytes per second, if the time is long enough to measure them.
    pub(super) rate: Option<u64>,
    /// Whether the application has sent less than it could.
    pub(super) is_app_limited: bool,
    /// The bytes that had been delivered when the newest acknowledged packet was sent.
    pub(super) prior_delivered: u64,
    /// The time from when the newest acknowledged packet was sent until it was acknowledged.
    pub(super) round_trip: Duration,
}

impl DeliveryRate {
    /// All bytes that were acknowledged.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn on_sent(&mut self, now: Instant, in_flight: u64) {
        if in_flight == 0 {
            self.runs.clear();
            self.first_sent = Some(now);
            self.delivered_time = Some(now);
        }
        if self.runs.back().is_some_and(|run| run.time >= now) {
            return;
        }
        self.runs.push_back(SentRun {
            time: now,
            first_sent: self.first_sent.unwrap_or(now),
            delivered: self.delivered,
            delivered_time: self.delivered_time.unwrap_or(now),
            is_app_limited: self.is_app_limited(),
        });
    }

    pub(super) fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_time = Some(now);
        if self.acked.is_some_and(|(run, _)| run.time >= sent) {
            return;
        }
        let index = self.runs.partition_point(|run| run.time < sent);
        if let Some(run) = self.runs.get(index).filter(|run| run.time == sent) {
            self.acked = Some((*run, now));
            self.first_sent = Some(sent);
        }
    }

    /// Whether the next packets are limited by the application.
    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// The application has sent less than it could: what is in flight now says nothing about the path.
    pub(super) fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// The sample of the packets that were acknowledged since the last call. Of shorter times than `min_round_trip`, no
    /// rate can be measured.
    pub(super) fn sample(&mut self, min_round_trip: Option<Duration>) -> Option<RateSample> {
        let (run, now) = self.acked.take()?;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let round_trip = now.saturating_duration_since(run.time);
        // Older packets are lost, or will be soon.
        let oldest = round_trip.saturating_mul(2);
        while let Some(front) = self.runs.front()
            && front.time < run.time
            && run.time.saturating_duration_since(front.time) > oldest
        {
            self.runs.pop_front();
        }
        let send_elapsed = run.time.saturating_duration_since(run.first_sent);
        let ack_elapsed = now.saturating_duration_since(run.delivered_time);
        let elapsed = send_elapsed.max(ack_elapsed);
        let is_measurable =
            !elapsed.is_zero() && min_round_trip.is_none_or(|least| elapsed >= least);
        let delivered = self.delivered - run.delivered;
        Some(RateSample {
            rate: is_measurable.then(|| (delivered as f64 / elapsed.as_secs_f64()) as u64),
            is_app_limited: run.is_app_limited,
            prior_delivered: run.delivered,
            round_trip,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_rate_is_that_of_acks_or_that_of_packets_if_it_is_lower() {
        let start = Instant::now();
        let mut rate = DeliveryRate::default();
        // 1,000 bytes in each millisecond, and ACKs of which the last ones come together.
        for packet in 0..40 {
            let now = start + packet * MS;
            if packet >= 20 {
                rate.on_ack(now, now - 20 * MS, 1_000);
                let sample = rate.sample(Some(20 * MS)).unwrap();
                assert_eq!(sample.round_trip, 20 * MS);
                let expected = u64::from(packet - 19) * 1_000_000 / u64::from(packet);
                assert!(sample.rate.unwrap().abs_diff(expected) <= 1);
            }
            rate.on_sent(now, u64::from(packet.min(20)) * 1_000);
        }
        let now = start + 40 * MS;
        for packet in 20..30 {
            rate.on_ack(now, start + packet * MS, 1_000);
        }
        let sample = rate.sample(Some(20 * MS)).unwrap();
        assert_eq!(sample.prior_delivered, 10_000);
        // In the 11 ms since the tenth was delivered, 20,000 bytes, but 20 ms passed while they were sent.
        assert_eq!(sample.rate, Some(1_000_000));
    }

    #[test]
    fn times_shorter_than_a_round_trip_measure_no_rate() {
        let start = Instant::now();
        for (micros, is_measured) in [(9_999, false), (10_000, true), (10_001, true)] {
            let mut rate = DeliveryRate::default();
            rate.on_sent(start, 0);
            rate.on_ack(start + Duration::from_micros(micros), start, 1_000);
            let sample = rate.sample(Some(10 * MS)).unwrap();
            assert_eq!(sample.rate.is_some(), is_measured);
        }
        let mut rate = DeliveryRate::default();
        rate.on_sent(start, 0);
        rate.on_ack(start, start, 1_000);
        assert_eq!(rate.sample(None).unwrap().rate, None);
    }

    #[test]
    fn packets_in_flight_when_the_application_has_no_more_are_limited_by_it() {
        let start = Instant::now();
        let mut rate = DeliveryRate::default();
        rate.on_sent(start, 0);
        rate.on_app_limited(1_000);
        rate.on_sent(start + MS, 1_000);
        rate.on_ack(start + 10 * MS, start, 1_000);
        assert!(!rate.sample(None).unwrap().is_app_limited);
        rate.on_sent(start + 11 * MS, 1_000);
        rate.on_ack(start + 12 * MS, start + MS, 1_000);
        assert!(rate.sample(None).unwrap().is_app_limited);
        rate.on_sent(start + 13 * MS, 1_000);
        rate.on_ack(start + 22 * MS, start + 11 * MS, 1_000);
        assert!(rate.sample(None).unwrap().is_app_limited);
        rate.on_ack(start + 24 * MS, start + 13 * MS, 1_000);
        assert!(!rate.sample(None).unwrap().is_app_limited);
    }

    #[test]
    fn packets_of_one_time_are_one_run_and_old_runs_are_forgotten() {
        let start = Instant::now();
        let mut rate = DeliveryRate::default();
        for packet in 0..100 {
            rate.on_sent(start + packet / 10 * MS, u64::from(packet));
        }
        assert_eq!(rate.runs.len(), 10);
        rate.on_ack(start + 11 * MS, start + 9 * MS, 1);
        rate.sample(None).unwrap();
        // Those that were sent up to two round trips of 2 ms before.
        assert_eq!(rate.runs.len(), 5);
        rate.on_sent(start + 12 * MS, 0);
        assert_eq!(rate.runs.len(), 1);
    }

    #[test]
    fn a_packet_of_an_unknown_time_is_delivered_without_a_sample() {
        let start = Instant::now();
        let mut rate = DeliveryRate::default();
        rate.on_ack(start, start, 1_000);
        assert_eq!(rate.sample(None), None);
        assert_eq!(rate.delivered(), 1_000);
    }
}
