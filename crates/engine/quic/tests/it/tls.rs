//! TLS (RFC 9001): sites by server name, client certificates, ALPN, resumption and early data.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use apus_quic::{
    Dir, QuicClientTls, QuicCloseReason, QuicEvent, QuicServerTls, QuicSettings, QuicTlsError,
};
use apus_testkit::{UdpRelay, block_on, eventually};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::ServerName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::harness::*;

/// The alerts of RFC 8446 section 6.2 as error codes (RFC 9001 section 4.8).
const CERTIFICATE_REQUIRED: u64 = 0x100 + 116;
const UNRECOGNIZED_NAME: u64 = 0x100 + 112;
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// A server with these sites.
fn server_of(
    sites: impl Into<HashMap<&'static str, Arc<QuicServerTls>>>,
) -> apus_quic::QuicEndpoint {
    let sites = Arc::new(Sites(sites.into()));
    endpoint(&new_workers(), V4, QuicSettings::default(), Some(sites))
}

fn site_with_client_certificates(name: &str) -> Arc<QuicServerTls> {
    Arc::new(QuicServerTls::new(server_config(name, true), false).unwrap())
}

#[test]
fn each_site_has_its_own_certificate_on_one_port() {
    block_on(async {
        let names = ["a.example", "b.example", "c.example"];
        let sites = names.map(|name| {
            let tls = QuicServerTls::new(server_config(name, false), false).unwrap();
            (name, Arc::new(tls.with_site(Arc::new(name))))
        });
        let server = server_of(sites);
        let client = client();
        for name in names {
            let connection = client
                .connect(server.local_address(), name, &client_tls())
                .unwrap();
            connected(&connection).await;
            // The client verified the name; this is the certificate that it got.
            let chain = connection.peer_certificates().unwrap();
            let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
            let names = leaf.subject_alternative_name().unwrap().unwrap();
            assert_eq!(
                names.value.general_names[0].to_string(),
                format!("DNSName({name})")
            );
            let accepted = accept(&server).await;
            let handshake = accepted.handshake().unwrap();
            assert_eq!(handshake.server_name.as_deref(), Some(name));
            assert_eq!(handshake.protocol.as_deref(), Some(ALPN));
            assert!(handshake.cipher.unwrap().starts_with("TLS13_"));
            let site = Arc::clone(handshake.server_tls.unwrap().site().unwrap());
            assert_eq!(*site.downcast::<&str>().unwrap(), name);
        }
    });
}

#[test]
fn an_unknown_name_is_refused_by_an_alert() {
    block_on(async {
        let server = server_of([("a.example", site("a.example"))]);
        let connection = client()
            .connect(server.local_address(), "b.example", &client_tls())
            .unwrap();
        let reason = closed(&connection).await;
        assert!(
            matches!(
                reason,
                QuicCloseReason::Peer {
                    code: UNRECOGNIZED_NAME,
                    ..
                }
            ),
            "{reason}"
        );
        assert_eq!(server.counters().failed_handshakes, 1);
    });
}

#[test]
fn a_certificate_of_another_name_is_rejected_by_the_client() {
    block_on(async {
        let server = server_of([("a.example", site("b.example"))]);
        let connection = client()
            .connect(server.local_address(), "a.example", &client_tls())
            .unwrap();
        let reason = closed(&connection).await;
        assert!(
            matches!(reason, QuicCloseReason::Transport { .. }),
            "{reason}"
        );
        eventually("the server gives up", || {
            server.counters().failed_handshakes == 1
        })
        .await;
    });
}

#[test]
fn a_client_hello_in_several_packets_selects_the_site() {
    block_on(async {
        let server = server_of([("a.example", site("a.example"))]);
        let mut config = client_config();
        // The ClientHello does not fit into two packets.
        config.alpn_protocols = (0..200)
            .map(|number| format!("protocol-{number}").into_bytes())
            .chain([ALPN.to_vec()])
            .collect();
        let tls = QuicClientTls::new(Arc::new(config)).unwrap();
        let connection = client()
            .connect(server.local_address(), "a.example", &tls)
            .unwrap();
        connected(&connection).await;
        let protocol = connection.handshake().unwrap().protocol;
        assert_eq!(protocol.as_deref(), Some(ALPN));
    });
}

#[test]
fn a_large_client_hello_is_served() {
    block_on(async {
        let server = server_of([("a.example", site("a.example"))]);
        for kilobytes in [16, 18, 40, 62] {
            let mut config = client_config();
            config.alpn_protocols = (0..4 * kilobytes)
                .map(|_| vec![b'x'; 255])
                .chain([ALPN.to_vec()])
                .collect();
            let tls = QuicClientTls::new(Arc::new(config)).unwrap();
            let connection = client()
                .connect(server.local_address(), "a.example", &tls)
                .unwrap();
            connected(&connection).await;
            let protocol = connection.handshake().unwrap().protocol;
            assert_eq!(protocol.as_deref(), Some(ALPN), "{kilobytes} KB");
        }
    });
}

#[test]
fn a_site_that_requires_client_certificates_gets_them() {
    block_on(async {
        let server = server_of([
            ("open.example", site("open.example")),
            (
                "closed.example",
                site_with_client_certificates("closed.example"),
            ),
        ]);
        let client = client();
        let (chain, key) = certificate("client.example");
        let leaf = chain[0].clone();
        let mut config = rustls::ClientConfig::builder_with_provider(
            rustls::crypto::aws_lc_rs::default_provider().into(),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots())
        .with_client_auth_cert(chain, key)
        .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let tls = QuicClientTls::new(Arc::new(config)).unwrap();
        for (name, presented) in [("open.example", None), ("closed.example", Some(leaf))] {
            let connection = client.connect(server.local_address(), name, &tls).unwrap();
            connected(&connection).await;
            let accepted = accept(&server).await;
            let certificates = accepted.peer_certificates();
            assert_eq!(
                certificates.and_then(|chain| chain.into_iter().next()),
                presented
            );
        }
    });
}

#[test]
fn a_client_without_the_required_certificate_is_refused() {
    block_on(async {
        let server = server_of([("localhost", site_with_client_certificates("localhost"))]);
        let connection = begin(&client(), &server);
        let reason = closed(&connection).await;
        assert!(
            matches!(
                reason,
                QuicCloseReason::Peer {
                    code: CERTIFICATE_REQUIRED,
                    ..
                }
            ),
            "{reason}"
        );
        assert_eq!(server.counters().accepted, 0);
    });
}

#[test]
fn a_client_without_a_common_protocol_is_refused() {
    block_on(async {
        let server = server();
        for protocols in [vec![b"other".to_vec()], vec![]] {
            let mut config = client_config();
            config.alpn_protocols = protocols;
            let tls = QuicClientTls::new(Arc::new(config)).unwrap();
            let connection = client()
                .connect(server.local_address(), "localhost", &tls)
                .unwrap();
            let reason = closed(&connection).await;
            assert!(
                matches!(
                    reason,
                    QuicCloseReason::Peer {
                        code: NO_APPLICATION_PROTOCOL,
                        ..
                    }
                ),
                "{reason}"
            );
        }
    });
}

#[test]
fn configurations_that_quic_cannot_use_are_rejected() {
    let tls12 = rustls::ServerConfig::builder_with_provider(
        rustls::crypto::aws_lc_rs::default_provider().into(),
    )
    .with_protocol_versions(&[&rustls::version::TLS12])
    .unwrap()
    .with_no_client_auth();
    let (chain, key) = certificate("localhost");
    let tls12 = tls12.with_single_cert(chain, key).unwrap();
    let rejected = QuicServerTls::new(tls12, false);
    assert_eq!(rejected.err(), Some(QuicTlsError::NoTls13));
    let mut tickets = server_config("localhost", false);
    tickets.ticketer = Ticketer::new().unwrap();
    assert!(QuicServerTls::new(tickets.clone(), false).is_ok());
    let rejected = QuicServerTls::new(tickets, true);
    assert_eq!(rejected.err(), Some(QuicTlsError::EarlyDataWithoutState));
}

/// A server, and a client that has a session with it and may send early data.
async fn with_session(early_data: bool) -> (apus_quic::QuicEndpoint, QuicClientTls) {
    with_session_and(QuicSettings::default(), early_data).await
}

async fn with_session_and(
    settings: QuicSettings,
    early_data: bool,
) -> (apus_quic::QuicEndpoint, QuicClientTls) {
    let tls = QuicServerTls::new(server_config("localhost", false), early_data).unwrap();
    let sites = Arc::new(Sites(HashMap::from([("localhost", Arc::new(tls))])));
    let server = endpoint(&new_workers(), V4, settings, Some(sites));
    let mut config = client_config();
    config.enable_early_data = true;
    let tls = QuicClientTls::new(Arc::new(config)).unwrap();
    let connection = client()
        .connect(server.local_address(), "localhost", &tls)
        .unwrap();
    connected(&connection).await;
    assert!(!connection.can_send_early());
    let accepted = accept(&server).await;
    tokio::task::spawn_local(echo(accepted));
    // The sessions come before this.
    assert_eq!(exchange(&connection, &data(10)).await, data(10));
    (server, tls)
}

#[test]
fn early_data_is_flagged_until_the_handshake_is_complete() {
    block_on(async {
        let (server, tls) = with_session(true).await;
        let relay = UdpRelay::to(server.local_address()).await;
        let connection = client().connect(relay.address, "localhost", &tls).unwrap();
        assert!(connection.can_send_early());
        let stream = connection.open(Dir::Bi).unwrap();
        connection.write(stream, &mut [data(100)]).unwrap();
        connection.finish(stream).unwrap();
        // The server gets the first flight, and the client no response.
        relay.limit(None, Some(0));
        let accepted = accept(&server).await;
        assert!(accepted.is_early());
        assert_eq!(opened(&accepted).await, stream);
        assert_eq!(read_all(&accepted, stream).await.unwrap(), data(100));
        assert!(accepted.is_early());
        relay.limit(None, None);
        assert!(connected(&connection).await);
        while !matches!(next_event(&accepted).await, QuicEvent::Connected { .. }) {}
        assert!(!accepted.is_early());
    });
}

#[test]
fn replayed_early_data_is_not_accepted() {
    block_on(async {
        let settings = QuicSettings {
            handshake_timeout: Duration::from_millis(300),
            ..QuicSettings::default()
        };
        let (server, tls) = with_session_and(settings, true).await;
        let relay = UdpRelay::to(server.local_address()).await;
        let connection = client().connect(relay.address, "localhost", &tls).unwrap();
        let stream = connection.open(Dir::Bi).unwrap();
        connection.write(stream, &mut [data(100)]).unwrap();
        let accepted = accept(&server).await;
        assert!(connected(&connection).await);
        let recorded = relay.recorded();
        drop((connection, accepted));
        eventually("the connections are forgotten", || {
            server.connections() == 0
        })
        .await;
        let before = server.counters();
        let attacker = tokio::net::UdpSocket::bind(V4).await.unwrap();
        for packet in &recorded {
            attacker
                .send_to(packet, server.local_address())
                .await
                .unwrap();
        }
        eventually("the replayed handshake fails", || {
            server.counters().failed_handshakes == before.failed_handshakes + 1
        })
        .await;
        assert!(server.counters().received > before.received);
        let nobody = std::future::poll_fn(|cx| std::task::Poll::Ready(server.poll_accept(cx)));
        assert!(nobody.await.is_pending());
    });
}

#[test]
fn early_data_that_the_server_does_not_want_is_rejected() {
    block_on(async {
        let (_server, tls) = with_session(true).await;
        // The same name, without the sessions of the first server.
        let other = server();
        let connection = client()
            .connect(other.local_address(), "localhost", &tls)
            .unwrap();
        assert!(connection.can_send_early());
        let stream = connection.open(Dir::Bi).unwrap();
        connection.write(stream, &mut [data(100)]).unwrap();
        assert!(!connected(&connection).await);
        assert!(connection.write(stream, &mut [data(1)]).is_err());
        let accepted = accept(&other).await;
        assert!(!accepted.is_early());
        tokio::task::spawn_local(echo(accepted));
        assert_eq!(exchange(&connection, &data(100)).await, data(100));
    });
}

#[test]
fn sessions_without_early_data_offer_none() {
    block_on(async {
        let (server, tls) = with_session(false).await;
        let connection = client()
            .connect(server.local_address(), "localhost", &tls)
            .unwrap();
        assert!(!connection.can_send_early());
        assert!(!connected(&connection).await);
    });
}

#[test]
fn a_client_with_a_session_resumes_it() {
    block_on(async {
        let (server, tls) = with_session(false).await;
        for (tls, is_resumed) in [(&client_tls(), false), (&tls, true)] {
            let connection = client()
                .connect(server.local_address(), "localhost", tls)
                .unwrap();
            connected(&connection).await;
            let accepted = accept(&server).await;
            assert_eq!(accepted.handshake().unwrap().is_resumed, is_resumed);
            assert_eq!(connection.handshake().unwrap().is_resumed, is_resumed);
        }
    });
}

#[test]
fn a_session_of_one_site_is_not_resumed_at_another() {
    block_on(async {
        let sites = ["a.example", "localhost"].map(|name| (name, site(name)));
        let server = server_of(sites);
        let mut config = client_config();
        // A client that offers all sessions to all names.
        config.resumption = rustls::client::Resumption::store(Arc::new(OneSession::default()));
        let tls = QuicClientTls::new(Arc::new(config)).unwrap();
        let client = client();
        for (name, is_resumed) in [
            ("localhost", false),
            ("localhost", true),
            ("a.example", false),
        ] {
            let connection = client.connect(server.local_address(), name, &tls).unwrap();
            connected(&connection).await;
            let accepted = accept(&server).await;
            assert_eq!(
                accepted.handshake().unwrap().is_resumed,
                is_resumed,
                "{name}"
            );
            tokio::task::spawn_local(echo(accepted));
            exchange(&connection, &data(10)).await;
        }
    });
}

/// Sessions without regard to the name of the server.
#[derive(Debug, Default)]
struct OneSession(std::sync::Mutex<Option<rustls::client::Tls13ClientSessionValue>>);

impl rustls::client::ClientSessionStore for OneSession {
    fn set_kx_hint(&self, _: ServerName<'static>, _: rustls::NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<rustls::NamedGroup> {
        None
    }

    fn set_tls12_session(
        &self,
        _: ServerName<'static>,
        _: rustls::client::Tls12ClientSessionValue,
    ) {
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<rustls::client::Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        _: ServerName<'static>,
        session: rustls::client::Tls13ClientSessionValue,
    ) {
        *self.0.lock().unwrap() = Some(session);
    }

    fn take_tls13_ticket(
        &self,
        _: &ServerName<'static>,
    ) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.0.lock().unwrap().take()
    }
}
