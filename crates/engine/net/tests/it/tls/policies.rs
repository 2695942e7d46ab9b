//! Named policies of TLS: versions, cipher suites, and groups, the hybrid one among them.

use apus_net::tls::{TlsPolicy, TlsSite, UnknownName};
use apus_testkit::CertificateAuthority;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, Error, NamedGroup, ProtocolVersion, RootCertStore,
    SupportedCipherSuite,
};

use super::{connect_tls, refusal, serve, site};
use crate::harness::Server;

fn serve_by(policy: TlsPolicy) -> (CertificateAuthority, Server) {
    let authority = CertificateAuthority::generate();
    let certificates = [
        &authority.ecdsa(&["example.com"]),
        &authority.rsa(&["example.com"]),
    ];
    let site = TlsSite {
        policy,
        ..site(&["example.com"], &certificates)
    };
    (authority, serve(&[site], UnknownName::Reject))
}

/// The configuration of a client with these cipher suites and groups alone.
pub(crate) fn client(
    authority: &CertificateAuthority,
    suites: &[SupportedCipherSuite],
    groups: &[&'static dyn SupportedKxGroup],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).unwrap();
    let provider = CryptoProvider {
        cipher_suites: suites.to_vec(),
        kx_groups: groups.to_vec(),
        ..aws_lc_rs::default_provider()
    };
    ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The version, the cipher suite and the group of a connection.
fn negotiated(
    server: &Server,
    config: &ClientConfig,
) -> (ProtocolVersion, CipherSuite, NamedGroup) {
    let client = connect_tls(server.address(), config, "example.com").unwrap();
    let connection = &client.stream.conn;
    (
        connection.protocol_version().unwrap(),
        connection.negotiated_cipher_suite().unwrap().suite(),
        connection.negotiated_key_exchange_group().unwrap().name(),
    )
}

pub(crate) const TLS13: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
];
const TLS12: [SupportedCipherSuite; 6] = [
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];
const POLICIES: [TlsPolicy; 3] = [
    TlsPolicy::Modern,
    TlsPolicy::Intermediate,
    TlsPolicy::Legacy,
];

#[test]
fn the_hybrid_group_is_used_by_clients_that_prefer_it_and_others_use_their_own() {
    for policy in POLICIES {
        let (authority, server) = serve_by(policy);
        let group = |groups: &[&'static dyn SupportedKxGroup]| {
            let config = client(&authority, &TLS13, groups);
            negotiated(&server, &config).2
        };
        for (own, name) in [
            (kx_group::X25519MLKEM768, NamedGroup::X25519MLKEM768),
            (kx_group::X25519, NamedGroup::X25519),
            (kx_group::SECP256R1, NamedGroup::secp256r1),
            (kx_group::SECP384R1, NamedGroup::secp384r1),
        ] {
            assert_eq!(group(&[own]), name, "{policy:?}");
        }
        let browser = [kx_group::X25519MLKEM768, kx_group::X25519];
        assert_eq!(group(&browser), NamedGroup::X25519MLKEM768, "{policy:?}");
        // Without the other share, the server does not ask for it, which would take a round trip.
        let careful = [kx_group::X25519, kx_group::X25519MLKEM768];
        assert_eq!(group(&careful), NamedGroup::X25519, "{policy:?}");
    }
}

#[test]
fn each_policy_has_its_versions_and_cipher_suites() {
    for policy in POLICIES {
        let (authority, server) = serve_by(policy);
        for suite in TLS13 {
            let config = client(&authority, &[suite], &[kx_group::X25519]);
            let (version, found, _) = negotiated(&server, &config);
            assert_eq!(version, ProtocolVersion::TLSv1_3, "{policy:?}");
            assert_eq!(found, suite.suite(), "{policy:?}");
        }
        for suite in TLS12 {
            let config = client(&authority, &[suite], &[kx_group::SECP256R1]);
            if policy == TlsPolicy::Modern {
                let error = refusal(server.address(), &config, "example.com");
                let alert = AlertDescription::ProtocolVersion;
                assert_eq!(error, Error::AlertReceived(alert), "{suite:?}");
                continue;
            }
            let (version, found, _) = negotiated(&server, &config);
            assert_eq!(version, ProtocolVersion::TLSv1_2, "{policy:?}");
            assert_eq!(found, suite.suite(), "{policy:?}");
        }
    }
}

#[test]
fn the_order_of_cipher_suites_is_that_of_clients_but_with_the_policy_legacy() {
    for (policy, tls13, tls12) in [
        (
            TlsPolicy::Intermediate,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            TlsPolicy::Legacy,
            CipherSuite::TLS13_AES_128_GCM_SHA256,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
    ] {
        let (authority, server) = serve_by(policy);
        let of = |suites: &[SupportedCipherSuite]| {
            let config = client(&authority, suites, &[kx_group::X25519]);
            negotiated(&server, &config).1
        };
        assert_eq!(of(&TLS13), tls13, "{policy:?}");
        assert_eq!(of(&TLS12), tls12, "{policy:?}");
    }
}
