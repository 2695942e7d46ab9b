//! Acknowledgements, loss detection and probes (RFC 9000 section 13.2, RFC 9002 sections 5 and 6).

use std::time::Duration;

use apus_quic_protocol::{Dir, Side};

use crate::harness::wire::{Frame, PacketType, integers, kind};
use crate::harness::*;

fn acknowledgements(pair: &Pair, side: Side) -> Vec<Frame> {
    let packets = pair.packets(side).into_iter();
    packets
        .filter(|packet| packet.kind == PacketType::OneRtt)
        .flat_map(|packet| packet.frames())
        .filter(|frame| matches!(frame.kind, kind::ACK | kind::ACK_ECN))
        .collect()
}

/// When an end has sent datagrams since the last `forget_sent`.
fn times(pair: &Pair, side: Side) -> Vec<Duration> {
    let sent = pair.sent.iter().filter(|sent| sent.datagram.sender == side);
    sent.map(|sent| sent.time).collect()
}

/// An idle pair with a round trip of 20 ms.
fn quiet() -> Pair {
    let mut pair = Pair::connected();
    pair.run_for(ms(2_000));
    pair.forget_sent();
    pair
}

#[test]
fn one_packet_is_acknowledged_after_25_ms() {
    let mut pair = quiet();
    let begin = pair.time();
    pair.connection(Client).ping();
    pair.run_for(ms(100));
    assert_eq!(times(&pair, Server), [begin + ms(10 + 25)]);
    // The delay, in units of 8 us.
    assert_eq!(acknowledgements(&pair, Server)[0].fields[1], 25_000 / 8);
}

#[test]
fn the_second_packet_is_acknowledged_at_once() {
    let mut pair = quiet();
    let begin = pair.time();
    for _ in 0..2 {
        pair.connection(Client).ping();
        pair.run_for(ms(1));
    }
    pair.run_for(ms(100));
    assert_eq!(times(&pair, Server), [begin + ms(1 + 10)]);
}

/// Section 13.2.1: the sender learns sooner that a packet is lost.
#[test]
fn a_packet_after_a_gap_is_acknowledged_at_once() {
    let mut pair = quiet();
    let begin = pair.time();
    pair.lose(Client, &[0]);
    for _ in 0..2 {
        pair.connection(Client).ping();
        pair.run_for(ms(1));
    }
    pair.run_for(ms(15));
    assert_eq!(times(&pair, Server), [begin + ms(1 + 10)]);
}

#[test]
fn acknowledgements_are_not_acknowledged() {
    let mut pair = quiet();
    pair.transfer(Client, 50_000);
    pair.run_for(ms(1_000));
    let sent = pair.sent.len();
    pair.run_for(ms(10_000));
    assert_eq!(pair.sent.len(), sent);
}

#[test]
fn an_acknowledgement_has_exactly_the_packets_that_came() {
    let mut pair = quiet();
    pair.lose(Client, &[1, 2, 5]);
    let mut numbers = Vec::new();
    for _ in 0..8 {
        pair.connection(Client).ping();
        pair.run_for(Duration::from_micros(100));
        numbers.push(pair.last_packet(Client, PacketType::OneRtt).number);
    }
    pair.run_for(ms(40));
    let last = acknowledgements(&pair, Server).pop().unwrap();
    // Those of the last two packets, of two, and of one with all before it.
    let [largest, _, count, first, rest @ ..] = &last.fields[..] else {
        panic!("{last:?}")
    };
    assert_eq!((*largest, *count), (numbers[7], 2));
    assert_eq!(*first, numbers[7] - numbers[6]);
    assert_eq!(rest[0], numbers[6] - numbers[4] - 2);
    assert_eq!(rest[1], numbers[4] - numbers[3]);
    assert_eq!(rest[2], numbers[3] - numbers[0] - 2);
}

/// RFC 9002 section 6.1.1.
#[test]
fn a_packet_is_lost_when_the_third_after_it_is_acknowledged() {
    for (later, is_lost) in [(2, false), (3, true)] {
        let mut pair = quiet();
        pair.lose(Client, &[0]);
        let lost = pair.connection(Client).stats().path.lost_packets;
        // All at one time, so that time does not count.
        for _ in 0..=later {
            pair.connection(Client).ping();
            pair.step();
        }
        pair.run_for(ms(20));
        let found = pair.connection(Client).stats().path.lost_packets - lost;
        assert_eq!(found > 0, is_lost, "{later}");
    }
}

/// RFC 9002 section 6.1.2: nine eighths of the round trip after it was sent.
#[test]
fn a_packet_is_lost_when_a_later_one_is_acknowledged_and_time_has_passed() {
    let mut pair = quiet();
    pair.lose(Client, &[0]);
    let begin = pair.time();
    let stream = pair.client.send(Dir::Uni, data(100), true);
    pair.step();
    pair.connection(Client).ping();
    pair.run_until(|pair| pair.server.finished.contains(&stream));
    let time = pair.time() - begin;
    assert!(time > ms(30) && time < ms(36), "{time:?}");
}

#[test]
fn packets_that_are_a_little_late_are_not_sent_again() {
    let mut pair = quiet();
    // Each fourth comes after the two that were sent after it.
    pair.rule(Client, |number, _| match number % 4 {
        0 => Fate::Delay(Duration::from_micros(2_500)),
        _ => Fate::Deliver,
    });
    let lost = pair.connection(Client).stats().path.lost_packets;
    for _ in 0..100 {
        pair.connection(Client).ping();
        pair.run_for(ms(1));
    }
    pair.run_for(ms(100));
    assert_eq!(pair.connection(Client).stats().path.lost_packets, lost);
}

/// A probe timeout: the round trip, four times its variance or a millisecond, and the delay of the peer.
#[test]
fn the_last_packet_is_sent_again_after_a_probe_timeout() {
    let mut pair = quiet();
    for _ in 0..40 {
        pair.connection(Client).ping();
        pair.run_for(ms(100));
    }
    let begin = pair.time();
    pair.lose(Client, &[0]);
    let stream = pair.client.send(Dir::Uni, data(100), true);
    pair.run_until(|pair| pair.server.finished.contains(&stream));
    let time = pair.time() - begin;
    assert!(
        time >= ms(10 + 20 + 25) && time < ms(10 + 20 + 25 + 40),
        "{time:?}"
    );
}

/// RFC 9002 section 6.2.1.
#[test]
fn each_probe_timeout_is_twice_as_long_as_the_one_before() {
    let mut pair = quiet();
    pair.lose_all(Client);
    pair.connection(Client).ping();
    pair.run_for(ms(5_000));
    let mut times = times(&pair, Client);
    times.dedup();
    assert!(times.len() >= 6);
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for pair in gaps.windows(2) {
        let ratio = pair[1].as_secs_f64() / pair[0].as_secs_f64();
        assert!((1.99..2.01).contains(&ratio), "{gaps:?}");
    }
    // Each but the first is of two packets (section 6.2.4).
    let sent = pair.packets(Client).len();
    assert_eq!(sent, 1 + 2 * (times.len() - 1));
}

#[test]
fn an_acknowledgement_ends_the_doubling_of_the_probe_timeout() {
    let mut pair = quiet();
    pair.lose_all(Client);
    pair.connection(Client).ping();
    pair.run_for(ms(2_000));
    pair.no_rule(Client);
    pair.run_for(ms(3_000));
    pair.lose(Client, &[0]);
    let begin = pair.time();
    let stream = pair.client.send(Dir::Uni, data(100), true);
    pair.run_until(|pair| pair.server.finished.contains(&stream));
    assert!(pair.time() - begin < ms(150), "{:?}", pair.time() - begin);
}

/// RFC 9002 section 5.3.
#[test]
fn the_delay_of_acknowledgements_is_no_part_of_the_round_trip() {
    let mut pair = quiet();
    for _ in 0..30 {
        pair.connection(Client).ping();
        pair.run_for(ms(100));
    }
    let round_trip = pair.connection(Client).round_trip_time();
    assert!(
        round_trip >= ms(20) && round_trip < ms(21),
        "{round_trip:?}"
    );
}

#[test]
fn lost_acknowledgements_do_not_repeat_data() {
    let mut pair = quiet();
    pair.link(Server).loss = 0.3;
    pair.transfer(Client, 300_000);
    let sent = pair.bytes_sent(Client);
    assert!(sent < 340_000, "{sent}");
}

/// Section 13.1.
#[test]
fn an_acknowledgement_of_a_packet_that_was_not_sent_is_an_error() {
    for side in [Client, Server] {
        for (distance, code) in [(0, None), (1, Some(0xa)), (1_000, Some(0xa))] {
            let mut pair = quiet();
            pair.connection(!side).ping();
            pair.run_for(ms(50));
            let largest = pair.last_packet(!side, PacketType::OneRtt).number;
            let acknowledgement = integers(&[kind::ACK, largest + distance, 0, 0, 0]);
            pair.inject(side, acknowledgement);
            pair.run_for(ms(50));
            assert_eq!(pair.end(!side).own_error(), code, "{distance}");
            assert_eq!(pair.end(side).peer_error(), code, "{distance}");
        }
    }
}

/// Section 21.4: a peer that acknowledges what it has not received would make the sender faster than the network.
#[test]
fn an_acknowledgement_of_a_packet_number_that_was_skipped_is_an_error() {
    let mut pair = Pair::connected();
    pair.transfer(Server, 500_000);
    pair.run_for(ms(500));
    let numbers: Vec<_> = pair
        .packets(Server)
        .into_iter()
        .filter(|packet| packet.kind == PacketType::OneRtt)
        .map(|packet| packet.number)
        .collect();
    let skipped = (0..*numbers.last().unwrap())
        .rev()
        .find(|number| !numbers.contains(number))
        .expect("one is skipped");
    pair.inject(Client, integers(&[kind::ACK, skipped, 0, 0, 0]));
    pair.run_for(ms(50));
    assert_eq!(pair.server.own_error(), Some(0xa));
}

#[test]
fn a_transfer_survives_an_outage() {
    for outage in [ms(100), ms(1_000), ms(10_000)] {
        let mut pair = quiet();
        let stream = pair.client.send(Dir::Uni, data(500_000), true);
        pair.run_for(ms(50));
        pair.links(|link| link.loss = 1.0);
        pair.run_for(outage);
        pair.links(|link| link.loss = 0.0);
        let begin = pair.time();
        assert!(pair.run_until(|pair| pair.server.finished.contains(&stream)));
        // The next probe comes after no more than the time of the outage.
        assert!(pair.time() - begin < 2 * outage + ms(1_000));
    }
}
