//! 0-RTT data (RFC 9001 section 4.6, RFC 9000 section 7.4.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_quic_protocol::{Dir, StreamId, TransportConfig};

use crate::harness::wire::PacketType;
use crate::harness::*;

/// A client that has a session of the server, and begins to resume it.
fn resuming(settings: Settings) -> Pair {
    let mut pair = Pair::connected_with(settings);
    pair.connect();
    assert!(pair.client.connection().has_early_data());
    pair
}

fn send_early(pair: &mut Pair, length: usize) -> StreamId {
    pair.client.send(Dir::Uni, data(length), true)
}

fn is_read(pair: &mut Pair, stream: StreamId) -> bool {
    pair.run_until(|pair| pair.server.finished.contains(&stream))
}

#[test]
fn accepted_early_data_is_read_half_a_round_trip_after_the_start() {
    let mut pair = resuming(Settings::default());
    let begin = pair.time();
    let stream = send_early(&mut pair, 500);
    assert!(is_read(&mut pair, stream));
    assert_eq!(pair.time() - begin, ms(10));
    pair.handshake();
    assert!(pair.client.connection().is_early_data_accepted());
}

/// The server restarts without its sessions: it does not know the one that the client resumes.
#[test]
fn rejected_early_data_is_forgotten_and_can_be_sent_again() {
    let mut pair = Pair::connected();
    pair.forget_sessions();
    pair.connect();
    assert!(pair.client.connection().has_early_data());
    let _ = send_early(&mut pair, 500);
    pair.handshake();
    assert!(!pair.client.connection().is_early_data_accepted());
    assert!(pair.server.inbox.is_empty());
    pair.transfer(Client, 500);
}

/// RFC 9001 section 9.2: each session is used once.
#[test]
fn a_first_datagram_that_is_replayed_has_no_early_data() {
    let mut pair = resuming(Settings::default());
    let stream = send_early(&mut pair, 100);
    assert!(is_read(&mut pair, stream));
    let first = pair.sent[0].datagram.clone();
    pair.handshake();
    pair.close(Client, 0, "");
    pair.run_for(ms(2_000));
    assert_eq!(pair.server.drained, 1);
    // The server has forgotten the connection.
    let now = pair.now;
    pair.network.deliver_at(now, first);
    pair.run_for(ms(100));
    assert_eq!(pair.server.opened, 3);
    assert!(pair.server.inbox.is_empty());
}

#[test]
fn lost_early_data_is_sent_again_after_the_handshake() {
    let mut pair = resuming(Settings::default());
    pair.rule(Client, |_, packets| {
        let is_early = packets
            .iter()
            .any(|packet| packet.kind == PacketType::ZeroRtt);
        let is_first = packets
            .iter()
            .any(|packet| packet.kind == PacketType::Initial);
        if is_early && !is_first {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    let stream = send_early(&mut pair, 8_000);
    assert!(is_read(&mut pair, stream));
    assert!(pair.server.inbox[&stream] == data(8_000));
}

#[test]
fn early_data_that_arrives_before_the_client_hello_is_not_lost() {
    let mut pair = resuming(Settings::default());
    pair.rule(Client, |number, _| match number {
        0 => Fate::Delay(ms(5)),
        _ => Fate::Deliver,
    });
    let stream = send_early(&mut pair, 8_000);
    assert!(is_read(&mut pair, stream));
    assert!(pair.server.inbox[&stream] == data(8_000));
}

#[test]
fn early_data_is_bounded_by_the_limits_of_the_session() {
    let mut pair = resuming(Settings {
        server: TransportConfig {
            stream_receive_window: 3_000,
            ..TransportConfig::default()
        },
        ..Settings::default()
    });
    let stream = send_early(&mut pair, 10_000);
    assert_eq!(pair.client.unwritten(), 7_000);
    assert!(is_read(&mut pair, stream));
}

/// Section 7.4.1: the client may have used the limits that it remembers.
#[test]
fn lower_limits_than_those_of_the_session_are_an_error() {
    let is_lower = Arc::new(AtomicBool::new(false));
    let lowers = Arc::clone(&is_lower);
    let lower = parameters::number(0x4, 1_000);
    #[expect(clippy::arc_with_non_send_sync, reason = "a test is one thread")]
    let edit = Arc::new(move |parameters| {
        if lowers.load(Ordering::Relaxed) {
            lower(parameters)
        } else {
            parameters
        }
    });
    let mut pair = resuming(Settings {
        edit_server_parameters: Some(edit),
        ..Settings::default()
    });
    is_lower.store(true, Ordering::Relaxed);
    let _ = send_early(&mut pair, 500);
    pair.run_until(|pair| pair.client.end().is_some());
    assert_eq!(pair.client.own_error(), Some(0xa));
}

#[test]
fn early_data_before_a_retry_packet_is_sent_again() {
    let mut pair = Pair::connected();
    // The token of the first connection is used up by one in between.
    pair.connect();
    pair.rule(Server, |_, packets| {
        let has_token = packets
            .iter()
            .any(|packet| packet.has(wire::kind::NEW_TOKEN));
        if has_token { Fate::Drop } else { Fate::Deliver }
    });
    pair.run_until(|pair| pair.client.is_connected());
    pair.run_for(ms(20));
    pair.no_rule(Server);
    pair.server.on_incoming = end::OnIncoming::Retry;
    pair.connect();
    assert!(pair.client.connection().has_early_data());
    let stream = send_early(&mut pair, 3_000);
    assert!(is_read(&mut pair, stream));
    assert!(pair.server.inbox[&stream] == data(3_000));
    let packets = pair.packets(Server);
    assert!(
        packets
            .iter()
            .any(|packet| packet.kind == PacketType::Retry)
    );
}
