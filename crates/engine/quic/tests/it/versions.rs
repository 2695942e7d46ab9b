//! Version 2 (RFC 9369) and compatible version negotiation (RFC 9368).

use std::collections::HashMap;
use std::sync::Arc;

use apus_quic::{QuicClientTls, QuicEndpoint, QuicServerTls, QuicSettings, QuicVersion, RetryMode};
use apus_testkit::block_on;
use apus_testkit::quic::{
    INITIAL_DATAGRAM, RawQuicClient, RawQuicOptions, default_parameters, parameter,
};

use crate::harness::*;

/// The code of VERSION_NEGOTIATION_ERROR (RFC 9368 section 10.2), and the transport parameter.
const VERSION_NEGOTIATION_ERROR: u64 = 0x11;
const VERSION_INFORMATION: u64 = 0x11;
const V1: u32 = QuicVersion::V1.number();
const V2: u32 = QuicVersion::V2.number();

fn of_version_2() -> QuicClientTls {
    client_tls().with_version(QuicVersion::V2)
}

/// Opens a connection, and exchanges some data. Returns the version of both ends, whether the session was resumed, and
/// whether early data was accepted.
async fn exchange_over(server: &QuicEndpoint, tls: &QuicClientTls) -> (QuicVersion, bool, bool) {
    let connection = client()
        .connect(server.local_address(), "localhost", tls)
        .unwrap();
    let early = connection.can_send_early().then(|| {
        let stream = connection.open(apus_quic::Dir::Bi).unwrap();
        connection.write(stream, &mut [data(100)]).unwrap();
        connection.finish(stream).unwrap();
        stream
    });
    let accepts_early = connected(&connection).await;
    let accepted = accept(server).await;
    let is_resumed = accepted.handshake().unwrap().is_resumed;
    assert_eq!(accepted.version(), connection.version());
    tokio::task::spawn_local(echo(accepted));
    if let Some(stream) = early.filter(|_| accepts_early) {
        assert_eq!(read_all(&connection, stream).await.unwrap(), data(100));
    }
    let sent = data(300_000);
    assert_eq!(exchange(&connection, &sent).await, sent);
    (connection.version(), is_resumed, accepts_early)
}

#[test]
fn a_client_of_version_2_is_served() {
    block_on(async {
        let server = server();
        let facts = exchange_over(&server, &of_version_2()).await;
        assert_eq!(facts, (QuicVersion::V2, false, false));
    });
}

#[test]
fn a_client_of_version_2_updates_its_keys_and_moves() {
    block_on(async {
        let server = server();
        echo_all(&server);
        let relay = apus_testkit::UdpRelay::to(server.local_address()).await;
        let connection = client()
            .connect(relay.address, "localhost", &of_version_2())
            .unwrap();
        connected(&connection).await;
        for _ in 0..3 {
            assert_eq!(exchange(&connection, &data(50_000)).await, data(50_000));
            connection.update_keys();
            relay.change_address().await;
        }
        assert_eq!(exchange(&connection, &data(50_000)).await, data(50_000));
        // Sessions and connections outlive lost packets.
        relay.lose_one_of(7);
        assert_eq!(exchange(&connection, &data(50_000)).await, data(50_000));
    });
}

/// RFC 9369 section 3.3.3, and section 5: a token proves an address in its own version only.
#[test]
fn retry_packets_and_tokens_are_those_of_the_version() {
    block_on(async {
        let settings = QuicSettings {
            retry: RetryMode::Always,
            ..QuicSettings::default()
        };
        let server = server_with(settings);
        let v2 = of_version_2();
        let v1 = v2.clone().with_version(QuicVersion::V1);
        for (tls, needs_retry) in [(&v2, true), (&v2, false), (&v1, true), (&v1, false)] {
            let before = server.counters().retries;
            exchange_over(&server, tls).await;
            // Each packet of a ClientHello may get one.
            assert_eq!(server.counters().retries > before, needs_retry);
        }
    });
}

/// RFC 9369 section 5.
#[test]
fn a_session_of_one_version_is_not_resumed_in_another() {
    block_on(async {
        for early_data in [false, true] {
            let tls = QuicServerTls::new(server_config("localhost", false), early_data).unwrap();
            let sites = Arc::new(Sites(HashMap::from([("localhost", Arc::new(tls))])));
            let server = endpoint(&new_workers(), V4, QuicSettings::default(), Some(sites));
            let mut config = client_config();
            config.enable_early_data = true;
            let v1 = QuicClientTls::new(Arc::new(config)).unwrap();
            // With the same sessions, against the rules.
            let v2 = v1.clone().with_version(QuicVersion::V2);
            for (tls, version, is_resumed) in [
                (&v1, QuicVersion::V1, false),
                (&v1, QuicVersion::V1, true),
                (&v2, QuicVersion::V2, false),
                (&v2, QuicVersion::V2, true),
                (&v1, QuicVersion::V1, false),
            ] {
                let facts = exchange_over(&server, tls).await;
                assert_eq!(facts, (version, is_resumed, is_resumed && early_data));
            }
        }
    });
}

#[test]
fn connections_of_version_2_are_refused_in_version_2() {
    block_on(async {
        let settings = QuicSettings {
            max_half_open: 0,
            retry: RetryMode::Never,
            ..QuicSettings::default()
        };
        let server = server_with(settings);
        let connection = client()
            .connect(server.local_address(), "localhost", &of_version_2())
            .unwrap();
        let reason = closed(&connection).await;
        // CONNECTION_REFUSED, which the client could not read in another version.
        assert!(reason.to_string().contains("0x2"), "{reason}");
    });
}

fn information(numbers: &[u32]) -> Vec<u8> {
    let value: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect();
    parameter(VERSION_INFORMATION, &value)
}

fn options(numbers: &[u32]) -> RawQuicOptions {
    let mut options = RawQuicOptions::new(client_config(), "localhost");
    options.parameters = [default_parameters(&options.source), information(numbers)].concat();
    options
}

/// RFC 9368 section 2.3: the server takes the version that the client prefers, if it supports it.
#[test]
fn the_version_that_the_client_prefers_is_selected() {
    block_on(async {
        let server = server();
        for (available, selected) in [
            (&[V1, V2][..], V1),
            (&[V2, V1], V2),
            (&[0x1a2a_3a4a, V2, V1], V2),
            (&[0x1a2a_3a4a, V1], V1),
            (&[V1], V1),
        ] {
            let numbers = [&[V1], available].concat();
            let mut client = RawQuicClient::begin(server.local_address(), &options(&numbers)).await;
            client.acknowledges = false;
            let mut datagram = vec![0; 2_000];
            let received = within(client.socket.recv(&mut datagram)).await.unwrap();
            assert!(received >= INITIAL_DATAGRAM, "{received}");
            assert_eq!(datagram[1..5], selected.to_be_bytes(), "{available:x?}");
        }
    });
}

/// RFC 9368 section 4.
#[test]
fn a_client_whose_chosen_version_is_another_is_closed() {
    block_on(async {
        let server = server();
        for numbers in [
            &[V2, V2, V1][..],
            &[0x1a2a_3a4a, V1, 0x1a2a_3a4a],
            &[V2, V2],
        ] {
            let mut client = RawQuicClient::begin(server.local_address(), &options(numbers)).await;
            assert_eq!(client.closed().await, (VERSION_NEGOTIATION_ERROR, false));
        }
    });
}

/// A client that goes on in the version with which it began gets no further, and harms nobody.
#[test]
fn a_client_that_does_not_follow_the_selected_version_harms_no_other() {
    block_on(async {
        let server = server();
        for _ in 0..20 {
            let mut client =
                RawQuicClient::begin(server.local_address(), &options(&[V1, V2, V1])).await;
            // Initial packets in the original version are read, whatever they have.
            for _ in 0..10 {
                client
                    .send(apus_testkit::quic::PacketLevel::Initial, &[1])
                    .await;
            }
        }
        let facts = exchange_over(&server, &of_version_2()).await;
        assert_eq!(facts.0, QuicVersion::V2);
    });
}
