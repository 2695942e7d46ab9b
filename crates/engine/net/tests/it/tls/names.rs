//! Which site and which certificate a client gets (RFC 6066 section 3), versions and ALPN.

use std::sync::Arc;

use apus_net::tls::{TlsSite, UnknownName};
use apus_testkit::{CertificateAuthority, IssuedCertificate};
use apus_transport::tls::{Certificate, MinVersion};
use rustls::{AlertDescription, CipherSuite, ClientConfig, Error, SignatureScheme};

use super::{
    BOTH, SchemeVerifier, client_of, client_with, connect_tls, provider, refusal, serve, shown,
    site,
};
use crate::harness::Server;

const TLS12: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
const TLS13: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

#[test]
fn a_certificate_is_read_from_files_and_what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let issued = CertificateAuthority::generate().ecdsa(&["example.com"]);
    let (chain, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    std::fs::write(&chain, &issued.pem).unwrap();
    let error = Certificate::from_files(&chain, &key).unwrap_err();
    assert!(error.to_string().contains("key.pem"), "{error}");
    std::fs::write(&key, &issued.key).unwrap();
    let certificate = Certificate::from_files(&chain, &key).unwrap();
    assert_eq!(*certificate.names(), ["example.com".into()]);
}

#[test]
fn speaks_tls_1_2_and_1_3() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let server = serve(&[site(&["example.com"], &[&issued])], UnknownName::Reject);
    for (versions, expected) in [
        (TLS12, "TLSv1.2 example.com -"),
        (TLS13, "TLSv1.3 example.com -"),
    ] {
        let config = client_with(&authority, &versions, None);
        let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
        assert_eq!(client.get("/").text(), expected);
        assert_eq!(client.get("/").text(), expected);
    }
    assert_eq!(server.totals().handshakes, 2);
}

#[test]
fn refuses_versions_older_than_a_site_allows() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let strict = TlsSite {
        min_version: MinVersion::Tls13,
        ..site(&["example.com"], &[&issued])
    };
    let server = serve(&[strict], UnknownName::Reject);
    let config = client_with(&authority, &TLS12, None);
    let error = refusal(server.address(), &config, "example.com");
    assert_eq!(
        error,
        Error::AlertReceived(AlertDescription::ProtocolVersion)
    );
    server.wait_for("the count", |totals| totals.handshake_failures == 1);
    connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
}

/// A server of several sites, and their certificates in that order.
fn several(
    authority: &CertificateAuthority,
    unknown: UnknownName,
) -> (Server, Vec<IssuedCertificate>) {
    let sites: [&[&str]; 4] = [
        &["first.test", "also.test"],
        &["*.example.com"],
        &["www.example.com"],
        &["*.deep.example.com"],
    ];
    let issued: Vec<_> = sites.iter().map(|names| authority.ecdsa(names)).collect();
    let all: Vec<_> = sites
        .iter()
        .zip(&issued)
        .map(|(names, issued)| site(names, &[issued]))
        .collect();
    (serve(&all, unknown), issued)
}

fn any_certificate() -> ClientConfig {
    knowing(
        &BOTH,
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::RSA_PSS_SHA256,
        ],
    )
}

fn knowing(
    versions: &[&'static rustls::SupportedProtocolVersion],
    schemes: Vec<SignatureScheme>,
) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SchemeVerifier(schemes)))
        .with_no_client_auth()
}

#[test]
fn picks_the_site_by_its_exact_name_then_the_longest_wildcard() {
    let authority = CertificateAuthority::generate();
    let (server, issued) = several(&authority, UnknownName::Reject);
    for (name, expected) in [
        ("first.test", 0),
        ("also.test", 0),
        ("www.example.com", 2),
        ("WWW.Example.COM", 2),
        ("other.example.com", 1),
        ("a.deep.example.com", 3),
        ("deep.example.com", 1),
    ] {
        let client = connect_tls(server.address(), &any_certificate(), name).unwrap();
        assert_eq!(shown(&client), issued[expected].der, "{name}");
    }
}

#[test]
fn an_unknown_name_gets_the_first_site_or_an_alert() {
    let authority = CertificateAuthority::generate();
    let (server, issued) = several(&authority, UnknownName::FirstSite);
    // An address is not a name: a client that connects to one sends none.
    for name in ["unknown.test", "example.com", "127.0.0.1"] {
        let client = connect_tls(server.address(), &any_certificate(), name).unwrap();
        assert_eq!(shown(&client), issued[0].der, "{name}");
    }
    let (server, _) = several(&authority, UnknownName::Reject);
    for name in ["unknown.test", "example.com", "127.0.0.1"] {
        let error = refusal(server.address(), &any_certificate(), name);
        assert_eq!(
            error,
            Error::AlertReceived(AlertDescription::UnrecognisedName),
            "{name}"
        );
    }
    server.wait_for("the count", |totals| totals.handshake_failures == 3);
}

#[test]
fn sends_ecdsa_or_rsa_by_what_the_client_can_verify() {
    let authority = CertificateAuthority::generate();
    let (rsa, ecdsa) = (
        authority.rsa(&["example.com"]),
        authority.ecdsa(&["example.com"]),
    );
    let server = serve(
        &[site(&["example.com"], &[&rsa, &ecdsa])],
        UnknownName::Reject,
    );
    let only_rsa = vec![
        SignatureScheme::RSA_PSS_SHA256,
        SignatureScheme::RSA_PKCS1_SHA256,
    ];
    let only_ecdsa = vec![SignatureScheme::ECDSA_NISTP256_SHA256];
    for versions in [TLS12, TLS13] {
        for (schemes, expected) in [
            (only_rsa.clone(), &rsa),
            (only_ecdsa.clone(), &ecdsa),
            ([only_rsa.clone(), only_ecdsa.clone()].concat(), &ecdsa),
        ] {
            let config = knowing(&versions, schemes);
            let client = connect_tls(server.address(), &config, "example.com").unwrap();
            assert_eq!(shown(&client), expected.der);
        }
    }
    // In TLS 1.2 the cipher suites matter too.
    let mut narrow = (*provider()).clone();
    narrow
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    let config = ClientConfig::builder_with_provider(Arc::new(narrow))
        .with_protocol_versions(&TLS12)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SchemeVerifier([only_ecdsa, only_rsa].concat())))
        .with_no_client_auth();
    let client = connect_tls(server.address(), &config, "example.com").unwrap();
    assert_eq!(shown(&client), rsa.der);
}

#[test]
fn negotiates_the_protocol_by_alpn() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let site = TlsSite {
        alpn: vec![b"http/1.1".to_vec()],
        ..site(&["example.com"], &[&issued])
    };
    let server = serve(&[site], UnknownName::Reject);
    let mut config = client_of(&authority);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = connect_tls(server.address(), &config, "example.com").unwrap();
    assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    config.alpn_protocols = vec![b"imap".to_vec()];
    let error = refusal(server.address(), &config, "example.com");
    assert_eq!(
        error,
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
    );
}

#[test]
fn openssl_verifies_the_chain() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let server = serve(&[site(&["example.com"], &[&issued])], UnknownName::Reject);
    let folder = tempfile::tempdir().unwrap();
    let authorities = folder.path().join("authority.pem");
    std::fs::write(&authorities, &authority.pem).unwrap();
    let output = std::process::Command::new("openssl")
        .args([
            "s_client",
            "-brief",
            "-verify_return_error",
            "-servername",
            "Example.Com",
        ])
        .args([
            "-verify_hostname",
            "example.com",
            "-connect",
            &server.address().to_string(),
        ])
        .arg("-CAfile")
        .arg(&authorities)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl has to be there; `make tools` installs it");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("Verification: OK"), "{printed}");
}
