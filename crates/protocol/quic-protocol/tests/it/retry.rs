//! Proofs of addresses by Retry packets and tokens (RFC 9000 section 8.1).

use crate::harness::end::OnIncoming;
use crate::harness::wire::PacketType;
use crate::harness::*;

fn pair() -> Pair {
    let mut pair = Pair::new();
    pair.server.on_incoming = OnIncoming::Retry;
    pair
}

#[test]
fn a_retry_packet_costs_one_round_trip() {
    let mut pair = pair();
    pair.run_until(|pair| pair.client.is_connected());
    assert_eq!(pair.time(), ms(40));
    pair.transfer(Client, 1_000);
}

#[test]
fn a_lost_retry_packet_is_sent_again_for_the_same_client_hello() {
    let mut pair = pair();
    pair.lose(Server, &[0]);
    pair.handshake();
    assert_eq!(pair.server.opened, 1);
    let retries = pair.packets(Server);
    let retries = retries
        .iter()
        .filter(|packet| packet.kind == PacketType::Retry);
    // A probe is two packets.
    assert_eq!(retries.count(), 3);
}

/// RFC 9000 section 17.2.5.2: a client accepts one Retry packet.
#[test]
fn a_second_retry_packet_is_ignored() {
    let mut pair = pair();
    pair.rule(Server, |number, _| match number {
        0 => Fate::Duplicate,
        _ => Fate::Deliver,
    });
    pair.handshake();
    let tokens: Vec<_> = pair
        .packets(Client)
        .into_iter()
        .filter(|packet| packet.kind == PacketType::Initial && !packet.token.is_empty())
        .map(|packet| packet.token)
        .collect();
    assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]) && !tokens.is_empty());
    assert_eq!(pair.server.opened, 1);
}

/// RFC 9001 section 5.8.
#[test]
fn a_retry_packet_that_was_changed_is_ignored() {
    let mut pair = pair();
    pair.link(Server).corruption = 1.0;
    pair.run_for(ms(100));
    assert_eq!(pair.packets(Client).len(), 1);
    pair.link(Server).corruption = 0.0;
    pair.handshake();
}

/// RFC 9000 section 8.1.3: the client could not get another Retry packet.
#[test]
fn a_retry_token_at_another_address_closes_the_connection() {
    let mut pair = pair();
    pair.run_for(ms(15));
    pair.client.address = "192.0.2.2:1000".parse().unwrap();
    // The Retry packet goes to the address before.
    let retry = pair.sent.last().unwrap().datagram.clone();
    let to = pair.client.address;
    let now = pair.now;
    pair.network.clear();
    pair.network
        .deliver_at(now, network::Datagram { to, ..retry });
    pair.run_until(|pair| pair.client.end().is_some());
    assert_eq!(pair.client.peer_error(), Some(0xb));
}

#[test]
fn a_token_lifts_the_limit_of_three_times() {
    let time = |on_incoming| {
        let mut pair = Pair::with(Settings {
            has_large_certificate: true,
            ..Settings::default()
        });
        pair.server.on_incoming = on_incoming;
        pair.run_until(|pair| pair.client.is_connected());
        pair.time()
    };
    // The certificate takes a round trip more than the Retry packet saves.
    assert!(time(OnIncoming::Accept) >= ms(40));
    assert_eq!(time(OnIncoming::Retry), ms(40));
}

#[test]
fn a_client_that_returns_needs_no_retry_packet() {
    let mut pair = pair();
    pair.handshake();
    for needs_retry in [false, false, false] {
        pair.connect();
        pair.handshake();
        let packets = pair.packets(Server);
        let has_retry = packets
            .iter()
            .any(|packet| packet.kind == PacketType::Retry);
        assert_eq!(has_retry, needs_retry);
    }
}

/// A token that was used proves nothing: whoever saw it could send it (section 8.1.4).
#[test]
fn a_token_is_used_once() {
    let mut pair = pair();
    pair.handshake();
    pair.connect();
    pair.lose_all(Client);
    pair.run_for(ms(1));
    let first = pair.last_packet(Client, PacketType::Initial);
    assert!(!first.token.is_empty());
    // Two connections with the same token, of which the second has to prove the address again.
    for (destination, retries) in [([0xc1; 8], 0), ([0xc2; 8], 1)] {
        pair.forge(Client, &first.of_another_connection(&destination));
        pair.step();
        assert_eq!(pair.server.opened, 2);
        let packets = pair.packets(Server).into_iter();
        let found = packets.filter(|packet| packet.kind == PacketType::Retry);
        assert_eq!(found.count(), retries);
    }
}

/// RFC 9000 section 17.2.5.2.
#[test]
fn a_retry_packet_after_another_packet_of_the_server_is_ignored() {
    let mut pair = pair();
    pair.run_for(ms(15));
    let retry = pair.sent.last().unwrap().datagram.clone();
    let mut pair = Pair::new();
    pair.run_until(|pair| pair.client.is_connected());
    let to = pair.client.address;
    let now = pair.now;
    pair.network
        .deliver_at(now, network::Datagram { to, ..retry });
    pair.handshake();
    assert!(
        pair.packets(Client)
            .iter()
            .all(|packet| packet.token.is_empty())
    );
}

#[test]
fn a_refused_client_learns_why() {
    let mut pair = Pair::new();
    pair.server.on_incoming = OnIncoming::Refuse;
    pair.run_until(|pair| pair.client.end().is_some());
    // CONNECTION_REFUSED
    assert_eq!(pair.client.peer_error(), Some(0x2));
    assert_eq!(pair.time(), ms(20));
}
