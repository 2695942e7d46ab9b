//! Congestion control (RFC 9002 section 7, RFC 9438), pacing, and ECN (RFC 9000 section 13.4).

use apus_quic_protocol::{CongestionAlgorithm, Dir, EcnCodepoint, TransportConfig};

use crate::harness::wire::{PacketType, integers, kind};
use crate::harness::*;

fn sender(congestion: CongestionAlgorithm) -> Pair {
    let transport = TransportConfig {
        receive_window: 64 << 20,
        stream_receive_window: 64 << 20,
        send_window: 64 << 20,
        congestion,
        ..TransportConfig::default()
    };
    let mut pair = Pair::with(Settings {
        client: transport.clone(),
        server: transport,
        ..Settings::default()
    });
    pair.links(|link| link.delay = ms(50));
    pair.handshake();
    pair
}

fn window(pair: &mut Pair) -> u64 {
    pair.connection(Server).congestion_window()
}

#[test]
fn the_window_doubles_in_each_round_trip_of_slow_start() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.server.send(Dir::Uni, data(5_000_000), true);
    pair.run_for(ms(150));
    let before = window(&mut pair);
    pair.run_for(ms(200));
    let growth = window(&mut pair) as f64 / before as f64;
    assert!((3.0..4.5).contains(&growth), "{growth}");
}

#[test]
fn no_more_is_in_flight_than_the_window_allows() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.lose_all(Client);
    pair.forget_sent();
    let before = window(&mut pair) as usize;
    pair.server.send(Dir::Uni, data(1_000_000), true);
    pair.run_for(ms(45));
    let sent = pair.bytes_sent(Server);
    assert!(sent <= before && sent + 1_452 > before, "{sent} {before}");
}

/// RFC 9438 section 4.6: to 0.7, once for all losses of a round trip.
#[test]
fn losses_of_one_round_trip_make_the_window_smaller_once() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.server.send(Dir::Uni, data(5_000_000), true);
    pair.run_for(ms(400));
    let mtu = f64::from(pair.connection(Server).current_mtu());
    let mut expected = pair.connection(Server).stats().path.lost_packets;
    // Several losses, and one in a later round trip.
    for lost in [&[0, 3, 5, 9][..], &[0]] {
        pair.lose(Server, lost);
        let end = pair.time() + ms(250);
        let mut before = window(&mut pair);
        let mut reductions = Vec::new();
        pair.run_until(|pair| {
            let after = window(pair);
            if after < before {
                reductions.push((before as f64, after as f64));
            }
            before = after;
            pair.time() >= end
        });
        expected += lost.len() as u64;
        assert_eq!(pair.connection(Server).stats().path.lost_packets, expected);
        let [(before, after)] = reductions[..] else {
            panic!("{reductions:?}");
        };
        // The acknowledgements that tell of the loss have some packets, by which the window grows before.
        let most = 0.7 * (before + 10.0 * mtu);
        assert!(
            after + 1.0 > 0.7 * before && after <= most,
            "{before} {after}"
        );
    }
}

/// RFC 9002 section 7.3.2: each of these losses is noticed by another acknowledgement.
#[test]
fn losses_of_one_recovery_period_are_one_congestion_event() {
    for congestion in [CongestionAlgorithm::Cubic, CongestionAlgorithm::Bbr] {
        let mut pair = sender(congestion);
        pair.server.send(Dir::Uni, data(5_000_000), true);
        pair.run_for(ms(400));
        for _ in 0..2 {
            let before = pair.connection(Server).stats().path;
            pair.lose(Server, &[0, 10, 20, 30]);
            pair.run_for(ms(250));
            let after = pair.connection(Server).stats().path;
            assert_eq!(after.lost_packets, before.lost_packets + 4);
            assert_eq!(
                after.congestion_events,
                before.congestion_events + 1,
                "{congestion:?}"
            );
        }
    }
}

/// RFC 9002 section 7.6.
#[test]
fn persistent_congestion_leaves_two_packets() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.server.send(Dir::Uni, data(5_000_000), true);
    pair.run_for(ms(400));
    pair.lose_all(Server);
    pair.run_for(ms(8_000));
    pair.no_rule(Server);
    let begin = pair.connection(Server).stats().udp_rx.datagrams;
    pair.run_until(|pair| pair.connection(Server).stats().udp_rx.datagrams > begin);
    let mtu = u64::from(pair.connection(Server).current_mtu());
    assert!(window(&mut pair) <= 4 * mtu, "{}", window(&mut pair));
}

/// RFC 9002 section 7.8.
#[test]
fn the_window_of_a_sender_with_little_data_does_not_grow() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    let before = window(&mut pair);
    for _ in 0..30 {
        pair.transfer(Server, 1_000);
    }
    assert!(
        window(&mut pair) <= before + 12_000,
        "{}",
        window(&mut pair)
    );
}

/// RFC 9002 section 7.7: a burst of a whole window would fill queues.
#[test]
fn packets_are_spread_over_the_round_trip() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.is_observed = false;
    pair.server.send(Dir::Uni, data(5_000_000), true);
    pair.run_for(ms(600));
    pair.forget_sent();
    let window = window(&mut pair) as usize;
    pair.run_for(ms(100));
    let mut by_millisecond = [0; 101];
    for sent in &pair.sent {
        if sent.datagram.sender == Server {
            let at = (sent.time + ms(100) - pair.time()).as_millis() as usize;
            by_millisecond[at.min(100)] += sent.datagram.bytes.len();
        }
    }
    let most = by_millisecond.iter().max().unwrap();
    assert!(*most < window / 4, "{most} of {window}");
}

#[test]
fn a_download_through_a_small_queue_takes_little_longer_than_its_rate_allows() {
    for (congestion, share) in [
        (CongestionAlgorithm::Cubic, 0.6),
        (CongestionAlgorithm::Bbr, 0.5),
    ] {
        let mut pair = sender(congestion);
        pair.is_observed = false;
        pair.links(|link| link.rate = Some((1_250_000.0, 125_000.0)));
        let begin = pair.time();
        pair.transfer(Server, 2_500_000);
        let time = (pair.time() - begin).as_secs_f64();
        assert!(2.0 / time > share, "{time} {congestion:?}");
    }
}

#[test]
fn packets_are_marked_once_the_path_keeps_marks() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.transfer(Server, 100_000);
    let last = pair
        .sent
        .iter()
        .rev()
        .find(|sent| sent.datagram.bytes.len() > 1_000);
    assert_eq!(last.unwrap().datagram.ecn, Some(EcnCodepoint::Ect0));
    let packets = pair.packets(Client);
    assert!(packets.iter().any(|packet| packet.has(kind::ACK_ECN)));
}

#[test]
fn a_mark_of_congestion_makes_the_window_smaller_without_a_loss() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.server.send(Dir::Uni, data(5_000_000), true);
    pair.run_for(ms(400));
    let before = pair.connection(Server).stats().path;
    pair.link(Server).congestion = 1.0;
    pair.run_for(ms(5));
    pair.link(Server).congestion = 0.0;
    pair.run_until(|pair| {
        pair.connection(Server).stats().path.congestion_events > before.congestion_events
    });
    let after = pair.connection(Server).stats().path;
    assert_eq!(after.lost_packets, before.lost_packets);
    assert_eq!(after.congestion_events, before.congestion_events + 1);
}

#[test]
fn a_path_that_takes_marks_away_gets_none() {
    let mut pair = Pair::new();
    pair.links(|link| link.is_bleaching = true);
    pair.handshake();
    pair.transfer(Server, 100_000);
    let last = pair
        .sent
        .iter()
        .rev()
        .find(|sent| sent.datagram.bytes.len() > 1_000);
    assert_eq!(last.unwrap().datagram.ecn, None);
}

/// A path or a peer that counts wrong: the counts may not shrink (section 13.4.2.1).
#[test]
fn wrong_counts_end_the_use_of_marks() {
    let mut pair = sender(CongestionAlgorithm::Cubic);
    pair.transfer(Server, 50_000);
    pair.connection(Server).ping();
    pair.run_for(ms(60));
    let largest = pair.last_packet(Server, PacketType::OneRtt).number;
    pair.inject(
        Client,
        integers(&[kind::ACK_ECN, largest, 0, 0, 0, 0, 0, 0]),
    );
    pair.run_for(ms(200));
    pair.transfer(Server, 50_000);
    let last = pair
        .sent
        .iter()
        .rev()
        .find(|sent| sent.datagram.bytes.len() > 1_000);
    assert_eq!(last.unwrap().datagram.ecn, None);
}

#[test]
fn transfers_in_both_directions_survive_losses_with_each_algorithm() {
    for congestion in [CongestionAlgorithm::Cubic, CongestionAlgorithm::Bbr] {
        for seed in 0..3 {
            let transport = TransportConfig {
                congestion,
                ..TransportConfig::default()
            };
            let mut pair = Pair::connected_with(Settings {
                seed,
                client: transport.clone(),
                server: transport,
                ..Settings::default()
            });
            pair.is_observed = false;
            pair.links(|link| (link.loss, link.duplication) = (0.03, 0.02));
            let up = pair.client.send(Dir::Uni, data(200_000), true);
            let down = pair.server.send(Dir::Uni, data(200_000), true);
            assert!(pair.run_until(|pair| {
                pair.server.finished.contains(&up) && pair.client.finished.contains(&down)
            }));
        }
    }
}
