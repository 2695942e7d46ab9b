//! CUBIC (RFC 9438), a congestion controller.
//!
//! The estimate of Reno begins at the window that a loss leaves, so that the window grows from there, and time in which the
//! application sends nothing is no time in which the window grows.

use std::time::{Duration, Instant};

use super::{CongestionController, CongestionPhase, RttEstimator};

/// What is left of the window after a loss (section 4.6).
const BETA: f64 = 0.7;
/// The growth of the cubic function (section 5).
const C: f64 = 0.4;
/// Packets that Reno's window grows by in a round trip, so that it is as fair with `BETA` (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The most that the window may grow by in a round trip (section 4.2).
const MAX_GROWTH: f64 = 1.5;

/// The controller of a path. Windows are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    mtu: f64,
    window: f64,
    slow_start_threshold: f64,
    /// The window before the last loss.
    window_before: f64,
    /// Where the cubic function is flat: there, or below it if the loss before was at a larger window (section 4.7).
    plateau: f64,
    /// Losses of packets that were sent before are of the same congestion event.
    recovery_start: Option<Instant>,
    avoidance: Option<Avoidance>,
    /// Since when the application has sent less than the window allows.
    limited_since: Option<Instant>,
}

/// Congestion avoidance since the last congestion event.
#[derive(Clone, Debug)]
struct Avoidance {
    start: Instant,
    plateau: f64,
    /// Seconds until the cubic function reaches the plateau.
    rise: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Cubic {
    /// With a window of `initial_window` bytes, for packets of `mtu` bytes.
    pub(crate) fn new(initial_window: u64, mtu: u16) -> Self {
        Self {
            mtu: mtu.into(),
            window: initial_window as f64,
            slow_start_threshold: f64::INFINITY,
            window_before: 0.0,
            plateau: 0.0,
            recovery_start: None,
            avoidance: None,
            limited_since: None,
        }
    }

    fn least_window(&self) -> f64 {
        // Two packets (RFC 9002 section 7.2): with one, a receiver that acknowledges every second packet would wait
        // for its timer.
        2.0 * self.mtu
    }

    /// Grows by bytes that were acknowledged.
    fn grow(&mut self, now: Instant, bytes: u64, round_trip: Duration) {
        let bytes = bytes as f64;
        if self.window < self.slow_start_threshold {
            // Slow start by bytes and not by ACKs, so that a peer that splits its ACKs gains nothing.
            self.window += bytes;
            return;
        }
        let limited = self
            .limited_since
            .take()
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let (mtu, window) = (self.mtu, self.window);
        let avoidance = self.avoidance.get_or_insert_with(|| {
            let plateau = self.plateau.max(window);
            Avoidance {
                start: now,
                plateau,
                rise: ((plateau - window) / mtu / C).cbrt(),
                // The estimate begins at the window that the loss has left. That of quinn-proto begins below it,
                // so that the window did not grow for a third of the time after every second loss: with 0.1% of
                // loss, downloads took 1.12 (20 ms) and 1.14 (100 ms) of the time over HTTP/2.
                reno: window,
            }
        });
        // Time without data to send is none in which the path was probed (section 5.8).
        avoidance.start += limited;
        let (plateau, rise) = (avoidance.plateau, avoidance.rise);
        let cubic = |time: Duration| plateau + C * (time.as_secs_f64() - rise).powi(3) * mtu;
        let time = now.saturating_duration_since(avoidance.start);
        // Beyond the window before the loss, it grows as Reno's own.
        let alpha = if avoidance.reno < self.window_before {
            ALPHA
        } else {
            1.0
        };
        avoidance.reno += alpha * mtu * bytes / window;
        self.window = if cubic(time) < avoidance.reno {
            window.max(avoidance.reno)
        } else {
            let target = cubic(time + round_trip).clamp(window, window * MAX_GROWTH);
            window + (target - window) * bytes / window
        };
    }
}

impl CongestionController for Cubic {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        if app_limited {
            self.limited_since.get_or_insert(now);
        // Packets from before the loss do not let the window grow: the reaction lasts a round trip (RFC 9002 section
        // 7.3.2).
        } else if self.recovery_start.is_none_or(|start| sent > start) {
            self.grow(now, bytes, rtt.smoothed());
        }
    }

    fn on_end_acks(&mut self, _now: Instant, _in_flight: u64, _app_limited: bool) {}

    fn on_loss(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent: bool,
        _lost_bytes: u64,
    ) -> bool {
        // The losses of one round trip are one event, or a burst would reduce the window once for each packet. That it is
        // persistent may turn out later (RFC 9002 section 7.6.2).
        let is_new = self.recovery_start.is_none_or(|start| sent > start);
        if !is_new && !is_persistent {
            return false;
        }
        self.recovery_start = Some(now);
        self.avoidance = None;
        self.limited_since = None;
        // Fast convergence leaves room for new flows (section 4.7).
        self.plateau = if self.window < self.window_before {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window_before = self.window;
        self.slow_start_threshold = (self.window * BETA).max(self.least_window());
        self.window = self.slow_start_threshold;
        if is_persistent {
            // As after a timeout of TCP (section 4.8).
            self.recovery_start = None;
            self.window = self.least_window();
            self.plateau = 0.0;
        }
        is_new
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.window = self.window.max(self.least_window());
    }

    fn phase(&self) -> CongestionPhase {
        if self.window < self.slow_start_threshold {
            CongestionPhase::SlowStart
        } else {
            CongestionPhase::CongestionAvoidance
        }
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn clone_box(&self) -> Box<dyn CongestionController> {
        Box::new(self.clone())
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_000;
    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// A controller that has left slow start with this window, in packets, and the time of that.
    fn after_loss(packets: u64) -> (Cubic, Instant) {
        let now = Instant::now();
        let mut cubic = Cubic::new(packets * MTU, MTU as u16);
        cubic.on_loss(now, now, false, MTU);
        (cubic, now)
    }

    /// Acknowledges whole windows for this number of round trips.
    fn run(cubic: &mut Cubic, now: &mut Instant, round_trips: usize) {
        for _ in 0..round_trips {
            *now += ROUND_TRIP;
            for _ in 0..cubic.window() / MTU {
                cubic.grow(*now, MTU, ROUND_TRIP);
            }
        }
    }

    fn assert_window(cubic: &Cubic, packets: f64) {
        let window = cubic.window / MTU as f64;
        assert!(
            (window - packets).abs() < 0.02 * packets,
            "{window} {packets}"
        );
    }

    #[test]
    fn the_window_doubles_until_the_first_loss_and_keeps_seven_tenths() {
        let mut now = Instant::now();
        let mut cubic = Cubic::new(10 * MTU, MTU as u16);
        run(&mut cubic, &mut now, 3);
        assert_eq!(cubic.window(), 80 * MTU);
        cubic.on_loss(now, now, false, MTU);
        assert_eq!(cubic.window(), 56 * MTU);
        // Another packet of the same time.
        cubic.on_loss(now + ROUND_TRIP, now, false, MTU);
        assert_eq!(cubic.window(), 56 * MTU);
        cubic.on_loss(now + ROUND_TRIP, now + ROUND_TRIP, false, MTU);
        assert_eq!(cubic.window(), 39_200);
    }

    #[test]
    fn the_window_is_flat_where_it_was_before_the_loss() {
        // (1000 * 0.3 / 0.4) ^ (1/3) seconds.
        let (mut cubic, mut now) = after_loss(1_000);
        run(&mut cubic, &mut now, 45);
        assert_window(&cubic, 960.0);
        run(&mut cubic, &mut now, 46);
        assert_window(&cubic, 1_000.0);
        run(&mut cubic, &mut now, 20);
        assert_window(&cubic, 1_003.0);
        run(&mut cubic, &mut now, 40);
        assert_window(&cubic, 1_083.0);
    }

    #[test]
    fn a_small_window_grows_as_renos_from_where_it_is() {
        // The second loss is at a smaller window than the first.
        let (mut cubic, mut now) = after_loss(20);
        cubic.on_loss(now, now + ROUND_TRIP, false, MTU);
        assert_window(&cubic, 9.8);
        run(&mut cubic, &mut now, 3);
        assert!(cubic.window() > 11_000, "{}", cubic.window());
        run(&mut cubic, &mut now, 6);
        assert!(cubic.window() > 14_000, "{}", cubic.window());
        // One packet for each round trip beyond 14 packets.
        let before = cubic.window;
        run(&mut cubic, &mut now, 2);
        assert!(cubic.window > before + 1.7 * MTU as f64, "{}", cubic.window);
    }

    #[test]
    fn time_without_data_to_send_does_not_count() {
        let (mut cubic, mut now) = after_loss(100);
        run(&mut cubic, &mut now, 10);
        let mut other = cubic.clone();
        let mut later = now + Duration::from_secs(600);
        other.limited_since = Some(now);
        run(&mut cubic, &mut now, 10);
        run(&mut other, &mut later, 10);
        assert_window(&other, cubic.window / MTU as f64);
    }

    #[test]
    fn persistent_congestion_leaves_two_packets_and_slow_start() {
        // Of packets that were sent before the recovery period, and after its begin.
        let (mut cubic, now) = after_loss(100);
        cubic.on_loss(now, now, true, MTU);
        assert_eq!(cubic.window(), 2 * MTU);
        let (mut cubic, mut now) = after_loss(100);
        cubic.on_loss(now, now + ROUND_TRIP, true, MTU);
        assert_eq!(cubic.window(), 2 * MTU);
        run(&mut cubic, &mut now, 3);
        assert_eq!(cubic.window(), 16 * MTU);
        cubic.on_mtu_update(9_000);
        assert_eq!(cubic.window(), 18_000);
    }
}
