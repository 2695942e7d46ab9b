//! The end of a connection in each of its states (RFC 9000 section 10).

use apus_quic_protocol::{ConnectionEnd, Dir};
use bytes::Bytes;

use crate::harness::wire::{PacketType, integers, kind};
use crate::harness::*;

fn closed(code: u64, reason: &'static str) -> Option<ConnectionEnd> {
    Some(ConnectionEnd::Application {
        code,
        reason: Bytes::from_static(reason.as_bytes()),
    })
}

#[test]
fn the_peer_gets_the_code_and_the_reason_of_the_application() {
    for side in [Client, Server] {
        let mut pair = Pair::connected();
        pair.close(side, 77, "enough");
        pair.run_for(ms(10));
        assert_eq!(pair.end(!side).end(), closed(77, "enough"));
        // The end that closes is told nothing.
        assert_eq!(pair.end(side).end(), None);
    }
}

/// Three probe timeouts (section 10.2).
#[test]
fn both_ends_are_drained_after_three_probe_timeouts() {
    let mut pair = Pair::connected();
    pair.close(Client, 0, "");
    pair.run_for(ms(50));
    assert_eq!((pair.client.drained, pair.server.drained), (0, 0));
    let begin = pair.time();
    pair.run_until(|pair| pair.client.drained + pair.server.drained == 2);
    let time = pair.time() - begin;
    assert!(time > ms(50) && time < ms(500), "{time:?}");
}

/// Section 10.2.3: the code of the application is not for those who could read Initial packets.
#[test]
fn a_close_before_the_end_of_the_handshake_hides_the_code_of_the_application() {
    let mut pair = Pair::new();
    // The client has keys of Initial packets only.
    pair.lose(Server, &[0]);
    pair.run_for(ms(10));
    pair.close(Server, 77, "secret");
    pair.run_until(|pair| pair.client.end().is_some());
    let hidden = pair
        .packets(Server)
        .into_iter()
        .filter(|packet| packet.kind != PacketType::OneRtt);
    for frame in hidden.flat_map(|packet| packet.frames()) {
        assert!(frame.kind != kind::APPLICATION_CLOSE && frame.data != b"secret");
    }
    // APPLICATION_ERROR
    assert_eq!(pair.client.peer_error(), Some(0xc));
}

#[test]
fn a_client_that_closes_before_a_response_is_not_connected() {
    let mut pair = Pair::new();
    pair.run_for(ms(5));
    pair.close(Client, 77, "");
    pair.run_for(ms(100));
    assert_eq!(pair.server.peer_error(), Some(0xc));
    assert!(!pair.server.is_connected());
    pair.run_for(ms(5_000));
    assert_eq!((pair.client.drained, pair.server.drained), (1, 1));
}

/// Section 10.2.1: after the first, the second, the fourth further datagram, and so on.
#[test]
fn a_lost_close_is_repeated_ever_more_rarely() {
    let mut pair = Pair::connected();
    pair.lose_all(Client);
    pair.close(Client, 77, "");
    pair.run_for(ms(5));
    let before = pair.packets(Client).len();
    // The server knows nothing, and sends one datagram after the other.
    for _ in 0..15 {
        pair.connection(Server).ping();
        pair.run_for(ms(1));
    }
    pair.run_for(ms(10));
    let repeated = pair.packets(Client).len() - before;
    assert_eq!(repeated, 4, "after 1, 2, 4 and 8 datagrams");
    pair.no_rule(Client);
    pair.connection(Server).ping();
    pair.run_for(ms(5));
    for _ in 0..20 {
        pair.connection(Server).ping();
        pair.run_for(ms(1));
    }
    pair.run_for(ms(20));
    assert_eq!(pair.server.end(), closed(77, ""));
}

#[test]
fn ends_that_close_at_the_same_time_are_both_drained() {
    let mut pair = Pair::connected();
    pair.close(Client, 1, "");
    pair.close(Server, 2, "");
    pair.run_for(ms(5_000));
    assert_eq!((pair.client.drained, pair.server.drained), (1, 1));
    // Each has closed it itself.
    assert_eq!((pair.client.end(), pair.server.end()), (None, None));
}

/// Section 10.2.2.
#[test]
fn a_draining_end_sends_nothing() {
    let mut pair = Pair::connected();
    pair.server.send(Dir::Uni, data(100_000), true);
    pair.close(Client, 0, "");
    pair.run_for(ms(10));
    assert!(pair.connection(Server).is_closed());
    let before = pair.bytes_sent(Server);
    let ping = pair.last_packet(Client, PacketType::OneRtt);
    pair.forge(Client, &ping.following(20, &integers(&[kind::PING])));
    pair.run_for(ms(1_000));
    assert_eq!(pair.bytes_sent(Server), before);
}

/// Section 10.2.1: a closing end processes no frames.
#[test]
fn data_after_a_close_is_not_read() {
    let mut pair = Pair::connected();
    pair.close(Server, 0, "");
    let stream = pair.client.send(Dir::Uni, data(10), true);
    pair.run_for(ms(1_000));
    assert!(!pair.server.inbox.contains_key(&stream));
    assert_eq!(pair.connection(Server).received_memory(), 0);
}

#[test]
fn an_error_of_the_peer_closes_with_its_code_and_frame_type() {
    let mut pair = Pair::connected();
    pair.inject(Client, vec![0x2f]);
    pair.run_for(ms(100));
    assert_eq!(pair.server.own_error(), Some(0x7));
    assert_eq!(pair.client.peer_error(), Some(0x7));
    let close = pair.last_packet(Server, PacketType::OneRtt).frames();
    let close = close
        .iter()
        .find(|frame| frame.kind == kind::CONNECTION_CLOSE);
    assert_eq!(close.unwrap().fields[..2], [0x7, 0x2f]);
}

/// Section 10.3: the server has lost its state.
#[test]
fn a_stateless_reset_ends_the_connection() {
    let mut pair = Pair::connected();
    pair.lose_all(Server);
    pair.connection(Server).abandon();
    pair.run_for(ms(5));
    assert_eq!(pair.server.drained, 1);
    pair.no_rule(Server);
    pair.client.send(Dir::Uni, data(100), true);
    pair.run_for(ms(50));
    assert_eq!(pair.client.end(), Some(ConnectionEnd::Reset));
    pair.run_for(ms(5_000));
    assert_eq!(pair.client.drained, 1);
}

/// Section 10.3.1: it is a packet that cannot be decrypted.
#[test]
fn a_stateless_reset_with_another_token_is_dropped() {
    let mut pair = Pair::connected();
    let mut reset = pair.sent.last().unwrap().datagram.clone();
    (reset.sender, reset.from, reset.to) = (Server, server_address(), client_address());
    reset.bytes = [&[0x40][..], &[7; 40]].concat();
    let now = pair.now;
    pair.network.deliver_at(now, reset);
    pair.run_for(ms(10));
    assert_eq!(pair.client.end(), None);
    pair.transfer(Client, 100);
}

/// Sections 10.3 and 10.3.3: two ends without state do not send resets to one another for ever.
#[test]
fn a_stateless_reset_is_smaller_than_its_cause() {
    let mut pair = Pair::connected();
    let id = pair.last_packet(Client, PacketType::OneRtt).destination;
    pair.connection(Server).abandon();
    pair.step();
    let mut responses = Vec::new();
    for size in 9..60 {
        let mut datagram = pair.sent[0].datagram.clone();
        datagram.bytes = [&[0x40][..], &id].concat();
        datagram.bytes.resize(size, 1);
        let before = pair.sent.len();
        let now = pair.now;
        pair.network.deliver_at(now, datagram);
        pair.step();
        for sent in &pair.sent[before..] {
            let response = sent.datagram.bytes.len();
            assert!(response < size, "{response} for {size}");
            // It looks like a packet with a short header.
            assert_eq!(sent.datagram.bytes[0] & 0xc0, 0x40);
            responses.push(size);
        }
        pair.now += ms(2);
        pair.network.clear();
    }
    // The least reset has 21 bytes.
    assert_eq!(responses.first(), Some(&22));
    assert_eq!(responses.len(), 60 - 22);
}

#[test]
fn stateless_resets_are_limited_in_number() {
    let mut pair = Pair::connected();
    let id = pair.last_packet(Client, PacketType::OneRtt).destination;
    pair.connection(Server).abandon();
    pair.step();
    let before = pair.sent.len();
    for _ in 0..100 {
        let mut datagram = pair.sent[0].datagram.clone();
        datagram.bytes = [&[0x40][..], &id, &[1; 60]].concat();
        let now = pair.now;
        pair.network.deliver_at(now, datagram);
    }
    pair.step();
    assert_eq!(pair.sent.len() - before, 1);
}

#[test]
fn a_long_reason_is_cut_to_a_packet() {
    let mut pair = Pair::connected();
    let now = pair.now;
    let reason = Bytes::from(vec![b'a'; 100_000]);
    pair.connection(Server).close(now, 7, reason);
    pair.run_for(ms(10));
    let Some(ConnectionEnd::Application { code: 7, reason }) = pair.client.end() else {
        panic!("{:?}", pair.client.end());
    };
    assert!(reason.len() >= 100 && reason.len() <= 1_200);
    assert!(reason.iter().all(|byte| *byte == b'a'));
}

#[test]
fn a_close_is_not_sent_beyond_three_times_what_came() {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        ..Settings::default()
    });
    pair.run_for(ms(10));
    pair.lose_all(Client);
    pair.run_for(ms(5));
    let before = pair.bytes_sent(Server);
    assert!(before > 2 * 1_200);
    pair.close(Server, 0, "");
    pair.run_for(ms(5_000));
    assert_eq!(pair.bytes_sent(Server), before);
    assert_eq!(pair.server.drained, 1);
}

/// Nothing is left of it in the endpoint.
#[test]
fn a_packet_of_a_drained_connection_gets_a_stateless_reset() {
    let mut pair = Pair::connected();
    let last = pair.last_packet(Client, PacketType::OneRtt);
    pair.close(Server, 0, "");
    pair.run_for(ms(5_000));
    let ping = last.following(100, &[&integers(&[kind::PING])[..], &[0; 50]].concat());
    let before = pair.sent.len();
    pair.forge(Client, &ping);
    pair.step();
    assert_eq!(pair.sent.len(), before + 1);
    assert!(pair.sent[before].datagram.bytes.len() < 60);
}
