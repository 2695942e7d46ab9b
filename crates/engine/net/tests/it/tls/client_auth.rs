//! Client certificates: optional, required, verified, and visible to handlers.

use apus_net::tls::{ClientAuth, TlsSite, UnknownName};
use apus_testkit::{CertificateAuthority, IssuedCertificate};
use rustls::{AlertDescription, Error};

use super::{BOTH, client_of, client_with, connect_tls, refusal, serve, site};
use crate::harness::Server;

fn serving(authority: &CertificateAuthority, client_auth: ClientAuth) -> Server {
    let issued = authority.ecdsa(&["example.com"]);
    let site = TlsSite {
        client_auth,
        ..site(&["example.com"], &[&issued])
    };
    serve(&[site], UnknownName::Reject)
}

fn authorities(
    authority: &CertificateAuthority,
) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    ClientAuth::authorities_from_pem(authority.pem.as_bytes()).unwrap()
}

#[test]
fn a_required_certificate_is_the_identity_of_the_client() {
    let (authority, stranger) = (
        CertificateAuthority::generate(),
        CertificateAuthority::generate(),
    );
    let required = ClientAuth::Required {
        authorities: authorities(&authority),
        revoked: Vec::new(),
    };
    let server = serving(&authority, required);
    for version in BOTH {
        let identity = authority.ecdsa(&["alice"]);
        let config = client_with(&authority, &[version], Some(&identity));
        let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
        assert!(client.get("/").text().ends_with("example.com CN=alice"));

        let error = refusal(
            server.address(),
            &client_with(&authority, &[version], None),
            "example.com",
        );
        assert!(
            matches!(
                error,
                Error::AlertReceived(
                    AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure
                )
            ),
            "{error}"
        );

        let forged = stranger.ecdsa(&["alice"]);
        let config = client_with(&authority, &[version], Some(&forged));
        let error = refusal(server.address(), &config, "example.com");
        assert!(matches!(error, Error::AlertReceived(_)), "{error}");
    }
    server.wait_for("the counts", |totals| {
        (totals.handshakes, totals.handshake_failures) == (2, 4)
    });
    assert_eq!(server.totals().requests, 2);
}

#[test]
fn an_optional_certificate_may_be_left_out_but_not_be_wrong() {
    let (authority, stranger) = (
        CertificateAuthority::generate(),
        CertificateAuthority::generate(),
    );
    let server = serving(
        &authority,
        ClientAuth::Optional {
            authorities: authorities(&authority),
            revoked: Vec::new(),
        },
    );
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    assert_eq!(client.get("/").text(), "TLSv1.3 example.com -");
    let identity = authority.ecdsa(&["bob"]);
    let config = client_with(&authority, &BOTH, Some(&identity));
    let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
    assert_eq!(client.get("/").text(), "TLSv1.3 example.com CN=bob");
    let forged = stranger.ecdsa(&["bob"]);
    let config = client_with(&authority, &BOTH, Some(&forged));
    let error = refusal(server.address(), &config, "example.com");
    assert!(matches!(error, Error::AlertReceived(_)), "{error}");
}

#[test]
fn a_certificate_that_was_not_requested_is_no_identity() {
    let authority = CertificateAuthority::generate();
    let server = serving(&authority, ClientAuth::None);
    let identity = authority.ecdsa(&["mallory"]);
    let config = client_with(&authority, &BOTH, Some(&identity));
    let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
    assert_eq!(client.get("/").text(), "TLSv1.3 example.com -");
}

#[test]
fn a_certificate_that_was_revoked_is_refused() {
    let authority = CertificateAuthority::generate();
    let (alice, bob) = (authority.ecdsa(&["alice"]), authority.ecdsa(&["bob"]));
    let list = authority.revocation_list(&[&bob]);
    let required = ClientAuth::Required {
        authorities: authorities(&authority),
        revoked: ClientAuth::revoked_from_pem(list.as_bytes()).unwrap(),
    };
    let server = serving(&authority, required);
    for version in BOTH {
        let config = client_with(&authority, &[version], Some(&alice));
        let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
        assert!(client.get("/").text().ends_with("CN=alice"));
        let config = client_with(&authority, &[version], Some(&bob));
        let error = refusal(server.address(), &config, "example.com");
        let expected = Error::AlertReceived(AlertDescription::CertificateRevoked);
        assert_eq!(error, expected);
    }
    let error = ClientAuth::revoked_from_pem(authority.pem.as_bytes()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no list of revoked certificates"),
        "{error}"
    );
}

#[test]
fn a_self_signed_certificate_among_the_authorities_is_that_of_one_client() {
    let authority = CertificateAuthority::generate();
    let alice = IssuedCertificate::self_signed(&["alice"], 2020, 4000);
    let other = IssuedCertificate::self_signed(&["alice"], 2020, 4000);
    let expired = IssuedCertificate::self_signed(&["bob"], 2020, 2021);
    let pem = [&*alice.pem, &*expired.pem, &*authority.pem].concat();
    let authorities = || ClientAuth::authorities_from_pem(pem.as_bytes()).unwrap();
    for client_auth in [
        ClientAuth::Required {
            authorities: authorities(),
            revoked: Vec::new(),
        },
        ClientAuth::Optional {
            authorities: authorities(),
            revoked: Vec::new(),
        },
    ] {
        let server = serving(&authority, client_auth);
        for version in BOTH {
            let with = |issued| client_with(&authority, &[version], Some(issued));
            let mut client = connect_tls(server.address(), &with(&alice), "example.com").unwrap();
            assert!(client.get("/").text().ends_with("example.com CN=alice"));
            for wrong in [&other, &expired] {
                let error = refusal(server.address(), &with(wrong), "example.com");
                assert!(matches!(error, Error::AlertReceived(_)), "{error}");
            }
        }
    }
}
