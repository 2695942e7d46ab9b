//! Which versions, cipher suites and groups of TLS a site accepts: named policies after Mozilla's guidelines for servers
//! (<https://wiki.mozilla.org/Security/Server_Side_TLS>), without the cipher suites that rustls does not have.

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};

/// Which clients of TLS a site accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPolicy {
    /// TLS 1.3 alone: browsers since about 2019.
    Modern,
    /// TLS 1.3, and TLS 1.2 with forward secrecy and AEAD ciphers: browsers since about 2014.
    #[default]
    Intermediate,
    /// As [`Self::Intermediate`], with cipher suites in the order of the server. TLS 1.1 and 1.0 and the cipher suites of
    /// Mozilla's policy "old" are not there: rustls has none of them.
    Legacy,
}

/// In the order of Mozilla's guidelines.
const TLS13: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];
const TLS12: [SupportedCipherSuite; 6] = [
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];
/// Of those that a client offers, its first one is used. Browsers put the hybrid one first, which also withstands quantum
/// computers.
const GROUPS: [&dyn SupportedKxGroup; 4] = [
    kx_group::X25519MLKEM768,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
];

impl TlsPolicy {
    /// The cryptography of a site.
    pub(super) fn provider(self) -> CryptoProvider {
        CryptoProvider {
            cipher_suites: match self {
                Self::Modern => TLS13.to_vec(),
                Self::Intermediate | Self::Legacy => [&TLS13[..], &TLS12].concat(),
            },
            kx_groups: GROUPS.to_vec(),
            ..default_provider()
        }
    }

    /// Whether TLS 1.2 is accepted.
    pub(super) fn has_tls12(self) -> bool {
        self != Self::Modern
    }

    /// Whether the server's order of cipher suites is used, and not the order of the client, which knows its processor.
    pub(super) fn has_order_of_server(self) -> bool {
        self == Self::Legacy
    }
}
