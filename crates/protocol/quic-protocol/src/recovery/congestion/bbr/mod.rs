//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), a congestion controller.

use std::time::{Duration, Instant};

use self::bandwidth::MaxBandwidth;
use self::delivery_rate::{DeliveryRate, RateSample};
use self::startup::PipeEstimate;
use super::{CongestionController, CongestionPhase, RttEstimator};

mod bandwidth;
mod delivery_rate;
mod startup;

/// The gain with which a sender doubles its rate in each round trip: 2 / ln 2.
const HIGH_GAIN: f64 = 2.885;
/// The gain of the window. It suffices to double the rate in each round trip.
const WINDOW_GAIN: f64 = 2.0;
/// The gains of the rate while the bandwidth is probed, each for a round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The part of the bandwidth that is used, so that queues drain.
const PACING_MARGIN: f64 = 0.99;
/// The time in which the least round trip is measured again.
const ROUND_TRIP_EXPIRY: Duration = Duration::from_secs(10);
/// The least time for which the queue is empty to measure the round trip.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Packets of the least window, which suffice with delayed ACKs.
const MIN_PACKETS: u64 = 4;
/// Bytes per second below which packets are sent one by one, and up to which two at a time.
const SLOW_RATE: u64 = 1_200_000 / 8;
const MEDIUM_RATE: u64 = 24_000_000 / 8;
/// The most bytes that are taken to be sent at once.
const MAX_QUANTUM: u64 = 64_000;

/// The controller of a path. It measures the bandwidth and the round trip without queues, sends at this bandwidth, and
/// has twice their product in flight at most. Windows are in bytes, rates in bytes per second.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    initial_window: u64,
    mtu: u64,
    mode: Mode,
    window: u64,
    /// The window before recovery.
    prior_window: u64,
    pacing_rate: u64,
    delivery: DeliveryRate,
    bandwidth: MaxBandwidth,
    pipe: PipeEstimate,
    /// The least round trip, and when it was measured.
    round_trip: Option<(Duration, Instant)>,
    round: u64,
    /// The round ends when a packet is acknowledged that was sent after this number of bytes was delivered.
    round_end: u64,
    recovery: Option<Recovery>,
    /// The first packets after the connection was idle are in flight.
    is_idle_restart: bool,
    batch: Batch,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// The rate doubles in each round trip.
    Startup,
    /// The queue of the startup drains.
    Drain,
    /// The rate is that of the bandwidth, and sometimes more or less.
    ProbeBandwidth { phase: usize, since: Instant },
    /// The queue is drained to measure the round trip.
    ProbeRtt { until: Option<ProbeRttEnd> },
}

/// When a probe of the round trip ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProbeRttEnd {
    time: Instant,
    has_round_ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// It ends when a packet is acknowledged that was sent after this.
    last_loss: Instant,
    /// In the first round trip, what is in flight does not grow.
    is_conserving: bool,
    /// The window is not set yet.
    is_new: bool,
}

/// What has happened since the last batch of ACKs.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    acked: u64,
    lost: u64,
    newest_sent: Option<Instant>,
    is_persistent: bool,
}

impl Bbr {
    /// With a window of `initial_window` bytes, for packets of `mtu` bytes.
    pub(crate) fn new(initial_window: u64, mtu: u16) -> Self {
        Self {
            initial_window,
            mtu: mtu.into(),
            mode: Mode::Startup,
            window: initial_window,
            prior_window: 0,
            pacing_rate: (HIGH_GAIN * initial_window as f64 / 0.001) as u64,
            delivery: DeliveryRate::default(),
            bandwidth: MaxBandwidth::default(),
            pipe: PipeEstimate::default(),
            round_trip: None,
            round: 0,
            round_end: 0,
            recovery: None,
            is_idle_restart: false,
            batch: Batch::default(),
        }
    }

    fn least_window(&self) -> u64 {
        MIN_PACKETS * self.mtu
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBandwidth { phase, .. } => CYCLE.get(phase).copied().unwrap_or(1.0),
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    /// The bytes in flight that fill the path this many times, and the sender and the receiver with their batches.
    fn target(&self, gain: f64) -> u64 {
        let (Some((round_trip, _)), bandwidth @ 1..) = (self.round_trip, self.bandwidth.get())
        else {
            return self.initial_window;
        };
        let quantum = match self.pacing_rate {
            ..SLOW_RATE => self.mtu,
            SLOW_RATE..MEDIUM_RATE => 2 * self.mtu,
            rate => (rate / 1_000).clamp(2 * self.mtu, MAX_QUANTUM.max(2 * self.mtu)),
        };
        let product = gain * bandwidth as f64 * round_trip.as_secs_f64();
        (product as u64).saturating_add(3 * quantum)
    }

    /// Whether a round trip has ended.
    fn update_round(&mut self, sample: &RateSample) -> bool {
        let is_end = sample.prior_delivered >= self.round_end;
        if is_end {
            self.round_end = self.delivery.delivered();
            self.round += 1;
            if let Some(recovery) = &mut self.recovery {
                recovery.is_conserving = false;
            }
        }
        is_end
    }

    fn update_bandwidth(&mut self, sample: &RateSample) {
        if let Some(rate) = sample.rate
            && (!sample.is_app_limited || rate >= self.bandwidth.get())
        {
            self.bandwidth.add(self.round, rate);
        }
    }

    /// Whether the least round trip is to be measured again.
    fn update_round_trip(&mut self, now: Instant, sample: &RateSample) -> bool {
        let is_expired = self
            .round_trip
            .is_some_and(|(_, time)| now.saturating_duration_since(time) > ROUND_TRIP_EXPIRY);
        if self.round_trip.is_none() {
            let seconds = sample.round_trip.as_secs_f64().max(1e-6);
            self.pacing_rate = (HIGH_GAIN * self.window as f64 / seconds) as u64;
        }
        if is_expired
            || self
                .round_trip
                .is_none_or(|(least, _)| sample.round_trip <= least)
        {
            self.round_trip = Some((sample.round_trip, now));
        }
        is_expired
    }

    fn update_mode(
        &mut self,
        now: Instant,
        in_flight: u64,
        is_round_end: bool,
        is_round_trip_expired: bool,
    ) {
        let prior_in_flight = in_flight + self.batch.acked + self.batch.lost;
        if let Mode::ProbeBandwidth { phase, since } = self.mode
            && self.has_phase_ended(now, since, prior_in_flight)
        {
            self.mode = Mode::ProbeBandwidth {
                phase: (phase + 1) % CYCLE.len(),
                since: now,
            };
        }
        if self.mode == Mode::Startup && self.pipe.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && in_flight <= self.target(1.0) {
            self.probe_bandwidth(now);
        }
        let is_probing = matches!(self.mode, Mode::ProbeRtt { .. });
        if is_round_trip_expired && !self.is_idle_restart && !is_probing {
            self.mode = Mode::ProbeRtt { until: None };
        }
        if let Mode::ProbeRtt { until } = self.mode {
            self.probe_rtt(now, in_flight, is_round_end, until);
        }
        self.is_idle_restart = false;
    }

    fn has_phase_ended(&self, now: Instant, since: Instant, prior_in_flight: u64) -> bool {
        let has_round_passed = self
            .round_trip
            .is_some_and(|(least, _)| now.saturating_duration_since(since) > least);
        let gain = self.pacing_gain();
        if gain > 1.0 {
            let is_filled = self.batch.lost > 0 || prior_in_flight >= self.target(gain);
            has_round_passed && is_filled
        } else if gain < 1.0 {
            has_round_passed || prior_in_flight <= self.target(1.0)
        } else {
            has_round_passed
        }
    }

    /// Begins with any phase except that of the low gain, so that connections do not probe together.
    fn probe_bandwidth(&mut self, now: Instant) {
        let nanoseconds = self.round_trip.map_or(0, |(least, _)| least.subsec_nanos());
        let phase = match nanoseconds as usize % (CYCLE.len() - 1) {
            0 => 0,
            other => other + 1,
        };
        self.mode = Mode::ProbeBandwidth { phase, since: now };
    }

    fn probe_rtt(
        &mut self,
        now: Instant,
        in_flight: u64,
        is_round_end: bool,
        until: Option<ProbeRttEnd>,
    ) {
        self.delivery.on_app_limited(in_flight);
        let Some(mut end) = until else {
            if in_flight <= self.least_window() {
                self.round_end = self.delivery.delivered();
                let end = now.checked_add(PROBE_RTT_TIME).map(|time| ProbeRttEnd {
                    time,
                    has_round_ended: false,
                });
                self.mode = Mode::ProbeRtt { until: end };
            }
            return;
        };
        end.has_round_ended |= is_round_end;
        if !end.has_round_ended || now < end.time {
            self.mode = Mode::ProbeRtt { until: Some(end) };
            return;
        }
        if let Some((_, time)) = &mut self.round_trip {
            *time = now;
        }
        if self.pipe.is_full {
            self.probe_bandwidth(now)
        } else {
            self.mode = Mode::Startup
        }
    }

    fn update_pacing_rate(&mut self) {
        let rate = self.pacing_gain() * PACING_MARGIN * self.bandwidth.get() as f64;
        let rate = rate as u64;
        if rate > 0 && (self.pipe.is_full || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// Limits the window after losses. Returns whether what is in flight may not grow.
    fn update_recovery(&mut self, in_flight: u64) -> bool {
        let Batch { acked, lost, .. } = self.batch;
        // Random loss in each round trip would end the growth.
        let is_limiting = self.mode != Mode::Startup;
        if lost > 0 && is_limiting {
            self.window = self.window.saturating_sub(lost).max(self.mtu);
        }
        let newest = self.batch.newest_sent;
        match &mut self.recovery {
            Some(recovery) if recovery.is_new => {
                recovery.is_new = false;
                if is_limiting {
                    self.window = in_flight + acked;
                }
            }
            Some(recovery) if lost == 0 && newest.is_some_and(|sent| sent > recovery.last_loss) => {
                self.recovery = None;
                self.window = self.window.max(self.prior_window);
            }
            _ => {}
        }
        let is_conserving =
            is_limiting && self.recovery.is_some_and(|recovery| recovery.is_conserving);
        if is_conserving {
            self.window = self.window.max(in_flight + acked);
        }
        is_conserving
    }

    fn update_window(&mut self, in_flight: u64) {
        let is_conserving = self.update_recovery(in_flight);
        let acked = self.batch.acked;
        if !is_conserving {
            let target = self.target(WINDOW_GAIN);
            if self.pipe.is_full {
                self.window = (self.window + acked).min(target);
            } else if self.window < target || self.delivery.delivered() < self.initial_window {
                self.window += acked;
            }
        }
        self.window = self.window.max(self.least_window());
    }
}

impl CongestionController for Bbr {
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        if bytes == 0 {
            return;
        }
        if in_flight == 0 && self.delivery.is_app_limited() {
            self.is_idle_restart = true;
            if matches!(self.mode, Mode::ProbeBandwidth { .. }) {
                let rate = PACING_MARGIN * self.bandwidth.get() as f64;
                self.pacing_rate = (rate as u64).max(1);
            }
        }
        self.delivery.on_sent(now, in_flight);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.delivery.on_ack(now, sent, bytes);
        self.batch.acked += bytes;
        self.batch.newest_sent = self.batch.newest_sent.max(Some(sent));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool) {
        let least = self.round_trip.map(|(least, _)| least);
        if let Some(sample) = self.delivery.sample(least) {
            let is_round_end = self.update_round(&sample);
            self.update_bandwidth(&sample);
            self.pipe.delivered += self.batch.acked;
            self.pipe.lost += self.batch.lost;
            if is_round_end {
                let bandwidth = (!sample.is_app_limited).then(|| self.bandwidth.get());
                self.pipe.on_round_end(bandwidth, self.mtu);
            }
            let is_expired = self.update_round_trip(now, &sample);
            self.update_mode(now, in_flight, is_round_end, is_expired);
            self.update_pacing_rate();
        }
        self.update_window(in_flight);
        if self.batch.is_persistent {
            self.window = self.least_window();
        }
        self.batch = Batch::default();
        if app_limited {
            self.delivery.on_app_limited(in_flight);
        }
    }

    fn on_loss(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent: bool,
        lost_bytes: u64,
    ) -> bool {
        // Marks of the path do not change what it delivers.
        if lost_bytes == 0 {
            return false;
        }
        self.batch.lost += lost_bytes;
        self.batch.is_persistent |= is_persistent;
        if let Some(recovery) = &mut self.recovery {
            recovery.last_loss = now;
            false
        } else {
            self.prior_window = self.window;
            self.recovery = Some(Recovery {
                last_loss: now,
                is_conserving: true,
                is_new: true,
            });
            self.round_end = self.delivery.delivered();
            true
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.window = self.window.max(self.least_window());
    }

    fn phase(&self) -> CongestionPhase {
        match self.mode {
            Mode::Startup => CongestionPhase::SlowStart,
            Mode::Drain => CongestionPhase::Drain,
            Mode::ProbeBandwidth { .. } => CongestionPhase::ProbeBandwidth,
            Mode::ProbeRtt { .. } => CongestionPhase::ProbeRtt,
        }
    }

    fn window(&self) -> u64 {
        match self.mode {
            Mode::ProbeRtt { .. } => self.window.min(self.least_window()),
            _ => self.window,
        }
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    fn clone_box(&self) -> Box<dyn CongestionController> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
