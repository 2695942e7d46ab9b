//! The handshake over a network that loses, delays, doubles and changes datagrams (RFC 9000 section 7, RFC 9002).

use apus_quic_protocol::{ConnectionEnd, Dir};

use crate::harness::wire::{PacketType, integers, kind};
use crate::harness::*;

fn connects(mut pair: Pair) {
    pair.handshake();
    pair.transfer(Client, 1_000);
    pair.transfer(Server, 1_000);
}

/// A round trip takes 20 ms. The server knows half of one later.
#[test]
fn a_handshake_takes_one_round_trip_for_the_client() {
    let mut pair = Pair::new();
    pair.run_until(|pair| pair.client.is_connected());
    assert_eq!(pair.time(), ms(20));
    pair.run_until(|pair| pair.server.is_connected());
    assert_eq!(pair.time(), ms(30));
}

/// A probe timeout of three initial round trips of 333 ms (RFC 9002 section 6.2.2).
#[test]
fn a_client_whose_first_datagram_is_lost_sends_it_again_after_a_second() {
    let mut pair = Pair::new();
    pair.lose(Client, &[0]);
    assert!(pair.run_until(|pair| pair.client.is_connected()));
    assert_eq!(pair.time(), ms(999 + 20));
}

#[test]
fn a_server_whose_first_datagram_is_lost_is_asked_again() {
    let mut pair = Pair::new();
    pair.lose(Server, &[0]);
    assert!(pair.run_until(|pair| pair.client.is_connected()));
    assert!(pair.time() < ms(1_100), "{:?}", pair.time());
    connects(pair);
}

#[test]
fn any_one_datagram_of_the_client_may_be_lost() {
    for lost in [&[0][..], &[1], &[2], &[3], &[4], &[5]] {
        for has_large_hello in [false, true] {
            let mut pair = Pair::with(Settings {
                has_large_hello,
                ..Settings::default()
            });
            pair.rule(Client, move |number, _| {
                if lost.contains(&number) {
                    Fate::Drop
                } else {
                    Fate::Deliver
                }
            });
            connects(pair);
        }
    }
}

#[test]
fn any_one_datagram_of_the_server_may_be_lost() {
    for lost in 0..8 {
        let mut pair = Pair::with(Settings {
            has_large_certificate: true,
            ..Settings::default()
        });
        pair.rule(Server, move |number, _| {
            if number == lost {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
        connects(pair);
    }
}

#[test]
fn a_handshake_survives_an_outage_of_five_seconds() {
    for silent in [Client, Server] {
        let mut pair = Pair::new();
        pair.lose_all(silent);
        pair.run_for(ms(5_000));
        assert!(!pair.server.has_connection() || !pair.server.is_connected());
        pair.no_rule(silent);
        connects(pair);
    }
}

#[test]
fn a_handshake_survives_that_a_third_of_all_datagrams_is_lost() {
    for seed in 0..20 {
        let mut pair = Pair::with(Settings {
            seed,
            has_large_certificate: seed % 2 == 0,
            ..Settings::default()
        });
        pair.links(|link| link.loss = 0.33);
        connects(pair);
    }
}

/// A server repeated Handshake packets until the idle timeout, which nobody could read without the ServerHello.
#[test]
fn a_lost_server_hello_is_sent_again_although_the_window_is_full_of_handshake_packets() {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        server: apus_quic_protocol::TransportConfig {
            initial_window: 6_000,
            ..Default::default()
        },
        ..Settings::default()
    });
    pair.rule(Server, |_, packets| {
        let has_hello = packets
            .iter()
            .any(|packet| packet.kind == PacketType::Initial && packet.has(kind::CRYPTO));
        if has_hello { Fate::Drop } else { Fate::Deliver }
    });
    pair.run_for(ms(1_300));
    pair.no_rule(Server);
    assert!(pair.run_until(|pair| pair.client.is_connected() || pair.client.end().is_some()));
    assert_eq!(pair.client.end(), None);
    assert!(pair.time() < ms(8_000), "{:?}", pair.time());
}

#[test]
fn a_handshake_survives_losses_in_bursts() {
    for seed in 0..10 {
        let mut pair = Pair::with(Settings {
            seed,
            has_large_certificate: true,
            ..Settings::default()
        });
        pair.links(|link| (link.loss, link.burst) = (0.1, 5));
        connects(pair);
    }
}

#[test]
fn a_datagram_that_arrives_twice_opens_one_connection() {
    let mut pair = Pair::new();
    pair.links(|link| link.duplication = 1.0);
    pair.handshake();
    assert_eq!((pair.server.opened, pair.client.end()), (1, None));
    connects(pair);
}

#[test]
fn a_handshake_survives_changed_datagrams() {
    for seed in 0..10 {
        let mut pair = Pair::with(Settings {
            seed,
            ..Settings::default()
        });
        pair.links(|link| link.corruption = 0.2);
        connects(pair);
    }
}

#[test]
fn a_client_hello_in_two_datagrams_may_arrive_in_the_wrong_order() {
    let mut pair = Pair::with(Settings {
        has_large_hello: true,
        ..Settings::default()
    });
    pair.rule(Client, |number, _| match number {
        0 => Fate::Delay(ms(5)),
        _ => Fate::Deliver,
    });
    connects(pair);
}

#[test]
fn handshake_packets_may_arrive_before_the_initial_packet() {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        ..Settings::default()
    });
    pair.rule(Server, |number, _| match number {
        0 => Fate::Delay(ms(8)),
        _ => Fate::Deliver,
    });
    connects(pair);
}

#[test]
fn handshake_done_is_sent_until_it_arrives() {
    let mut pair = Pair::new();
    let mut lost = 0;
    pair.rule(Server, move |_, packets| {
        let is_done = packets
            .iter()
            .any(|packet| packet.has(kind::HANDSHAKE_DONE));
        if is_done && lost < 3 {
            lost += 1;
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.handshake();
    pair.run_for(ms(5_000));
    // Only a client whose handshake is confirmed updates its keys.
    pair.connection(Client).update_keys();
    pair.transfer(Client, 100);
    assert!(pair.last_packet(Client, PacketType::OneRtt).key_phase());
}

/// RFC 9002 section 6.2.4. The request waited for a second timeout, which started when HANDSHAKE_DONE came.
#[test]
fn a_request_that_is_lost_with_the_end_of_the_handshake_is_sent_again_with_it() {
    let mut pair = Pair::new();
    pair.run_until(|pair| pair.server.has_connection());
    pair.lose_all(Client);
    pair.run_until(|pair| pair.client.is_connected());
    let stream = pair.client.send(Dir::Bi, data(500), true);
    pair.step();
    pair.no_rule(Client);
    pair.forget_sent();
    assert!(pair.run_until(|pair| pair.server.finished.contains(&stream)));
    let first = pair.seen().remove(0);
    let kinds: Vec<_> = first.packets.iter().map(|packet| packet.kind).collect();
    assert_eq!(first.sender, Client);
    assert_eq!(kinds, [PacketType::Handshake, PacketType::OneRtt]);
}

/// RFC 9001 section 5.7: the server has keys for them, and waits for the end of the handshake.
#[test]
fn data_that_overtakes_the_end_of_the_handshake_is_not_read_before_it() {
    let mut pair = Pair::new();
    pair.rule(Client, |_, packets| {
        let is_end = packets
            .iter()
            .any(|packet| packet.kind == PacketType::Handshake);
        if is_end { Fate::Drop } else { Fate::Deliver }
    });
    pair.run_until(|pair| pair.client.is_connected());
    let stream = pair.client.send(Dir::Uni, data(100), true);
    pair.run_for(ms(500));
    assert!(!pair.server.is_connected() && pair.server.inbox.is_empty());
    pair.no_rule(Client);
    assert!(pair.run_until(|pair| pair.server.finished.contains(&stream)));
}

/// RFC 9001 section 4.9.1.
#[test]
fn a_client_sends_no_initial_packet_after_its_first_handshake_packet() {
    let mut pair = Pair::new();
    pair.links(|link| link.loss = 0.2);
    pair.handshake();
    let packets = pair.packets(Client);
    let first = packets
        .iter()
        .position(|packet| packet.kind == PacketType::Handshake)
        .unwrap();
    let later = packets[first..].iter();
    assert_eq!(
        later
            .filter(|packet| packet.kind == PacketType::Initial)
            .count(),
        0
    );
}

/// RFC 9001 section 4.9: everybody who saw the handshake could make such packets.
#[test]
fn initial_packets_after_the_handshake_close_nothing() {
    let mut pair = Pair::connected();
    for side in [Client, Server] {
        let initial = pair.last_packet(side, PacketType::Initial);
        let close = integers(&[kind::CONNECTION_CLOSE, 1, 0, 0]);
        pair.forge(side, &initial.following(10, &close));
    }
    pair.run_for(ms(100));
    pair.transfer(Client, 100);
    assert_eq!((pair.client.end(), pair.server.end()), (None, None));
}

/// RFC 9000 section 14.1.
#[test]
fn datagrams_with_initial_packets_are_large() {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        ..Settings::default()
    });
    pair.links(|link| link.loss = 0.2);
    pair.handshake();
    let mut count = 0;
    for seen in pair.seen() {
        let has_initial = seen.packets.iter().any(|packet| {
            packet.kind == PacketType::Initial
                && (seen.sender == Client || packet.is_ack_eliciting())
        });
        assert!(!has_initial || seen.size >= 1_200, "{seen:?}");
        count += usize::from(has_initial);
    }
    assert!(count >= 2);
}

#[test]
fn a_client_without_a_response_gives_up_after_the_idle_timeout() {
    let mut pair = Pair::new();
    pair.lose_all(Client);
    pair.run_until(|pair| pair.client.end().is_some());
    assert_eq!(pair.client.end(), Some(ConnectionEnd::TimedOut));
    assert_eq!(pair.time(), ms(30_000));
}

/// RFC 9001 section 4.8: the code is 0x100 and the alert.
#[test]
fn an_alert_of_tls_closes_both_ends() {
    const NO_APPLICATION_PROTOCOL: u64 = 120;
    const UNKNOWN_CA: u64 = 48;
    let other_protocol: fn(&mut rustls::ClientConfig) =
        |config| config.alpn_protocols = vec![b"other".to_vec()];
    for (edit, side, alert) in [
        (other_protocol, Server, NO_APPLICATION_PROTOCOL),
        (tls::trust_another_authority, Client, UNKNOWN_CA),
    ] {
        let mut pair = Pair::with(Settings {
            edit_client_tls: Some(edit),
            ..Settings::default()
        });
        pair.run_for(ms(100));
        assert_eq!(pair.end(side).own_error(), Some(0x100 + alert));
        assert_eq!(pair.end(!side).peer_error(), Some(0x100 + alert));
        pair.run_for(ms(10_000));
        assert_eq!((pair.client.drained, pair.server.drained), (1, 1));
    }
}

/// RFC 9000 section 12.2.
#[test]
fn packets_of_several_levels_share_a_datagram() {
    let mut pair = Pair::new();
    pair.handshake();
    let seen = pair.seen();
    let types = |side| {
        let of_side = seen.iter().filter(move |seen| seen.sender == side);
        of_side.map(|seen| {
            seen.packets
                .iter()
                .map(|packet| packet.kind)
                .collect::<Vec<_>>()
        })
    };
    let first = types(Server).next().unwrap();
    assert_eq!(first[..2], [PacketType::Initial, PacketType::Handshake]);
    let second = types(Client).nth(1).unwrap();
    assert_eq!(second[..2], [PacketType::Initial, PacketType::Handshake]);
}
