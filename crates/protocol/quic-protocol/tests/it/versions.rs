//! Versions (RFC 9000 section 6, RFC 9368, RFC 9369).

use apus_quic_protocol::{ConnectionEnd, QuicVersion};

use crate::harness::network::Datagram;
use crate::harness::wire::PacketType;
use crate::harness::*;

/// A Version Negotiation packet in response to the first datagram of the client.
fn negotiation(pair: &Pair, versions: &[u32]) -> Datagram {
    let first = &pair.packets(Client)[0];
    let mut bytes = vec![0xc0, 0, 0, 0, 0];
    for id in [&first.source, &first.destination] {
        bytes.push(id.len() as u8);
        bytes.extend(id);
    }
    for version in versions {
        bytes.extend(version.to_be_bytes());
    }
    Datagram {
        sender: Server,
        from: server_address(),
        to: client_address(),
        ecn: None,
        bytes,
    }
}

fn silent_server() -> Pair {
    let mut pair = Pair::new();
    pair.lose_all(Client);
    pair.run_for(ms(1));
    pair
}

#[test]
fn a_client_gives_up_when_the_server_speaks_other_versions() {
    let mut pair = silent_server();
    let now = pair.now;
    let packet = negotiation(&pair, &[0x0a0a_0a0a, 7]);
    pair.network.deliver_at(now, packet);
    pair.run_for(ms(1));
    assert_eq!(pair.client.end(), Some(ConnectionEnd::VersionMismatch));
    assert_eq!(pair.client.drained, 1);
}

#[test]
fn a_version_negotiation_packet_with_the_own_version_is_ignored() {
    let mut pair = silent_server();
    let now = pair.now;
    let packet = negotiation(&pair, &[7, 1]);
    pair.network.deliver_at(now, packet);
    pair.run_for(ms(1));
    pair.no_rule(Client);
    pair.handshake();
}

#[test]
fn a_version_negotiation_packet_of_somebody_who_saw_nothing_is_ignored() {
    let mut pair = silent_server();
    let now = pair.now;
    let mut packet = negotiation(&pair, &[7]);
    let length = packet.bytes.len();
    // The connection ID that the client has chosen for the server.
    packet.bytes[length - 5] ^= 1;
    pair.network.deliver_at(now, packet);
    pair.run_for(ms(1));
    pair.no_rule(Client);
    pair.handshake();
}

#[test]
fn a_version_negotiation_packet_after_a_packet_of_the_server_is_ignored() {
    let mut pair = Pair::new();
    pair.run_for(ms(1));
    let packet = negotiation(&pair, &[7]);
    pair.run_until(|pair| pair.client.is_connected());
    let now = pair.now;
    pair.network.deliver_at(now, packet);
    pair.handshake();
}

/// The response of a server to a first datagram of this version and size.
fn response(version: u32, size: usize) -> Option<Vec<u8>> {
    let mut pair = silent_server();
    let mut first = pair.sent[0].datagram.clone();
    first.bytes[1..5].copy_from_slice(&version.to_be_bytes());
    first.bytes.resize(size, 0);
    let now = pair.now;
    pair.network.deliver_at(now, first);
    pair.run_for(ms(1));
    let last = pair.sent.last().unwrap();
    (last.datagram.sender == Server).then(|| last.datagram.bytes.clone())
}

#[test]
fn an_unknown_version_gets_the_versions_of_the_server() {
    let response = response(7, 1_200).unwrap();
    assert!(response[0] & 0x80 != 0 && response[1..5] == [0; 4]);
    let versions: Vec<_> = response[5 + 9 + 9..].chunks(4).collect();
    for version in [QuicVersion::V1, QuicVersion::V2] {
        assert!(versions.contains(&&version.number().to_be_bytes()[..]));
    }
}

/// One byte below the least size of a first datagram (section 14.1): the response could be larger.
#[test]
fn a_small_datagram_of_an_unknown_version_gets_no_response() {
    assert!(response(7, 1_199).is_none());
    assert!(response(7, 1_200).is_some());
}

#[test]
fn a_version_negotiation_packet_gets_no_response() {
    assert!(response(0, 1_200).is_none());
}

#[test]
fn version_2_is_spoken() {
    let mut pair = Pair::connected_with(Settings {
        version: QuicVersion::V2,
        ..Settings::default()
    });
    pair.transfer(Client, 10_000);
    pair.transfer(Server, 10_000);
    for side in [Client, Server] {
        assert_eq!(pair.connection(side).version(), QuicVersion::V2);
        let initial = pair.last_packet(side, PacketType::Initial);
        assert_eq!(initial.version, QuicVersion::V2.number());
    }
}

#[test]
fn a_retry_packet_of_version_2_is_accepted() {
    let mut pair = Pair::with(Settings {
        version: QuicVersion::V2,
        ..Settings::default()
    });
    pair.server.on_incoming = end::OnIncoming::Retry;
    pair.run_until(|pair| pair.client.is_connected());
    assert_eq!(pair.time(), ms(40));
}

/// RFC 9368 section 4.
#[test]
fn a_client_whose_chosen_version_is_not_that_of_its_packets_is_closed() {
    let mut pair = Pair::with(Settings {
        edit_client_parameters: Some(parameters::replaced(
            0x11,
            &[0x6b, 0x33, 0x43, 0xcf, 0x6b, 0x33, 0x43, 0xcf],
        )),
        ..Settings::default()
    });
    pair.run_until(|pair| pair.client.end().is_some());
    assert_eq!(pair.client.peer_error(), Some(0x11));
}
