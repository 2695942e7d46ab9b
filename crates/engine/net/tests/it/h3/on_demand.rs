//! Certificates that are looked for in a handshake over QUIC.

use std::sync::{Arc, Mutex};

use apus_net::tls::{
    HandshakeClient, OnDemandCertificates, OnDemandLookup, PreparedSite, TlsSettings, UnknownName,
};
use apus_net::{Http3Settings, ListenerPlan, RetryMode};
use apus_testkit::CertificateAuthority;

use super::H3Server;
use super::client::H3Client;
use crate::harness::{Server, local, ok, plan, service};
use crate::tls::{client_of, site};

/// Certificates for clients whose address is proven.
struct Looked {
    site: PreparedSite,
    clients: Mutex<Vec<HandshakeClient>>,
}

impl OnDemandCertificates for Looked {
    fn look_up(&self, _: &str, client: HandshakeClient) -> OnDemandLookup {
        self.clients.lock().unwrap().push(client);
        match client {
            HandshakeClient::Unproven => OnDemandLookup::NotYet,
            _ => OnDemandLookup::Ready(self.site.clone()),
        }
    }
}

/// A listener whose only site has no certificate at the start: its UDP socket is open all the same.
#[test]
fn nothing_is_looked_for_before_the_address_of_a_quic_client_is_proven() {
    for (retry, is_proven) in [(RetryMode::Auto, false), (RetryMode::Always, true)] {
        let authority = CertificateAuthority::generate();
        let issued = authority.ecdsa(&["example.com"]);
        let looked = Arc::new(Looked {
            site: PreparedSite::new(&site(&["example.com"], &[&issued]), None).unwrap(),
            clients: Mutex::default(),
        });
        let settings = TlsSettings::new(&[site(&[], &[])], UnknownName::FirstSite).unwrap();
        let listener = ListenerPlan {
            tls: Some(Arc::new(settings.with_on_demand(Arc::clone(&looked) as _))),
            http3: Some(Http3Settings {
                retry,
                ..Http3Settings::default()
            }),
            ..ListenerPlan::new(local(), service(|_| ok("hello").into()))
        };
        let server = H3Server::of(Server::run(plan(vec![listener])), client_of(&authority));
        if is_proven {
            let mut client = server.open();
            assert_eq!(client.get("/").text(), "hello");
        } else {
            let mut client = H3Client::begin(server.server.address(), &server.options);
            client.wait("the alert", |connection| connection.closed.is_some());
        }
        let clients = looked.clients.lock().unwrap();
        let found = !clients.is_empty()
            && clients.iter().all(|client| match client {
                HandshakeClient::Proven(address) => is_proven && address.is_loopback(),
                HandshakeClient::Unproven => !is_proven,
                HandshakeClient::Local => false,
            });
        assert!(found, "{clients:?}");
    }
}
