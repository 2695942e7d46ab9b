//! Packets that are dropped, and those that close the connection (RFC 9000 sections 5.2, 12 and 17).

use apus_quic_protocol::Dir;

use crate::harness::wire::{PacketType, integers, kind, stream};
use crate::harness::*;

#[test]
fn a_packet_that_comes_twice_is_read_once() {
    let mut pair = Pair::connected();
    pair.links(|link| link.duplication = 1.0);
    pair.transfer(Client, 20_000);
    pair.run_for(ms(100));
    let acked = pair
        .packets(Server)
        .into_iter()
        .flat_map(|packet| packet.frames());
    assert!(acked.filter(|frame| frame.kind == kind::ACK_ECN).count() < 40);
}

/// Section 12.2.
#[test]
fn packets_for_another_connection_in_a_datagram_are_dropped() {
    let mut pair = Pair::connected();
    pair.lose_all(Client);
    pair.client.send(Dir::Uni, data(10), true);
    pair.step();
    let mut datagram = pair.sent.last().unwrap().datagram.clone();
    // A packet with a long header for another connection, and this one after it.
    let mut handshake = vec![0xe0, 0, 0, 0, 1, 8];
    handshake.extend([0xa1; 8]);
    handshake.extend([0, 0x40, 30]);
    handshake.extend([7; 30]);
    datagram.bytes = [&handshake[..], &datagram.bytes].concat();
    let now = pair.now;
    pair.network.deliver_at(now, datagram);
    pair.run_for(ms(1));
    assert!(pair.server.inbox.is_empty());
}

#[test]
fn bytes_after_the_packets_of_a_datagram_are_ignored() {
    let mut pair = Pair::new();
    pair.edit(Client, PacketType::Initial, |_| {});
    pair.lose_all(Client);
    pair.run_for(ms(1));
    let mut first = pair.sent[0].datagram.clone();
    first.bytes.extend([0; 100]);
    let now = pair.now;
    pair.network.deliver_at(now, first);
    pair.no_rule(Client);
    pair.handshake();
}

/// Section 17.2 and 17.3.1.
#[test]
fn reserved_bits_are_an_error() {
    for (kind, bits) in [
        (PacketType::OneRtt, [0x08, 0x10]),
        (PacketType::Handshake, [0x04, 0x08]),
        (PacketType::Initial, [0x04, 0x08]),
    ] {
        for bit in bits {
            let mut pair = if kind == PacketType::OneRtt {
                Pair::connected()
            } else {
                Pair::new()
            };
            pair.edit(Client, kind, move |packet| packet.first |= bit);
            if kind == PacketType::OneRtt {
                pair.connection(Client).ping();
            }
            pair.run_for(ms(60));
            assert_eq!(pair.server.own_error(), Some(0xa), "{kind:?} {bit:#x}");
        }
    }
}

/// Section 17.2.2.
#[test]
fn an_initial_packet_of_a_server_with_a_token_is_dropped() {
    for (token, is_read) in [(&[][..], true), (&[7], false)] {
        let mut pair = Pair::new();
        pair.lose_all(Server);
        pair.run_for(ms(15));
        let mut first = pair.last_packet(Server, PacketType::Initial);
        first.token = token.to_vec();
        // A close is what shows that it is read.
        first.payload = integers(&[kind::CONNECTION_CLOSE, 0x2, 0, 0]);
        pair.forge(Server, &first);
        pair.run_for(ms(1));
        assert_eq!(pair.client.peer_error(), is_read.then_some(0x2));
    }
}

/// Section 12.4.
#[test]
fn a_packet_without_frames_is_an_error() {
    let mut pair = Pair::connected();
    let last = pair.last_packet(Client, PacketType::OneRtt);
    // PADDING is a frame.
    pair.forge(Client, &last.following(5, &[0; 4]));
    pair.run_for(ms(1));
    assert_eq!(pair.server.own_error(), None);
    pair.edit(Client, PacketType::OneRtt, |packet| {
        packet.number_length = 4;
        packet.first |= 0x3;
        packet.payload.clear();
        packet.is_without_padding = true;
    });
    pair.connection(Client).ping();
    pair.run_for(ms(50));
    assert_eq!(pair.server.own_error(), Some(0xa));
}

/// Section 19.7.
#[test]
fn a_token_without_bytes_is_an_error() {
    let mut pair = Pair::connected();
    pair.inject(Server, integers(&[kind::NEW_TOKEN, 0]));
    pair.run_for(ms(50));
    assert_eq!(pair.client.own_error(), Some(0x7));
}

/// RFC 9287: the bit of packets may be zero, where both ends say that they accept it.
#[test]
fn the_fixed_bit_is_set_only_for_peers_that_need_it() {
    for (is_accepted, least) in [(true, 10), (false, 0)] {
        let mut pair = Pair::connected_with(Settings {
            edit_client_parameters: (!is_accepted).then(|| parameters::removed(0x2ab2)),
            ..Settings::default()
        });
        pair.forget_sent();
        pair.transfer(Server, 100_000);
        let sent = pair
            .sent
            .iter()
            .filter(|sent| sent.datagram.sender == Server);
        let cleared = sent
            .filter(|sent| sent.datagram.bytes[0] & 0x40 == 0)
            .count();
        assert!(
            cleared >= least && (is_accepted || cleared == 0),
            "{cleared}"
        );
    }
}

/// RFC 9000 section 17.4: the latency of connections is not shown to observers.
#[test]
fn the_spin_bit_is_not_used() {
    let mut pair = Pair::connected();
    pair.transfer(Client, 20_000);
    pair.transfer(Server, 20_000);
    for side in [Client, Server] {
        let packets = pair.packets(side);
        let short = packets
            .iter()
            .filter(|packet| packet.kind == PacketType::OneRtt);
        assert_eq!(short.filter(|packet| packet.first & 0x20 != 0).count(), 0);
    }
}

#[test]
fn a_0_rtt_packet_after_the_handshake_is_dropped() {
    let mut pair = Pair::connected();
    pair.connect();
    pair.client.send(Dir::Uni, data(100), true);
    pair.handshake();
    let early = pair.last_packet(Client, PacketType::ZeroRtt);
    pair.forge(Client, &early.following(100, &stream(6, 0, b"late", true)));
    pair.run_for(ms(50));
    assert_eq!(pair.server.inbox.len(), 1);
    assert_eq!(pair.server.end(), None);
}
