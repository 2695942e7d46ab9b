//! The same protocol as quinn: as a client of its server, and as a server of its client.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use apus_quic::{Dir, QuicClientTls, QuicServerTls, QuicSettings, RetryMode};
use apus_testkit::{UdpRelay, block_on};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};

use crate::harness::*;

#[test]
fn a_client_of_quinn_is_served() {
    block_on(async {
        for address in [V4, V6] {
            let settings = QuicSettings::default();
            let server = endpoint(&new_workers(), address, settings, Some(one_site()));
            echo_all(&server);
            let mut client = quinn::Endpoint::client(address).unwrap();
            let tls = QuicClientConfig::try_from(client_config()).unwrap();
            client.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
            let connecting = client.connect(server.local_address(), "localhost").unwrap();
            let connection = within(connecting).await.unwrap();
            let (mut writer, mut reader) = connection.open_bi().await.unwrap();
            let sent = data(1_000_000);
            let writing = {
                let sent = sent.clone();
                tokio::task::spawn_local(async move {
                    writer.write_all(&sent).await.unwrap();
                    writer.finish().unwrap();
                })
            };
            let echoed = within(reader.read_to_end(usize::MAX)).await.unwrap();
            assert!(echoed == sent);
            writing.await.unwrap();
            client
                .rebind(std::net::UdpSocket::bind(address).unwrap())
                .unwrap();
            let (mut writer, mut reader) = connection.open_bi().await.unwrap();
            writer.write_all(&data(100)).await.unwrap();
            writer.finish().unwrap();
            let echoed = within(reader.read_to_end(usize::MAX)).await.unwrap();
            assert_eq!(echoed, data(100));
        }
    });
}

#[test]
fn a_server_of_quinn_is_used() {
    block_on(async {
        let tls = QuicServerConfig::try_from(server_config("localhost", false)).unwrap();
        let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
        let server = quinn::Endpoint::server(config, V4).unwrap();
        let address = server.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            while let Ok((mut writer, mut reader)) = connection.accept_bi().await {
                let data = reader.read_to_end(usize::MAX).await.unwrap();
                writer.write_all(&data).await.unwrap();
                writer.finish().unwrap();
            }
        });
        let connection = client()
            .connect(address, "localhost", &client_tls())
            .unwrap();
        connected(&connection).await;
        for length in [0, 1, 1_000_000] {
            assert!(exchange(&connection, &data(length)).await == data(length));
        }
    });
}

/// A client of quinn, which may send early data.
fn quinn_client() -> quinn::Endpoint {
    let mut config = client_config();
    config.enable_early_data = true;
    let tls = QuicClientConfig::try_from(config).unwrap();
    let mut client = quinn::Endpoint::client(V4).unwrap();
    client.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
    client
}

/// A server of quinn that sends back what comes on each stream, and updates its keys after each.
fn quinn_server(early_data: bool) -> SocketAddr {
    let mut config = server_config("localhost", false);
    config.max_early_data_size = if early_data { u32::MAX } else { 0 };
    let tls = QuicServerConfig::try_from(config).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let server = quinn::Endpoint::server(config, V4).unwrap();
    let address = server.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        while let Some(connecting) = server.accept().await {
            tokio::task::spawn_local(async move {
                let (connection, _) = connecting.accept().unwrap().into_0rtt().unwrap();
                while let Ok((mut writer, mut reader)) = connection.accept_bi().await {
                    if let Ok(data) = reader.read_to_end(usize::MAX).await {
                        let _ = writer.write_all(&data).await;
                        let _ = writer.finish();
                    }
                    connection.force_key_update();
                }
            });
        }
    });
    address
}

/// Sends data on a stream of quinn, and returns what comes back.
async fn quinn_exchange(connection: &quinn::Connection, data: &[u8]) -> Vec<u8> {
    let (mut writer, mut reader) = connection.open_bi().await.unwrap();
    let writing = async {
        writer.write_all(data).await.unwrap();
        writer.finish().unwrap();
    };
    let (echoed, ()) = tokio::join!(reader.read_to_end(usize::MAX), writing);
    echoed.unwrap()
}

#[test]
fn lost_packets_are_sent_again_to_quinn_and_by_it() {
    block_on(async {
        for lost_of in [5, 50] {
            let server = server();
            echo_all(&server);
            let relay = UdpRelay::to(server.local_address()).await;
            relay.lose_one_of(lost_of);
            let connecting = quinn_client().connect(relay.address, "localhost").unwrap();
            let connection = within(connecting).await.unwrap();
            let echoed = within(quinn_exchange(&connection, &data(300_000))).await;
            assert!(echoed == data(300_000));
            let relay = UdpRelay::to(quinn_server(false)).await;
            relay.lose_one_of(lost_of);
            let connection = client()
                .connect(relay.address, "localhost", &client_tls())
                .unwrap();
            connected(&connection).await;
            assert!(exchange(&connection, &data(300_000)).await == data(300_000));
        }
    });
}

#[test]
fn quinn_proves_its_address_by_a_retry_packet_and_later_by_a_token() {
    block_on(async {
        let server = server_with(QuicSettings {
            retry: RetryMode::Always,
            ..QuicSettings::default()
        });
        echo_all(&server);
        let client = quinn_client();
        for retries in [1, 1] {
            let connecting = client.connect(server.local_address(), "localhost").unwrap();
            let connection = within(connecting).await.unwrap();
            assert_eq!(quinn_exchange(&connection, &data(10)).await, data(10));
            assert!(server.counters().retries <= 2 * retries);
        }
    });
}

#[test]
fn keys_are_updated_by_both_ends() {
    block_on(async {
        let server = server();
        echo_all(&server);
        let connecting = quinn_client()
            .connect(server.local_address(), "localhost")
            .unwrap();
        let connection = within(connecting).await.unwrap();
        for _ in 0..5 {
            let echoed = within(quinn_exchange(&connection, &data(100_000))).await;
            assert!(echoed == data(100_000));
            connection.force_key_update();
        }
        let connection = client()
            .connect(quinn_server(false), "localhost", &client_tls())
            .unwrap();
        connected(&connection).await;
        for _ in 0..5 {
            assert!(exchange(&connection, &data(100_000)).await == data(100_000));
            connection.update_keys();
        }
    });
}

#[test]
fn early_data_of_quinn_is_accepted() {
    block_on(async {
        let tls = QuicServerTls::new(server_config("localhost", false), true).unwrap();
        let sites = Sites(HashMap::from([("localhost", Arc::new(tls))]));
        let settings = QuicSettings::default();
        let server = endpoint(&new_workers(), V4, settings, Some(Arc::new(sites)));
        echo_all(&server);
        let client = quinn_client();
        let connecting = client.connect(server.local_address(), "localhost").unwrap();
        let connection = within(connecting).await.unwrap();
        assert_eq!(quinn_exchange(&connection, &data(10)).await, data(10));
        connection.close(0_u8.into(), b"");
        let connecting = client.connect(server.local_address(), "localhost").unwrap();
        let Ok((connection, is_accepted)) = connecting.into_0rtt() else {
            panic!("quinn has no session");
        };
        let echoed = within(quinn_exchange(&connection, &data(5_000))).await;
        assert_eq!(echoed, data(5_000));
        assert!(is_accepted.await);
    });
}

#[test]
fn early_data_is_accepted_by_quinn() {
    block_on(async {
        let address = quinn_server(true);
        let mut config = client_config();
        config.enable_early_data = true;
        let tls = QuicClientTls::new(Arc::new(config)).unwrap();
        let client = client();
        let connection = client.connect(address, "localhost", &tls).unwrap();
        connected(&connection).await;
        assert_eq!(exchange(&connection, &data(10)).await, data(10));
        drop(connection);
        let connection = client.connect(address, "localhost", &tls).unwrap();
        assert!(connection.can_send_early());
        let stream = connection.open(Dir::Bi).unwrap();
        connection.write(stream, &mut [data(5_000)]).unwrap();
        connection.finish(stream).unwrap();
        assert!(connected(&connection).await);
        assert_eq!(read_all(&connection, stream).await.unwrap(), data(5_000));
    });
}

#[test]
fn many_small_streams_are_exchanged_with_quinn() {
    block_on(async {
        let server = server();
        echo_all(&server);
        let connecting = quinn_client()
            .connect(server.local_address(), "localhost")
            .unwrap();
        let quinn = within(connecting).await.unwrap();
        let ours = client()
            .connect(quinn_server(false), "localhost", &client_tls())
            .unwrap();
        connected(&ours).await;
        for length in 0..300 {
            assert_eq!(quinn_exchange(&quinn, &data(length)).await, data(length));
            assert_eq!(exchange(&ours, &data(length)).await, data(length));
        }
    });
}
