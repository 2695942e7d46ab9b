//! Addresses of clients: their validation (RFC 9000 section 8), and migration (section 9).

use std::sync::Arc;
use std::time::Duration;

use apus_quic::{
    CongestionControl, QuicCloseReason, QuicEndpoint, QuicServerTls, QuicSettings, RetryMode,
};
use apus_testkit::{UdpRelay, block_on, eventually};
use rcgen::{CertificateParams, KeyPair};

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
        // The second server is another endpoint with the same keys, such as that of another worker.
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
        let server = server_with(settings(RetryMode::Auto, 4));
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

#[test]
fn clients_above_the_limit_of_half_open_connections_are_refused() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 2));
        let client = client();
        let mut held = Vec::new();
        for count in 1..=2 {
            held.push(half_open(&client, &server).await);
            eventually("it is half-open", || server.connections() == count).await;
        }
        let refused = closed(&begin(&client, &server)).await;
        assert!(
            matches!(refused, QuicCloseReason::Peer { code: 2, .. }),
            "{refused}"
        );
        assert!(server.counters().refused > 0);
        assert_eq!(server.counters().retries, 0);
        // When one completes its handshake and is accepted, there is room again.
        held[0].0.limit(None, None);
        let _first = accept(&server).await;
        connect(&client, &server).await;
    });
}

#[test]
fn connections_that_nobody_accepts_count_as_half_open() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 2));
        let client = client();
        let waiting = [
            connect(&client, &server).await,
            connect(&client, &server).await,
        ];
        closed(&begin(&client, &server)).await;
        assert!(server.counters().refused > 0);
        let _first = accept(&server).await;
        connect(&client, &server).await;
        drop(waiting);
    });
}

#[test]
fn connections_whose_handshake_failed_count_as_half_open_until_they_are_forgotten() {
    block_on(async {
        let server = server_with(settings(RetryMode::Never, 2));
        let client = client();
        let mut codes = Vec::new();
        for _ in 0..3 {
            let connection = client
                .connect(server.local_address(), "other.example", &client_tls())
                .unwrap();
            match closed(&connection).await {
                QuicCloseReason::Peer { code, .. } => codes.push(code),
                other => panic!("{other}"),
            }
        }
        // The alert `unrecognized_name`, and CONNECTION_REFUSED.
        assert_eq!(codes, [0x170, 0x170, 2]);
        eventually("they are forgotten", || server.connections() == 0).await;
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
            settings(RetryMode::Never, 1_000),
            Some(Arc::new(sites)),
        );
        let client = client();
        let (relay, _connection) = half_open(&client, &server).await;
        eventually("the server responds", || relay.bytes().1 > 0).await;
        relay.limit(Some(0), Some(0));
        // Timers of the server expire meanwhile.
        tokio::time::sleep(Duration::from_secs(2)).await;
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
