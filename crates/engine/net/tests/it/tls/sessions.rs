//! Resumption: within a site, across reloads, and never from one site into another that wants client
//! certificates (the class of CVE-2025-23419).

use std::sync::Arc;

use apus_net::tls::{ClientAuth, TlsSite, UnknownName};
use apus_testkit::CertificateAuthority;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, NamedGroup};

use super::{
    BOTH, TlsClient, client_of, client_with, connect_tls, described, refusal, serve, shown, site,
    tls_listener,
};
use crate::harness::{Server, plan};

/// How the handshake went, after a request through which tickets arrive.
fn kind(client: &mut TlsClient) -> HandshakeKind {
    assert_eq!(client.get("/").status, 200);
    client.stream.conn.handshake_kind().unwrap()
}

fn connects(server: &Server, config: &ClientConfig, name: &str) -> HandshakeKind {
    kind(&mut connect_tls(server.address(), config, name).unwrap())
}

#[test]
fn resumes_sessions_within_a_site() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let server = serve(&[site(&["example.com"], &[&issued])], UnknownName::Reject);
    for version in BOTH {
        let config = client_with(&authority, &[version], None);
        assert_ne!(
            connects(&server, &config, "example.com"),
            HandshakeKind::Resumed
        );
        for _ in 0..3 {
            assert_eq!(
                connects(&server, &config, "example.com"),
                HandshakeKind::Resumed
            );
        }
    }
}

#[test]
fn sessions_outlive_a_reload_that_keeps_the_site() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let sites = [site(&["example.com"], &[&issued])];
    let server = serve(&sites, UnknownName::Reject);
    for version in BOTH {
        let config = client_with(&authority, &[version], None);
        assert_ne!(
            connects(&server, &config, "example.com"),
            HandshakeKind::Resumed
        );
        server
            .engine
            .reload(plan(vec![tls_listener(
                &sites,
                UnknownName::Reject,
                described(),
            )]))
            .unwrap();
        assert_eq!(
            connects(&server, &config, "example.com"),
            HandshakeKind::Resumed
        );
    }
}

/// A client that offers its sessions to every site.
#[derive(Debug)]
struct SharedSessionCache(ClientSessionMemoryCache);

fn one_name() -> ServerName<'static> {
    ServerName::try_from("all.test").unwrap()
}

impl ClientSessionStore for SharedSessionCache {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(one_name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&one_name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(one_name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&one_name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&one_name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(one_name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&one_name())
    }
}

#[test]
fn a_session_of_one_site_opens_no_other_that_wants_client_certificates() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["open.test", "closed.test"]);
    let authorities = ClientAuth::authorities_from_pem(authority.pem.as_bytes()).unwrap();
    let open = site(&["open.test"], &[&issued]);
    for client_auth in [
        ClientAuth::Required {
            authorities: authorities.clone(),
            revoked: Vec::new(),
        },
        ClientAuth::Optional {
            authorities,
            revoked: Vec::new(),
        },
    ] {
        let required = matches!(client_auth, ClientAuth::Required { .. });
        // The same certificate, and even the same listener.
        let closed = TlsSite {
            client_auth,
            ..site(&["closed.test"], &[&issued])
        };
        let server = serve(&[open.clone(), closed], UnknownName::Reject);
        for version in BOTH {
            let mut config = client_with(&authority, &[version], None);
            config.resumption = Resumption::store(Arc::new(SharedSessionCache(
                ClientSessionMemoryCache::new(8),
            )));
            assert_ne!(
                connects(&server, &config, "open.test"),
                HandshakeKind::Resumed
            );
            assert_eq!(
                connects(&server, &config, "open.test"),
                HandshakeKind::Resumed
            );
            if required {
                refusal(server.address(), &config, "closed.test");
            } else {
                assert_ne!(
                    connects(&server, &config, "closed.test"),
                    HandshakeKind::Resumed
                );
            }
        }
    }
}

#[test]
fn a_session_made_before_client_certificates_were_wanted_is_not_resumed_after() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let open = site(&["example.com"], &[&issued]);
    let authorities = ClientAuth::authorities_from_pem(authority.pem.as_bytes()).unwrap();
    let closed = TlsSite {
        client_auth: ClientAuth::Required {
            authorities,
            revoked: Vec::new(),
        },
        ..open.clone()
    };
    let server = serve(&[open], UnknownName::Reject);
    let config = client_of(&authority);
    assert_ne!(
        connects(&server, &config, "example.com"),
        HandshakeKind::Resumed
    );
    server
        .engine
        .reload(plan(vec![tls_listener(
            &[closed],
            UnknownName::Reject,
            described(),
        )]))
        .unwrap();
    refusal(server.address(), &config, "example.com");
}

#[test]
fn a_reload_changes_the_certificate_for_new_connections_only() {
    let authority = CertificateAuthority::generate();
    let (old, new) = (
        authority.ecdsa(&["example.com"]),
        authority.ecdsa(&["example.com"]),
    );
    let server = serve(&[site(&["example.com"], &[&old])], UnknownName::Reject);
    let mut before = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    assert_eq!(before.get("/").status, 200);
    let sites = [site(&["example.com"], &[&new])];
    server
        .engine
        .reload(plan(vec![tls_listener(
            &sites,
            UnknownName::Reject,
            described(),
        )]))
        .unwrap();
    let mut after = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    assert_eq!((shown(&before), shown(&after)), (old.der, new.der));
    assert_eq!(before.get("/").status, 200);
    assert_eq!(after.get("/").status, 200);
    assert_eq!(server.totals().accepted, 2);
}
