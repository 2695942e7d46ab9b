//! Packets that are acknowledged, lost, skipped and forgotten.

use super::*;

const SIZE: u16 = 1_200;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A round trip of 80 ms: packets are lost after 90 ms, and persistent congestion takes 3 * (240 + 25) ms.
fn rtt(now: Instant) -> RttEstimator {
    let mut rtt = RttEstimator::new();
    rtt.update(now, ms(80), ms(0));
    rtt
}

fn packet(time: Instant) -> SentPacket<u64> {
    SentPacket {
        time,
        size: SIZE,
        ack_eliciting: true,
        in_flight: true,
        is_mtu_probe: false,
        is_ecn_marked: false,
        frames: 0,
    }
}

fn ack_only(time: Instant) -> SentPacket<u64> {
    SentPacket {
        ack_eliciting: false,
        in_flight: false,
        ..packet(time)
    }
}

/// Packets that were sent at these times, in milliseconds.
fn sent(start: Instant, times: impl IntoIterator<Item = u64>) -> SentPackets<u64> {
    let mut packets = SentPackets::new();
    for time in times {
        packets.push(packet(start + ms(time)));
    }
    packets
}

fn acknowledge(packets: &mut SentPackets<u64>, range: RangeInclusive<u64>) -> Vec<u64> {
    let mut acked = Vec::new();
    packets.acknowledge(range, &mut |number, _| acked.push(number));
    acked
}

fn lost(
    packets: &mut SentPackets<u64>,
    now: Instant,
    rtt: &RttEstimator,
    largest_acked: u64,
) -> (Vec<u64>, LostPackets) {
    let mut lost = Vec::new();
    let found = packets.detect_lost(now, rtt, largest_acked, &mut |number, _| lost.push(number));
    (lost, found)
}

#[test]
fn a_slot_with_forty_bytes_of_frames_has_64_bytes() {
    assert_eq!(size_of::<PacketSlot<[u64; 5]>>(), 64);
}

#[test]
fn numbers_and_bytes_of_packets_are_counted() {
    let now = Instant::now();
    let mut packets = SentPackets::new();
    assert_eq!((packets.next_number(), packets.largest_sent()), (0, None));
    assert_eq!(packets.push(packet(now)), 0);
    assert_eq!(packets.push(ack_only(now + ms(1))), 1);
    assert_eq!(packets.push(packet(now + ms(2))), 2);
    assert_eq!(packets.largest_sent(), Some(2));
    assert_eq!(packets.bytes_in_flight(), 2_400);
    assert_eq!(packets.last_ack_eliciting(), Some(now + ms(2)));
    assert_eq!(acknowledge(&mut packets, 0..=0), [0]);
    assert_eq!(packets.bytes_in_flight(), 1_200);
    assert_eq!(acknowledge(&mut packets, 2..=2), [2]);
    assert_eq!(packets.bytes_in_flight(), 0);
    assert_eq!(packets.last_ack_eliciting(), None);
    assert!(!packets.is_empty());
    assert_eq!(acknowledge(&mut packets, 1..=1), [1]);
    assert!(packets.is_empty());
    assert_eq!(packets.next_number(), 3);
}

#[test]
fn ranges_acknowledge_each_packet_once_and_in_order() {
    let now = Instant::now();
    for (ranges, expected) in [
        (vec![0..=9], vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (vec![0..=0, 0..=1, 0..=2], vec![0, 1, 2]),
        (
            vec![3..=4, 3..=6, 3..=6, 0..=7],
            vec![3, 4, 5, 6, 0, 1, 2, 7],
        ),
        (
            vec![2..=3, 5..=6, 2..=6, 1..=8],
            vec![2, 3, 5, 6, 4, 1, 7, 8],
        ),
        (vec![4..=4, 2..=2, 2..=9], vec![4, 2, 3, 5, 6, 7, 8, 9]),
        (vec![9..=9, 9..=20, 8..=u64::MAX], vec![9, 8]),
        (vec![10..=20, u64::MAX..=u64::MAX], vec![]),
        (
            vec![RangeInclusive::new(5, 4), RangeInclusive::new(3, 0)],
            vec![],
        ),
        (vec![0..=u64::MAX], vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ] {
        let mut packets = sent(now, 0..10);
        let mut acked = Vec::new();
        for range in &ranges {
            acked.extend(acknowledge(&mut packets, range.clone()));
        }
        assert_eq!(acked, expected, "{ranges:?}");
        let left = 10 - expected.len() as u64;
        assert_eq!(packets.bytes_in_flight(), left * u64::from(SIZE));
        assert_eq!(packets.is_empty(), left == 0);
        assert_eq!(packets.next_number(), 10);
    }
}

/// Numbers that repeat, but look random.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn a_ring_holds_what_a_map_holds() {
    let start = Instant::now();
    for seed in 0..200 {
        let mut random = numbers(seed);
        let mut packets = SentPackets::new();
        let mut model = std::collections::BTreeMap::new();
        let mut now = start;
        let rtt = rtt(start);
        for _ in 0..300 {
            now += ms(random(5));
            match random(10) {
                0 => packets.skip(),
                1..6 => {
                    let number = packets.next_number();
                    assert_eq!(packets.push(packet(now)), number);
                    model.insert(number, now);
                }
                6..9 => {
                    let first = random(packets.next_number() + 2);
                    let range = first..=first + random(20);
                    let expected: Vec<_> = model.range(range.clone()).map(|(n, _)| *n).collect();
                    assert_eq!(acknowledge(&mut packets, range), expected);
                    model.retain(|number, _| !expected.contains(number));
                }
                _ => {
                    let largest = random(packets.next_number() + 1);
                    let mut expected = Vec::new();
                    model.retain(|number, time| {
                        let is_lost =
                            *number < largest && (number + 3 <= largest || now >= *time + ms(90));
                        if is_lost {
                            expected.push(*number);
                        }
                        !is_lost
                    });
                    let (lost, found) = lost(&mut packets, now, &rtt, largest);
                    assert_eq!(lost, expected);
                    let next = model
                        .range(..largest)
                        .next()
                        .map(|(_, time)| *time + ms(90));
                    assert_eq!(found.next_loss_time, next);
                    assert_eq!(found.bytes, lost.len() as u64 * u64::from(SIZE));
                }
            }
            let bytes = model.len() as u64 * u64::from(SIZE);
            assert_eq!(packets.bytes_in_flight(), bytes);
            assert_eq!(packets.is_empty(), model.is_empty());
            assert_eq!(packets.has_ack_eliciting(), !model.is_empty());
        }
    }
}

#[test]
fn ranges_that_grow_take_time_for_new_packets_only() {
    let now = Instant::now();
    let mut packets = sent(now, [0]);
    for number in 1..100_000 {
        packets.push(packet(now));
        // A visit of every slot each time would take minutes.
        assert_eq!(acknowledge(&mut packets, 1..=number), [number]);
    }
    assert_eq!(acknowledge(&mut packets, 0..=99_999), [0]);
    assert_eq!(packets.slots.len(), 0);
}

#[test]
fn skipped_numbers_are_remembered() {
    let now = Instant::now();
    let mut packets = SentPackets::new();
    packets.skip();
    assert_eq!(packets.push(packet(now)), 1);
    packets.skip();
    assert_eq!(packets.push(packet(now)), 3);
    assert!(!packets.is_empty());
    for (range, is_skipped) in [
        (0..=0, true),
        (1..=1, false),
        (1..=2, true),
        (2..=3, true),
        (3..=3, false),
        (3..=u64::MAX - 1, false),
        (0..=3, true),
    ] {
        assert_eq!(packets.is_skipped(&range), is_skipped, "{range:?}");
    }
    assert_eq!(acknowledge(&mut packets, 0..=3), [1, 3]);
    assert!(packets.is_empty());
    assert!(packets.is_skipped(&(2..=2)));
    packets.skip();
    assert_eq!(packets.next_number(), 5);
    packets.skip();
    assert!(packets.is_skipped(&(0..=0)));
    packets.skip();
    assert!(!packets.is_skipped(&(0..=0)));
    assert!(packets.is_skipped(&(2..=2)));
}

#[test]
fn a_packet_is_lost_when_the_third_after_it_is_acknowledged() {
    let now = Instant::now();
    let rtt = rtt(now);
    for (largest, expected) in [(0, vec![]), (2, vec![]), (3, vec![0]), (4, vec![0, 1])] {
        let mut packets = sent(now, [0; 5]);
        acknowledge(&mut packets, largest..=largest);
        let (lost, found) = lost(&mut packets, now, &rtt, largest);
        assert_eq!(lost, expected, "{largest}");
        let waits = largest > 0;
        assert_eq!(found.next_loss_time, waits.then(|| now + ms(90)));
        assert_eq!(found.bytes, expected.len() as u64 * 1_200);
        assert_eq!(found.newest_sent, (!expected.is_empty()).then_some(now));
    }
}

#[test]
fn a_packet_is_lost_after_nine_eighths_of_a_round_trip() {
    let now = Instant::now();
    let rtt = rtt(now);
    for (after, expected, next) in [
        (89, vec![], Some(90)),
        (90, vec![0], Some(91)),
        (91, vec![0, 1], None),
    ] {
        let mut packets = sent(now, [0, 1, 2]);
        acknowledge(&mut packets, 2..=2);
        let (lost, found) = lost(&mut packets, now + ms(after), &rtt, 2);
        assert_eq!(lost, expected, "{after}");
        assert_eq!(found.next_loss_time, next.map(|time| now + ms(time)));
        assert_eq!(packets.is_empty(), next.is_none());
    }
}

#[test]
fn packets_after_the_largest_acknowledged_one_are_not_lost() {
    let now = Instant::now();
    let mut packets = sent(now, [0, 0, 0]);
    acknowledge(&mut packets, 0..=0);
    let (lost, found) = lost(&mut packets, now + ms(1_000), &rtt(now), 0);
    assert_eq!((lost, found), (vec![], LostPackets::default()));
}

#[test]
fn packets_that_are_not_in_flight_and_probes_are_lost_without_a_sign_of_congestion() {
    let start = Instant::now();
    let rtt = rtt(start);
    let probe = |time| SentPacket {
        is_mtu_probe: true,
        ..packet(time)
    };
    let mut packets = SentPackets::new();
    packets.push(ack_only(start + ms(1)));
    packets.push(probe(start + ms(2)));
    packets.push(probe(start + ms(9_000)));
    packets.push(packet(start + ms(9_001)));
    acknowledge(&mut packets, 3..=3);
    let (numbers, found) = lost(&mut packets, start + ms(9_100), &rtt, 3);
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(found, LostPackets::default());
    assert_eq!(packets.bytes_in_flight(), 0);
}

/// The verdict for packets that were sent at these times, the first sample of the round trip at 0, and ACKs of these
/// packets and of one that was sent after all.
fn is_persistent(times: &[u64], acked: &[u64]) -> bool {
    let start = Instant::now();
    let rtt = rtt(start);
    let mut packets = sent(start, times.iter().copied());
    let end = times.iter().max().unwrap() + 1_000;
    let last = packets.push(packet(start + ms(end)));
    for &number in acked.iter().chain([&last]) {
        assert_eq!(acknowledge(&mut packets, number..=number), [number]);
    }
    let (_, found) = lost(&mut packets, start + ms(end + 80), &rtt, last);
    assert!(packets.is_empty());
    found.is_persistent(&rtt, ms(25))
}

#[test]
fn persistent_congestion_loses_all_packets_for_three_probe_timeouts() {
    // 3 * (80 + 4 * 40 + 25) ms.
    assert!(!is_persistent(&[1, 795], &[]));
    assert!(!is_persistent(&[1, 796], &[]));
    assert!(is_persistent(&[1, 797], &[]));
    assert!(is_persistent(&[1, 400, 797], &[]));
    assert!(!is_persistent(&[1, 400, 797], &[1]));
    assert!(is_persistent(&[1, 400, 401, 1_197], &[1]));
    assert!(!is_persistent(&[1, 400, 401, 1_196], &[1]));
    assert!(is_persistent(&[1, 797, 798, 799], &[2]));
    // The first packet was sent before the first sample of the round trip.
    assert!(!is_persistent(&[0, 797], &[]));
    assert!(is_persistent(&[0, 1, 798], &[]));
}

#[test]
fn a_skipped_number_does_not_interrupt_persistent_congestion() {
    let start = Instant::now();
    let rtt = rtt(start);
    for (acked, is_persistent) in [(false, true), (true, false)] {
        let mut packets = sent(start, [1]);
        packets.skip();
        packets.push(packet(start + ms(500)));
        packets.skip();
        packets.push(packet(start + ms(1_000)));
        packets.push(packet(start + ms(2_000)));
        if acked {
            acknowledge(&mut packets, 2..=2);
        }
        acknowledge(&mut packets, 5..=5);
        let (_, found) = lost(&mut packets, start + ms(2_100), &rtt, 5);
        assert_eq!(found.is_persistent(&rtt, ms(25)), is_persistent);
    }
}

#[test]
fn packets_that_elicit_no_ack_begin_and_end_no_persistent_congestion() {
    let start = Instant::now();
    let rtt = rtt(start);
    let mut packets = SentPackets::new();
    packets.push(ack_only(start + ms(1)));
    packets.push(packet(start + ms(500)));
    packets.push(packet(start + ms(600)));
    packets.push(ack_only(start + ms(2_000)));
    let last = packets.push(packet(start + ms(3_000)));
    acknowledge(&mut packets, last..=last);
    let (numbers, found) = lost(&mut packets, start + ms(3_080), &rtt, last);
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(found.longest_period, ms(100));
}

#[test]
fn packets_that_elicit_no_ack_are_forgotten_above_a_bound() {
    let now = Instant::now();
    let mut packets = SentPackets::new();
    packets.push(packet(now));
    for number in 1..=MAX_NOT_ACK_ELICITING as u64 {
        packets.push(ack_only(now));
        assert_eq!(packets.pop_excess(), None, "{number}");
    }
    packets.push(ack_only(now));
    assert_eq!(packets.pop_excess(), Some((0, packet(now))));
    assert_eq!(packets.pop_excess(), Some((1, ack_only(now))));
    assert_eq!(packets.pop_excess(), None);
    for _ in 0..10_000 {
        packets.push(ack_only(now));
        assert!(packets.pop_excess().is_some());
    }
    assert_eq!(packets.slots.len(), MAX_NOT_ACK_ELICITING);
}

#[test]
fn a_drained_space_is_empty_and_goes_on_with_its_numbers() {
    let now = Instant::now();
    let mut packets = sent(now, 0..100);
    acknowledge(&mut packets, 1..=98);
    let mut removed = Vec::new();
    packets.drain(&mut |number, _| removed.push(number));
    assert_eq!(removed, [0, 99]);
    assert!(packets.is_empty());
    assert_eq!(packets.bytes_in_flight(), 0);
    assert_eq!(packets.last_ack_eliciting(), None);
    assert_eq!(packets.next_number(), 100);
    assert!(packets.slots.capacity() <= IDLE_SLOTS);
}
