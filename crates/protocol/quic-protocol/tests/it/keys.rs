//! Updates of the keys of 1-RTT packets (RFC 9001 section 6).

use apus_quic_protocol::{Dir, Side};

use crate::harness::wire::{PacketType, integers, kind};
use crate::harness::*;

/// The key phases of the 1-RTT packets of an end, without repetitions.
fn phases(pair: &Pair, side: Side) -> Vec<bool> {
    let packets = pair.packets(side).into_iter();
    let mut phases: Vec<_> = packets
        .filter(|packet| packet.kind == PacketType::OneRtt)
        .map(|packet| packet.key_phase())
        .collect();
    phases.dedup();
    phases
}

#[test]
fn a_key_update_is_followed_by_the_peer() {
    for side in [Client, Server] {
        let mut pair = Pair::connected();
        pair.connection(side).update_keys();
        pair.transfer(side, 10_000);
        pair.transfer(!side, 10_000);
        assert_eq!(phases(&pair, side), [false, true]);
        assert_eq!(phases(&pair, !side), [false, true]);
    }
}

#[test]
fn keys_are_updated_many_times_by_both_ends() {
    let mut pair = Pair::connected();
    for round in 0..5 {
        let side = if round % 2 == 0 { Client } else { Server };
        pair.connection(side).update_keys();
        pair.transfer(side, 5_000);
        pair.transfer(!side, 5_000);
        pair.run_for(ms(2_000));
    }
    for side in [Client, Server] {
        assert_eq!(phases(&pair, side), [false, true, false, true, false, true]);
    }
}

#[test]
fn both_ends_may_update_their_keys_at_the_same_time() {
    let mut pair = Pair::connected();
    for side in [Client, Server] {
        pair.connection(side).update_keys();
    }
    pair.transfer(Client, 50_000);
    pair.transfer(Server, 50_000);
    for side in [Client, Server] {
        assert_eq!(phases(&pair, side), [false, true]);
    }
}

#[test]
fn keys_are_updated_while_packets_are_lost_and_late() {
    for seed in 0..5 {
        let mut pair = Pair::connected_with(Settings {
            seed,
            ..Settings::default()
        });
        pair.links(|link| (link.loss, link.reordering) = (0.1, 0.2));
        for _ in 0..4 {
            pair.connection(Client).update_keys();
            pair.transfer(Client, 20_000);
            pair.connection(Server).update_keys();
            pair.transfer(Server, 20_000);
            pair.run_for(ms(3_000));
        }
        assert!(phases(&pair, Client).len() >= 5);
    }
}

/// RFC 9001 section 6.1: the handshake has to be confirmed before.
#[test]
fn keys_are_not_updated_before_the_handshake_is_confirmed() {
    let mut pair = Pair::new();
    pair.rule(Server, |_, packets| {
        let is_done = packets
            .iter()
            .any(|packet| packet.has(kind::HANDSHAKE_DONE));
        if is_done { Fate::Drop } else { Fate::Deliver }
    });
    pair.run_until(|pair| pair.client.is_connected());
    pair.connection(Client).update_keys();
    pair.transfer(Client, 100);
    assert_eq!(phases(&pair, Client), [false]);
}

/// RFC 9001 section 6.1: a packet with the current keys has to be acknowledged before.
#[test]
fn keys_are_not_updated_again_before_the_peer_has_followed() {
    let mut pair = Pair::connected();
    for _ in 0..4 {
        pair.connection(Client).update_keys();
    }
    pair.connection(Client).ping();
    pair.run_for(ms(5));
    pair.connection(Client).update_keys();
    pair.connection(Client).ping();
    pair.run_for(ms(100));
    assert_eq!(phases(&pair, Client), [false, true]);
    pair.transfer(Client, 100);
}

/// RFC 9001 section 6.4.
#[test]
fn new_keys_in_a_packet_before_one_with_old_keys_are_an_error() {
    for side in [Client, Server] {
        let mut pair = Pair::connected();
        pair.transfer(side, 5_000);
        let last = pair.last_packet(side, PacketType::OneRtt);
        // The number before, which was not used: the packet with it was lost.
        let mut unused = last.following(0, &integers(&[kind::PING]));
        let numbers: Vec<_> = pair
            .packets(side)
            .iter()
            .map(|packet| packet.number)
            .collect();
        pair.rule(side, |_, _| Fate::Drop);
        pair.connection(side).ping();
        pair.run_for(ms(5));
        pair.no_rule(side);
        pair.connection(side).ping();
        pair.run_for(ms(100));
        unused.number = (last.number + 1..)
            .find(|number| !numbers.contains(number))
            .unwrap();
        pair.forge(side, &unused.after_key_updates(1));
        pair.run_for(ms(50));
        assert_eq!(pair.end(!side).own_error(), Some(0xe));
    }
}

/// RFC 9001 section 6.3: packets that cannot be authenticated change no keys.
#[test]
fn a_changed_key_phase_updates_no_keys() {
    let mut pair = Pair::connected();
    let last = pair.last_packet(Client, PacketType::OneRtt);
    let mut forged = last.following(1, &integers(&[kind::PING]));
    forged.first ^= 0x4;
    pair.forge(Client, &forged);
    pair.run_for(ms(50));
    pair.transfer(Server, 100);
    assert_eq!(phases(&pair, Server), [false]);
}

/// RFC 9001 section 6.5.
#[test]
fn a_packet_with_old_keys_that_is_late_is_read() {
    let mut pair = Pair::connected();
    pair.rule(Client, |number, _| match number {
        0 => Fate::Delay(ms(30)),
        _ => Fate::Deliver,
    });
    let late = pair.client.send(Dir::Uni, data(100), true);
    pair.run_for(ms(0));
    pair.connection(Client).update_keys();
    pair.connection(Client).ping();
    pair.run_for(ms(1));
    // It does not arrive a second time.
    pair.lose_all(Client);
    pair.run_for(ms(38));
    assert!(!pair.server.finished.contains(&late));
    pair.run_for(ms(1));
    assert!(pair.server.finished.contains(&late));
}

/// RFC 9001 section 6.5: keys of the past do not stay.
#[test]
fn a_packet_with_old_keys_after_three_probe_timeouts_is_dropped() {
    let mut pair = Pair::connected();
    pair.rule(Client, |number, _| match number {
        0 => Fate::Delay(ms(2_000)),
        _ => Fate::Deliver,
    });
    pair.connection(Client).ping();
    pair.run_for(ms(0));
    pair.connection(Client).update_keys();
    pair.transfer(Client, 100);
    pair.run_for(ms(1_000));
    let before = pair.connection(Server).stats().udp_rx.datagrams;
    let sent = pair.packets(Server).len();
    pair.run_for(ms(1_100));
    assert_eq!(pair.connection(Server).stats().udp_rx.datagrams, before + 1);
    // It is not acknowledged.
    assert_eq!(pair.packets(Server).len(), sent);
}
