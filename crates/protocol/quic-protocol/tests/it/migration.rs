//! Changes of the client's address (RFC 9000 section 9), and the validation of paths (section 8.2).

use std::net::SocketAddr;

use apus_quic_protocol::{Dir, Side};

use crate::harness::network::Datagram;
use crate::harness::wire::{PacketType, kind};
use crate::harness::*;

/// Another port, as a NAT chooses it, and another network.
fn port() -> SocketAddr {
    "192.0.2.1:2000".parse().unwrap()
}

fn elsewhere() -> SocketAddr {
    "203.0.113.9:3000".parse().unwrap()
}

/// The bytes that the server has sent to an address.
fn bytes_to(pair: &Pair, address: SocketAddr) -> usize {
    let sent = pair.sent.iter().filter(|sent| sent.datagram.to == address);
    sent.map(|sent| sent.datagram.bytes.len()).sum()
}

fn bytes_from(pair: &Pair, address: SocketAddr) -> usize {
    let sent = pair
        .sent
        .iter()
        .filter(|sent| sent.datagram.from == address);
    sent.map(|sent| sent.datagram.bytes.len()).sum()
}

/// How many frames of this type an end has sent.
fn frames(pair: &Pair, side: Side, kind: u64) -> usize {
    let frames = pair
        .packets(side)
        .into_iter()
        .flat_map(|packet| packet.frames());
    frames.filter(|frame| frame.kind == kind).count()
}

#[test]
fn a_connection_follows_its_client_to_another_address() {
    for address in [port(), elsewhere()] {
        let mut pair = Pair::connected();
        pair.client.address = address;
        pair.transfer(Client, 50_000);
        pair.transfer(Server, 50_000);
        assert_eq!(pair.connection(Server).remote_address(), address);
        assert!(frames(&pair, Server, kind::PATH_CHALLENGE) > 0);
        assert!(frames(&pair, Client, kind::PATH_RESPONSE) > 0);
    }
}

/// Section 9.4: after a change of the port alone, the way of the packets is most likely the same.
#[test]
fn congestion_control_begins_anew_in_another_network_only() {
    for (address, is_kept) in [(port(), true), (elsewhere(), false)] {
        let mut pair = Pair::connected();
        pair.transfer(Server, 500_000);
        let before = pair.connection(Server).congestion_window();
        assert!(before > 50_000);
        pair.client.address = address;
        pair.connection(Client).ping();
        pair.run_for(ms(15));
        let after = pair.connection(Server).congestion_window();
        assert_eq!(after == before, is_kept, "{before} {after}");
    }
}

/// Section 8: the address may be that of a victim.
#[test]
fn an_address_gets_three_times_what_came_from_it_until_it_is_validated() {
    for address in [port(), elsewhere()] {
        let mut pair = Pair::connected();
        pair.server.send(Dir::Uni, data(500_000), true);
        pair.client.address = address;
        pair.connection(Client).ping();
        pair.run_for(ms(0));
        // The client gets nothing at its new address.
        pair.lose_all(Client);
        pair.run_for(ms(60));
        let (received, sent) = (bytes_from(&pair, address), bytes_to(&pair, address));
        assert!(sent > 0 && sent <= 3 * received, "{sent} {received}");
    }
}

#[test]
fn a_lost_challenge_is_sent_again() {
    let mut pair = Pair::connected();
    pair.client.address = elsewhere();
    let mut is_lost = false;
    pair.rule(Server, move |_, packets| {
        let is_challenge = packets
            .iter()
            .any(|packet| packet.has(kind::PATH_CHALLENGE));
        if is_challenge && !std::mem::replace(&mut is_lost, is_challenge) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.transfer(Client, 100_000);
    // The probe timeout without a sample of the round trip, on the new path.
    pair.run_for(ms(999 + 25));
    assert!(frames(&pair, Client, kind::PATH_RESPONSE) > 0);
    pair.transfer(Server, 100_000);
}

/// Section 9.3.2: an attacker has copied a packet of the client to another address.
#[test]
fn a_connection_returns_to_the_address_before_when_the_new_one_does_not_respond() {
    let mut pair = Pair::connected();
    let last = pair.last_packet(Client, PacketType::OneRtt);
    let ping = last.following(3, &[1, 0, 0, 0, 0]);
    let real = pair.client.address;
    pair.client.address = elsewhere();
    pair.forge(Client, &ping);
    pair.client.address = real;
    pair.run_for(ms(1));
    assert_eq!(pair.connection(Server).remote_address(), elsewhere());
    pair.run_for(ms(2_000));
    assert_eq!(pair.connection(Server).remote_address(), real);
    pair.transfer(Server, 10_000);
}

/// Section 9.3: only the packet with the highest number moves the connection.
#[test]
fn a_packet_that_is_late_does_not_move_a_connection() {
    let mut pair = Pair::connected();
    pair.rule(Client, |number, _| match number {
        0 => Fate::Delay(ms(50)),
        _ => Fate::Deliver,
    });
    let real = pair.client.address;
    pair.client.address = elsewhere();
    pair.connection(Client).ping();
    pair.run_for(ms(0));
    pair.client.address = real;
    pair.connection(Client).ping();
    pair.run_for(ms(200));
    assert_eq!(frames(&pair, Server, kind::PATH_CHALLENGE), 0);
    assert_eq!(pair.connection(Server).remote_address(), real);
}

/// Section 9.1: such a packet asks only whether a path works.
#[test]
fn a_packet_that_probes_a_path_does_not_move_a_connection() {
    let mut pair = Pair::connected();
    let last = pair.last_packet(Client, PacketType::OneRtt);
    let mut challenge = vec![kind::PATH_CHALLENGE as u8];
    challenge.extend([9; 8]);
    challenge.resize(500, 0);
    let real = pair.client.address;
    pair.client.address = elsewhere();
    pair.forge(Client, &last.following(3, &challenge));
    pair.client.address = real;
    pair.step();
    assert_eq!(pair.connection(Server).remote_address(), real);
    let seen = pair.seen();
    let mut seen = seen
        .iter()
        .filter(|seen| seen.sent.datagram.to == elsewhere());
    let frames = seen.next().unwrap().packets[0].frames();
    assert_eq!(
        (frames[0].kind, &frames[0].data[..]),
        (kind::PATH_RESPONSE, &[9; 8][..])
    );
    assert!(seen.next().is_none());
}

/// Section 8.2.2: the response to a small packet is no amplification.
#[test]
fn the_response_to_a_small_challenge_is_three_times_as_large_at_most() {
    for size in [20, 100, 399, 400, 401] {
        let mut pair = Pair::connected();
        let last = pair.last_packet(Client, PacketType::OneRtt);
        let mut challenge = vec![kind::PATH_CHALLENGE as u8];
        challenge.extend([9; 8]);
        challenge.resize(size, 0);
        let challenge = last.following(3, &challenge);
        pair.client.address = elsewhere();
        pair.forge(Client, &challenge);
        pair.client.address = client_address();
        pair.step();
        let (to, datagram) = (elsewhere(), size + 16 + 9 + 4);
        let sent = bytes_to(&pair, to);
        assert!(
            sent > 0 && sent <= 3 * datagram && sent <= 1_200,
            "{size} {sent}"
        );
    }
}

#[test]
fn a_packet_from_elsewhere_before_the_handshake_is_confirmed_does_not_move_a_connection() {
    let mut pair = Pair::new();
    pair.run_for(ms(15));
    pair.client.address = elsewhere();
    pair.run_until(|pair| pair.server.has_connection());
    pair.run_for(ms(5));
    assert_eq!(pair.connection(Server).remote_address(), client_address());
}

/// Section 9: servers do not migrate.
#[test]
fn a_client_drops_packets_of_another_address() {
    let mut pair = Pair::connected();
    pair.server.send(Dir::Uni, data(1_000), true);
    pair.rule(Server, |_, _| Fate::Drop);
    pair.step();
    let packet = pair.sent.last().unwrap().datagram.clone();
    let now = pair.now;
    let from = elsewhere();
    pair.network.deliver_at(
        now,
        Datagram {
            from,
            ..packet.clone()
        },
    );
    pair.run_for(ms(1));
    assert!(pair.client.inbox.is_empty());
    let now = pair.now;
    pair.network.deliver_at(now, packet);
    pair.run_for(ms(1));
    assert_eq!(pair.client.inbox.len(), 1);
}

/// Section 9.5: an observer cannot link the paths.
#[test]
fn a_server_uses_another_connection_id_on_another_path() {
    let mut pair = Pair::connected();
    let before = pair.last_packet(Server, PacketType::OneRtt).destination;
    pair.client.address = elsewhere();
    pair.connection(Client).ping();
    pair.run_for(ms(200));
    let after = pair.last_packet(Server, PacketType::OneRtt).destination;
    assert_ne!(before, after);
    assert_eq!(frames(&pair, Server, kind::RETIRE_CONNECTION_ID), 1);
    // The client offers another one in its place.
    let offered = frames(&pair, Client, kind::NEW_CONNECTION_ID);
    assert_eq!(offered, 3);
}

/// Nothing opened the window: what was in flight went to the address before. The server returned to that in the end.
#[test]
fn a_challenge_is_sent_although_the_window_is_full_of_packets_to_the_address_before() {
    let mut pair = Pair::connected();
    pair.server.send(Dir::Uni, data(1_000_000), true);
    pair.run_for(ms(2));
    pair.client.address = port();
    pair.network.clear();
    pair.connection(Client).ping();
    pair.run_for(ms(12));
    let seen = pair.seen();
    let mut to_port = seen.iter().filter(|seen| seen.sent.datagram.to == port());
    assert!(to_port.any(|seen| seen.packets[0].has(kind::PATH_CHALLENGE)));
}

#[test]
fn a_client_may_change_its_address_again_and_again() {
    for seed in 0..3 {
        let mut pair = Pair::connected_with(Settings {
            seed,
            ..Settings::default()
        });
        pair.links(|link| link.loss = 0.05);
        let stream = pair.server.send(Dir::Uni, data(1_000_000), true);
        for change in 0..10 {
            pair.client.address = format!("192.0.2.{}:{}", 1 + change / 2, 1_000 + change)
                .parse()
                .unwrap();
            pair.connection(Client).ping();
            pair.run_for(ms(50));
        }
        let is_read = pair.run_until(|pair| pair.client.finished.contains(&stream));
        assert!(is_read, "{:?} {:?}", pair.client.end(), pair.server.end());
        assert!(pair.client.inbox[&stream] == data(1_000_000));
    }
}

/// The address changes before the one before is validated.
#[test]
fn a_second_change_of_the_address_before_the_first_is_validated_is_followed() {
    let mut pair = Pair::connected();
    pair.client.address = elsewhere();
    pair.connection(Client).ping();
    pair.run_for(ms(12));
    pair.client.address = port();
    pair.transfer(Client, 20_000);
    pair.transfer(Server, 20_000);
    assert_eq!(pair.connection(Server).remote_address(), port());
}

#[test]
fn a_path_response_with_other_data_validates_nothing() {
    let mut pair = Pair::connected();
    pair.server.send(Dir::Uni, data(300_000), true);
    pair.client.address = elsewhere();
    pair.connection(Client).ping();
    pair.run_for(ms(0));
    pair.rule(Server, |_, _| Fate::Drop);
    let mut response = vec![kind::PATH_RESPONSE as u8];
    response.extend([9; 8]);
    let last = pair.last_packet(Client, PacketType::OneRtt);
    pair.run_for(ms(12));
    pair.forge(Client, &last.following(5, &response));
    pair.run_for(ms(20));
    let (received, sent) = (
        bytes_from(&pair, elsewhere()) + 40,
        bytes_to(&pair, elsewhere()),
    );
    assert!(sent <= 3 * received, "{sent} {received}");
}

/// Section 8.2.1: a path that passes only small packets is none.
#[test]
fn challenges_and_responses_are_in_large_datagrams() {
    let mut pair = Pair::connected();
    pair.client.address = elsewhere();
    pair.transfer(Client, 20_000);
    pair.run_for(ms(100));
    let mut count = 0;
    for seen in pair.seen() {
        let has = |kind| seen.packets.iter().any(|packet| packet.has(kind));
        if has(kind::PATH_RESPONSE) {
            assert!(seen.size >= 1_200, "{seen:?}");
            count += 1;
        }
    }
    assert!(count > 0);
}

/// Many addresses in a short time, as an attacker forges them: only four responses wait.
#[test]
fn challenges_from_many_addresses_get_few_responses() {
    let mut pair = Pair::connected();
    let last = pair.last_packet(Client, PacketType::OneRtt);
    let mut challenge = vec![kind::PATH_CHALLENGE as u8];
    challenge.extend([9; 8]);
    for number in 0..20 {
        pair.client.address = format!("203.0.113.{number}:1").parse().unwrap();
        pair.forge(
            Client,
            &last.following(1 + u64::from(number as u8), &challenge),
        );
    }
    pair.client.address = client_address();
    let before = frames(&pair, Server, kind::PATH_RESPONSE);
    pair.step();
    assert_eq!(frames(&pair, Server, kind::PATH_RESPONSE) - before, 4);
}
