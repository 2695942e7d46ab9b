//! A sender with all of recovery, and a path with a bottleneck, on virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::{
    Bbr, CongestionController, Cubic, Pacer, ProbeTimeout, RttEstimator, SentPacket, SentPackets,
};

const MTU: u16 = 1_200;
const ACK_DELAY: Duration = Duration::from_millis(25);
/// Bytes per second of 100 Mbit/s.
const RATE: f64 = 12_500_000.0;

#[derive(Clone, Copy, Debug)]
struct BottleneckPath {
    round_trip: Duration,
    /// Bytes of the queue.
    queue: f64,
    /// The part of packets that is lost.
    loss: f64,
    /// Packets that the application has at a time, and how long it waits until it has them again.
    application: Option<(u64, Duration)>,
    /// When it loses all packets, and when no longer.
    outage: Option<(Duration, Duration)>,
}

impl BottleneckPath {
    /// With a queue for what is in flight, at least for 100 packets.
    fn new(milliseconds: u64, loss: f64) -> Self {
        let round_trip = Duration::from_millis(milliseconds);
        Self {
            round_trip,
            queue: (RATE * round_trip.as_secs_f64()).max(100.0 * f64::from(MTU)),
            loss,
            application: None,
            outage: None,
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathEvent {
    Arrival(u64),
    AckTimeout(u64),
    Ack(Vec<u64>),
}

/// What was sent in a time.
#[derive(Debug, Default)]
struct SenderOutcome {
    sent: u64,
    lost: u64,
    /// Of the acknowledged bytes, the part that the path could have passed.
    share: f64,
    /// When the window was at most four packets, and for how long.
    least_window: Vec<(Duration, Duration)>,
    /// The longest time in the queue, in the last half.
    queued: Duration,
    timeouts: u32,
}

struct BottleneckSender {
    packets: SentPackets<()>,
    rtt: RttEstimator,
    controller: Box<dyn CongestionController>,
    pacer: Pacer,
    pto: ProbeTimeout,
    largest_acked: Option<u64>,
    loss_time: Option<Instant>,
    is_app_limited: bool,
    acked_bytes: u64,
    lost: u64,
}

impl BottleneckSender {
    fn new(controller: Box<dyn CongestionController>, now: Instant) -> Self {
        let rtt = RttEstimator::new();
        Self {
            packets: SentPackets::new(),
            pacer: Pacer::new(now, &*controller, &rtt, MTU),
            rtt,
            controller,
            pto: ProbeTimeout::default(),
            largest_acked: None,
            loss_time: None,
            is_app_limited: false,
            acked_bytes: 0,
            lost: 0,
        }
    }

    fn on_ack(&mut self, now: Instant, numbers: &[u64]) {
        let largest = numbers.iter().copied().max();
        let mut sample = None;
        for &number in numbers {
            self.packets
                .acknowledge(number..=number, &mut |number, packet| {
                    self.acked_bytes += u64::from(packet.size);
                    self.controller.on_ack(
                        now,
                        packet.time,
                        packet.size.into(),
                        self.is_app_limited,
                        &self.rtt,
                    );
                    if Some(number) == largest {
                        sample = Some(now - packet.time);
                    }
                });
        }
        if let Some(sample) = sample {
            self.rtt.update(now, sample, Duration::ZERO);
        }
        self.largest_acked = self.largest_acked.max(largest);
        self.detect_lost(now);
        self.pto.reset();
    }

    fn detect_lost(&mut self, now: Instant) {
        let Some(largest_acked) = self.largest_acked else {
            return;
        };
        let found = self
            .packets
            .detect_lost(now, &self.rtt, largest_acked, &mut |_, _| self.lost += 1);
        self.loss_time = found.next_loss_time;
        if let Some(sent) = found.newest_sent {
            let is_persistent = found.is_persistent(&self.rtt, ACK_DELAY);
            self.controller
                .on_loss(now, sent, is_persistent, found.bytes);
        }
        let in_flight = self.packets.bytes_in_flight();
        self.controller
            .on_end_acks(now, in_flight, self.is_app_limited);
        self.pacer.update(now, &*self.controller, &self.rtt, MTU);
    }

    fn send(&mut self, now: Instant) -> u64 {
        let in_flight = self.packets.bytes_in_flight();
        self.controller.on_sent(now, MTU.into(), in_flight);
        self.pacer.on_sent(MTU.into());
        self.packets.push(SentPacket {
            time: now,
            size: MTU,
            ack_eliciting: true,
            in_flight: true,
            is_mtu_probe: false,
            is_ecn_marked: false,
            frames: (),
        })
    }

    fn deadline(&self) -> Option<Instant> {
        self.loss_time.or_else(|| {
            let sent = [None, None, self.packets.last_ack_eliciting()];
            let deadline = self.pto.deadline(&self.rtt, sent, Some(ACK_DELAY))?;
            Some(deadline.0)
        })
    }
}

fn run(
    controller: Box<dyn CongestionController>,
    path: BottleneckPath,
    seconds: u64,
) -> SenderOutcome {
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let mut now = start;
    let mut sender = BottleneckSender::new(controller, now);
    let mut outcome = SenderOutcome::default();
    let mut events = BinaryHeap::new();
    let mut link_free = now;
    let mut received: Vec<u64> = Vec::new();
    let mut random = 1_u64;
    let mut least_since = None;
    let (batch, pause) = path.application.unwrap_or((u64::MAX, Duration::ZERO));
    let mut available = batch;
    let mut refilled = now;
    while now < end {
        while let Some(Reverse((time, _))) = events.peek()
            && *time <= now
        {
            let Some(Reverse((_, event))) = events.pop() else {
                break;
            };
            match event {
                PathEvent::Arrival(number) => {
                    let is_next = received.is_empty();
                    received.push(number);
                    if received.len() >= 2 {
                        let numbers = std::mem::take(&mut received);
                        events.push(Reverse((
                            now + path.round_trip / 2,
                            PathEvent::Ack(numbers),
                        )));
                    } else if is_next {
                        events.push(Reverse((now + ACK_DELAY, PathEvent::AckTimeout(number))));
                    }
                }
                PathEvent::AckTimeout(number) if received.first() == Some(&number) => {
                    let numbers = std::mem::take(&mut received);
                    events.push(Reverse((
                        now + path.round_trip / 2,
                        PathEvent::Ack(numbers),
                    )));
                }
                PathEvent::AckTimeout(_) => {}
                PathEvent::Ack(numbers) => sender.on_ack(now, &numbers),
            }
        }
        if available == 0 && now >= refilled + pause {
            available = batch;
        }
        let mut probes = 0;
        if sender.deadline().is_some_and(|time| time <= now) {
            if sender.loss_time.is_some() {
                sender.detect_lost(now);
            } else {
                sender.pto.on_expired();
                outcome.timeouts += 1;
                probes = 1;
            }
        }
        let mut wake = None;
        sender.is_app_limited = false;
        loop {
            let fits =
                sender.packets.bytes_in_flight() + u64::from(MTU) <= sender.controller.window();
            if probes == 0 && (!fits || available == 0) {
                sender.is_app_limited = fits;
                break;
            }
            wake = sender.pacer.delay(now, MTU.into());
            if probes == 0 && wake.is_some() {
                break;
            }
            probes = 0;
            available = available.saturating_sub(1);
            if available == 0 {
                refilled = now;
            }
            let number = sender.send(now);
            outcome.sent += 1;
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let queued = link_free.saturating_duration_since(now);
            if now > start + (end - start) / 2 {
                outcome.queued = outcome.queued.max(queued);
            }
            let has_room = queued.as_secs_f64() * RATE + f64::from(MTU) <= path.queue;
            let is_out = path
                .outage
                .is_some_and(|(from, to)| (from..to).contains(&(now - start)));
            if has_room && !is_out && (random >> 33) as f64 / (1_u64 << 31) as f64 >= path.loss {
                link_free = link_free.max(now) + Duration::from_secs_f64(f64::from(MTU) / RATE);
                let arrival = link_free + path.round_trip / 2;
                events.push(Reverse((arrival, PathEvent::Arrival(number))));
            }
        }
        if sender.controller.window() <= 4 * u64::from(MTU) {
            least_since.get_or_insert(now);
        } else if let Some(since) = least_since.take() {
            outcome.least_window.push((since - start, now - since));
        }
        let refill = (available == 0 && pause > Duration::ZERO).then(|| refilled + pause);
        let next = [
            events.peek().map(|Reverse((time, _))| *time),
            wake,
            sender.deadline(),
            refill,
        ];
        now = next.into_iter().flatten().min().unwrap_or(end);
    }
    outcome.lost = sender.lost;
    outcome.share = sender.acked_bytes as f64 / (RATE * seconds as f64);
    outcome
}

fn cubic() -> Box<dyn CongestionController> {
    Box::new(Cubic::new(12_000, MTU))
}

fn bbr() -> Box<dyn CongestionController> {
    Box::new(Bbr::new(12_000, MTU))
}

#[test]
fn both_controllers_fill_a_path() {
    for controller in [cubic(), bbr()] {
        for (milliseconds, least) in [(1, 0.99), (20, 0.95), (100, 0.85)] {
            let path = BottleneckPath::new(milliseconds, 0.0);
            let outcome = run(controller.clone_box(), path, 6);
            assert!(outcome.share > least, "{path:?} {outcome:?}");
            assert!(outcome.lost * 15 < outcome.sent, "{path:?} {outcome:?}");
            assert_eq!(outcome.timeouts, 0);
        }
    }
}

#[test]
fn cubic_reaches_the_response_function_of_reno() {
    for loss in [0.01, 0.03] {
        let outcome = run(cubic(), BottleneckPath::new(20, loss), 20);
        let packets = (1.5 / loss).sqrt();
        let bound = packets * f64::from(MTU) / 0.02 / RATE;
        assert!(outcome.share > 0.8 * bound, "{bound} {outcome:?}");
    }
}

#[test]
fn bbr_does_not_take_random_loss_for_congestion() {
    for (milliseconds, loss, least) in [
        (1, 0.1, 0.9),
        (20, 0.01, 0.95),
        (20, 0.1, 0.8),
        (100, 0.03, 0.8),
    ] {
        let path = BottleneckPath::new(milliseconds, loss);
        let outcome = run(bbr(), path, 6);
        assert!(outcome.share > least, "{path:?} {outcome:?}");
    }
}

#[test]
fn random_loss_does_not_slow_the_startup_of_bbr_down() {
    let least = run(bbr(), BottleneckPath::new(300, 0.0), 3).share * 0.8;
    for loss in [0.001, 0.01, 0.03] {
        let outcome = run(bbr(), BottleneckPath::new(300, loss), 3);
        assert!(outcome.share > least, "{least} {outcome:?}");
    }
}

#[test]
fn bbr_leaves_the_queue_short_and_cubic_fills_it() {
    let path = BottleneckPath::new(20, 0.0);
    let queued = run(bbr(), path, 6).queued;
    assert!(queued < path.round_trip / 2, "{queued:?}");
    let queued = run(cubic(), path, 6).queued;
    assert!(queued > path.round_trip / 2, "{queued:?}");
}

#[test]
fn bbr_does_not_flood_a_path_with_a_short_queue() {
    for controller in [cubic(), bbr()] {
        let path = BottleneckPath {
            queue: 50_000.0,
            ..BottleneckPath::new(20, 0.0)
        };
        let outcome = run(controller, path, 6);
        assert!(outcome.share > 0.85, "{outcome:?}");
        assert!(outcome.lost * 10 < outcome.sent, "{outcome:?}");
    }
}

#[test]
fn bbr_measures_the_round_trip_with_four_packets_after_ten_seconds() {
    let path = BottleneckPath::new(20, 0.0);
    let outcome = run(bbr(), path, 12);
    let [(start, duration)] = outcome.least_window.as_slice() else {
        panic!("{outcome:?}");
    };
    let [ten, eleven] = [10, 11].map(Duration::from_secs);
    assert!((ten..eleven).contains(start), "{outcome:?}");
    let [least, most] = [200, 270].map(Duration::from_millis);
    assert!((least..most).contains(duration), "{outcome:?}");
    assert!(outcome.share > 0.9, "{outcome:?}");
}

#[test]
fn an_application_that_pauses_is_not_slowed_down() {
    for controller in [cubic(), bbr()] {
        for packets in [5, 50, 500] {
            let path = BottleneckPath {
                application: Some((packets, Duration::from_millis(100))),
                ..BottleneckPath::new(20, 0.0)
            };
            let outcome = run(controller.clone_box(), path, 12);
            assert!(outcome.timeouts <= 1, "{path:?} {outcome:?}");
            assert!(outcome.lost * 100 < outcome.sent, "{path:?} {outcome:?}");
            // 500 packets take 48 ms, and the pause begins after them.
            assert!(outcome.sent > packets * 75, "{path:?} {outcome:?}");
            assert_eq!(outcome.least_window, [], "{path:?}");
        }
    }
}

#[test]
fn a_path_that_loses_everything_for_a_while_is_used_again() {
    for controller in [cubic(), bbr()] {
        let path = BottleneckPath {
            outage: Some((Duration::from_secs(2), Duration::from_secs(3))),
            ..BottleneckPath::new(20, 0.0)
        };
        let outcome = run(controller, path, 6);
        assert!((1..10).contains(&outcome.timeouts), "{outcome:?}");
        assert!(outcome.share > 0.6, "{outcome:?}");
    }
}
