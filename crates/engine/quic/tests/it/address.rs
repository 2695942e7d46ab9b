//! Addresses of clients: their validation (RFC 9000 section 8), and migration (section 9).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use apus_quic::{
    CongestionControl, QuicCloseReason, QuicEndpoint, QuicEvent, QuicServerTls, QuicSettings,
    RetryMode,
};
use apus_testkit::quic::frame::crypto;
use apus_testkit::quic::{PacketLevel, RawQuicClient, RawQuicOptions};
use apus_testkit::{UdpRelay, block_on, eventually, eventually_async};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::UdpSocket;

use crate::harness::*;

fn settings(retry: RetryMode, max_half_open: usize) -> QuicSettings {
    QuicSettings {
        retry,
        max_half_open,
        ..QuicSettings::default()
    }
}

#[test]
fn a_client_proves_its_address_by_a_retry_packet() {
    block_on(async {
        let server = server_with(settings(RetryMode::Always, 1_000));
        echo_all(&server);
        let connection = connect(&client(), &server).await;
        assert!(server.counters().retries > 0);
        assert_eq!(exchange(&connection, &data(10)).await, data(10));
    });
}

#[test]
fn a_client_that_returns_needs_no_retry_packet() {
    block_on(async {
        let workers = new_workers();
        let tls = client_tls();
        let client = client();
        // The second server is another endpoint with the same keys, as another worker has one.
        let always = || settings(RetryMode::Always, 1_000);
        for needs_retry in [true, false] {
            let server = endpoint(&workers, V4, always(), Some(one_site()));
            echo_all(&server);
            let connection = client
                .connect(server.local_address(), "localhost", &tls)
                .unwrap();
            connected(&connection).await;
            // The token comes after the handshake.
            exchange(&connection, &data(10)).await;
            assert_eq!(server.counters().retries > 0, needs_retry);
        }
    });
}

/// Begins a handshake that does not end.
async fn half_open(client: &QuicEndpoint, server: &QuicEndpoint) -> (UdpRelay, impl Sized) {
    let relay = UdpRelay::to(server.local_address()).await;
    relay.limit(None, Some(0));
    let connection = client
        .connect(relay.address, "localhost", &client_tls())
        .unwrap();
    (relay, connection)
}

#[test]
fn retry_packets_are_sent_while_many_connections_are_half_open() {
    block_on(async {
        // Of 16, a client may have four, and none without a proof from two on.
        let server = server_with(settings(RetryMode::Auto, 16));
        let client = client();
        let mut held = vec![half_open(&client, &server).await];
        eventually("one is half-open", || server.connections() == 1).await;
        let _below = connect(&client, &server).await;
        assert_eq!(server.counters().retries, 0);
        drop(accept(&server).await);
        held.push(half_open(&client, &server).await);
        eventually("two are half-open", || server.counters().received > 4).await;
        let connection = begin(&client, &server);
        connected(&connection).await;
        assert!(server.counters().retries >= 1);
        assert_eq!(server.counters().refused, 0);
    });
}

/// Sends the first byte of a handshake from this address, with another connection ID each time.
async fn begin_from(address: [u8; 4], server: &QuicEndpoint) -> RawQuicClient {
    let options = RawQuicOptions::new(client_config(), "localhost");
    let mut client = RawQuicClient::silent(server.local_address(), &options).await;
    client.socket = UdpSocket::bind((Ipv4Addr::from(address), 0)).await.unwrap();
    client.send(PacketLevel::Initial, &crypto(0, &[1])).await;
    client
}

/// Waits until the server has handled this number of packets.
async fn received(server: &QuicEndpoint, packets: u64) {
    eventually("they have come", || server.counters().received >= packets).await;
}

/// 1,000 handshakes that never end, all of one address, closed the server to everybody for ten seconds.
#[test]
fn one_client_occupies_a_quarter_of_the_half_open_places() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 16));
        echo_all(&server);
        for count in 1..=10 {
            begin_from([127, 0, 0, 2], &server).await;
            received(&server, count).await;
            // One below the share of four, at it, and above.
            assert_eq!(server.connections(), count.min(4) as usize);
        }
        let counters = server.counters();
        // On a slow machine, the oldest one has given way already.
        assert_eq!(counters.ignored + counters.evicted, 6);
        assert_eq!(counters.refused, 0);
        connect(&client(), &server).await;
        // The oldest one gives way when its client has had a second to respond.
        eventually_async("the oldest one gives way", async || {
            begin_from([127, 0, 0, 2], &server).await;
            server.counters().evicted > 0
        })
        .await;
        let counters = server.counters();
        assert_eq!(counters.failed_handshakes, counters.evicted);
    });
}

#[test]
fn clients_above_the_limit_of_half_open_connections_are_refused_until_the_oldest_gives_way() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 4));
        echo_all(&server);
        for count in 1..=4 {
            begin_from([127, 0, 0, 1 + count], &server).await;
            received(&server, count.into()).await;
            assert_eq!(server.connections(), usize::from(count));
        }
        // After a second without a response, one makes room.
        let client = client();
        eventually_async(
            "a client gets the place of the oldest",
            async || match next_event(&begin(&client, &server)).await {
                QuicEvent::Connected { .. } => true,
                QuicEvent::Closed(QuicCloseReason::Peer { code: 2, .. }) => {
                    assert!(server.counters().refused > 0);
                    assert_eq!(server.counters().evicted, 0);
                    false
                }
                other => panic!("{other:?}"),
            },
        )
        .await;
        assert_eq!(
            (server.counters().retries, server.counters().evicted),
            (0, 1)
        );
    });
}

#[test]
fn connections_that_nobody_accepts_count_as_half_open() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 8));
        let client = client();
        let waiting = [
            connect(&client, &server).await,
            connect(&client, &server).await,
        ];
        let third = begin(&client, &server);
        eventually("it is ignored", || server.counters().ignored > 0).await;
        assert_eq!(server.counters().evicted, 0);
        let _first = accept(&server).await;
        connected(&third).await;
        drop(waiting);
    });
}

#[test]
fn connections_whose_handshake_failed_give_way_before_they_are_forgotten() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 8));
        let client = client();
        for _ in 0..6 {
            let connection = client
                .connect(server.local_address(), "other.example", &client_tls())
                .unwrap();
            match closed(&connection).await {
                // The alert `unrecognized_name`.
                QuicCloseReason::Peer { code, .. } => assert_eq!(code, 0x170),
                other => panic!("{other}"),
            }
            assert!(server.connections() <= 2);
        }
        connect(&client, &server).await;
    });
}

#[test]
fn a_server_sends_at_most_three_times_what_it_got_before_the_address_is_proven() {
    block_on(async {
        // The certificate alone is larger than that.
        let names = (0..600).map(|number| format!("site-{number}.localhost.example"));
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let mut config = rustls::ServerConfig::builder_with_provider(
            rustls::crypto::aws_lc_rs::default_provider().into(),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let tls = QuicServerTls::new(config, false).unwrap();
        let sites = Sites([("localhost", Arc::new(tls))].into());
        let server = endpoint(
            &new_workers(),
            V4,
            QuicSettings {
                // A probe timeout later than the response, which is after a second.
                handshake_timeout: Duration::from_millis(1_200),
                ..settings(RetryMode::Never, 1_000)
            },
            Some(Arc::new(sites)),
        );
        let client = client();
        let (relay, _connection) = half_open(&client, &server).await;
        eventually("the server responds", || relay.bytes().1 > 0).await;
        relay.limit(Some(0), Some(0));
        // Timers of the server expire meanwhile.
        eventually("the server gives it up", || {
            server.counters().failed_handshakes == 1
        })
        .await;
        let (to_server, from_server) = relay.bytes();
        assert!(from_server <= 3 * to_server, "{from_server} {to_server}");
        assert!(
            from_server + 1_200 > 3 * to_server,
            "{from_server} {to_server}"
        );
    });
}

#[test]
fn a_connection_survives_a_change_of_the_client_address() {
    block_on(async {
        for congestion in [CongestionControl::Cubic, CongestionControl::Bbr] {
            let server = server_with(QuicSettings {
                congestion,
                ..QuicSettings::default()
            });
            let relay = UdpRelay::to(server.local_address()).await;
            let connection = client()
                .connect(relay.address, "localhost", &client_tls())
                .unwrap();
            connected(&connection).await;
            let accepted = accept(&server).await;
            assert_eq!(accepted.remote_address(), relay.outside_address());
            let before = accepted.remote_address();
            relay.change_address().await;
            assert_ne!(relay.outside_address(), before);
            let stream = connection.open(apus_quic::Dir::Bi).unwrap();
            write_all(&connection, stream, &data(100_000)).await;
            assert_eq!(opened(&accepted).await, stream);
            assert!(read_all(&accepted, stream).await.unwrap() == data(100_000));
            assert_eq!(accepted.remote_address(), relay.outside_address());
            // The new path was validated.
            assert!(accepted.statistics().frame_tx.path_challenge > 0);
            eventually("the path is validated", || {
                accepted.statistics().frame_rx.path_response > 0
            })
            .await;
        }
    });
}
