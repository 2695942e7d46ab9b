//! The modes, the window and the rate of BBR.

use super::*;

const MTU: u64 = 1_200;
const ROUND_TRIP: Duration = Duration::from_millis(20);

fn new() -> Bbr {
    Bbr::new(12_000, MTU as u16)
}

/// Sends a window at each round trip, of which this number of packets is acknowledged one round trip later, and the
/// others are lost. The path passes as many packets in a round trip.
fn run(bbr: &mut Bbr, now: &mut Instant, round_trips: u32, packets: u64) {
    let rtt = RttEstimator::new();
    for _ in 0..round_trips {
        let sent = *now;
        let window = bbr.window() / MTU;
        bbr.on_sent(sent, window * MTU, 0);
        *now += ROUND_TRIP;
        for _ in 0..window.min(packets) {
            bbr.on_ack(*now, sent, MTU, false, &rtt);
        }
        if let Some(lost @ 1..) = window.checked_sub(packets) {
            bbr.on_loss(*now, sent, false, lost * MTU);
        }
        bbr.on_end_acks(*now, 0, false);
    }
}

#[test]
fn the_window_doubles_in_each_round_trip_of_the_startup() {
    let mut now = Instant::now();
    let mut bbr = new();
    assert_eq!(bbr.window(), 12_000);
    for window in [24_000, 48_000, 96_000] {
        run(&mut bbr, &mut now, 1, 1_000);
        assert_eq!(bbr.window(), window);
        assert_eq!(bbr.mode, Mode::Startup);
    }
}

#[test]
fn the_first_round_trip_sets_the_rate() {
    let mut now = Instant::now();
    let mut bbr = new();
    assert_eq!(bbr.pacing_rate(), Some(34_620_000));
    run(&mut bbr, &mut now, 1, 1_000);
    assert_eq!(bbr.pacing_rate(), Some((2.885 * 12_000.0 / 0.02) as u64));
}

#[test]
fn a_full_pipe_is_probed() {
    let mut now = Instant::now();
    let mut bbr = new();
    run(&mut bbr, &mut now, 20, 100);
    assert!(bbr.pipe.is_full);
    assert!(matches!(bbr.mode, Mode::ProbeBandwidth { .. }));
    // 100 packets in a round trip, as long as the gain is one.
    assert_eq!(bbr.bandwidth.get(), 100 * MTU * 50);
    let mut gains = Vec::new();
    for _ in 0..32 {
        now += Duration::from_millis(1);
        run(&mut bbr, &mut now, 1, 100);
        gains.push(bbr.pacing_gain());
    }
    for gain in [1.25, 0.75, 1.0] {
        assert!(gains.contains(&gain), "{gains:?}");
    }
    assert!(bbr.window() <= 2 * 100 * MTU + 3 * MAX_QUANTUM);
}

#[test]
fn probes_begin_with_any_phase_but_the_second() {
    for nanoseconds in 0..20 {
        let now = Instant::now();
        let mut bbr = new();
        bbr.round_trip = Some((Duration::from_nanos(nanoseconds), now));
        bbr.probe_bandwidth(now);
        let Mode::ProbeBandwidth { phase, .. } = bbr.mode else {
            panic!();
        };
        assert!(phase < CYCLE.len() && phase != 1);
    }
}

#[test]
fn persistent_congestion_leaves_four_packets() {
    let mut now = Instant::now();
    let mut bbr = new();
    run(&mut bbr, &mut now, 10, 100);
    for (is_persistent, expected) in [(false, false), (true, true)] {
        let mut bbr = bbr.clone();
        bbr.on_loss(now, now, is_persistent, 10 * MTU);
        bbr.on_end_acks(now, 50 * MTU, false);
        assert_eq!(bbr.window() == 4 * MTU, expected);
        run(&mut bbr, &mut now, 6, 100);
        assert!(bbr.window() > 100 * MTU, "{}", bbr.window());
    }
}

#[test]
fn a_lost_packet_limits_a_round_trip_to_what_is_in_flight() {
    let mut now = Instant::now();
    let mut bbr = new();
    run(&mut bbr, &mut now, 20, 100);
    let window = bbr.window();
    bbr.recovery = None;
    bbr.on_loss(now, now, false, MTU);
    bbr.on_end_acks(now, 60 * MTU, false);
    assert_eq!(bbr.window(), 60 * MTU);
    // A packet that was sent after the loss.
    bbr.on_sent(now + ROUND_TRIP, MTU, 60 * MTU);
    bbr.on_ack(
        now + 2 * ROUND_TRIP,
        now + ROUND_TRIP,
        MTU,
        false,
        &RttEstimator::new(),
    );
    bbr.on_end_acks(now + 2 * ROUND_TRIP, 59 * MTU, false);
    let most = bbr.target(WINDOW_GAIN);
    assert_eq!(bbr.window(), (window + MTU).min(most));
}

#[test]
fn marks_of_the_path_change_nothing() {
    let mut now = Instant::now();
    let mut bbr = new();
    run(&mut bbr, &mut now, 5, 1_000);
    let window = bbr.window();
    bbr.on_loss(now, now, false, 0);
    bbr.on_end_acks(now, 0, false);
    assert_eq!(bbr.window(), window);
    assert!(bbr.recovery.is_none());
}

#[test]
fn the_window_has_at_least_four_packets_of_the_new_size() {
    for (mtu, window) in [(2_999, 12_000), (3_000, 12_000), (3_001, 12_004)] {
        let mut bbr = new();
        bbr.on_mtu_update(mtu);
        assert_eq!(bbr.window(), window);
    }
}

#[test]
fn a_limited_application_does_not_lower_the_bandwidth() {
    let mut now = Instant::now();
    let mut bbr = new();
    run(&mut bbr, &mut now, 20, 100);
    let bandwidth = bbr.bandwidth.get();
    bbr.on_end_acks(now, 0, true);
    let rtt = RttEstimator::new();
    for _ in 0..30 {
        bbr.on_sent(now, MTU, 0);
        let sent = now;
        now += ROUND_TRIP;
        bbr.on_ack(now, sent, MTU, true, &rtt);
        bbr.on_end_acks(now, 0, true);
    }
    assert_eq!(bbr.bandwidth.get(), bandwidth);
}
