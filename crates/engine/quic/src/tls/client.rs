//! TLS of a client.

use std::fmt;
use std::sync::Arc;

use apus_quic_protocol::{ClientConfig, QuicVersion, TokenStore, TransportConfig};

use super::{QuicTlsError, initial_suite};

/// TLS of a client, with the tokens by which it proves its address to servers that it knows (RFC 9000 section 8.1.3).
#[derive(Clone)]
pub struct QuicClientTls {
    config: Arc<rustls::ClientConfig>,
    tokens: Arc<TokenStore>,
    version: QuicVersion,
}

impl QuicClientTls {
    /// This configuration, with its roots, certificates, ALPN protocols and stored sessions. With
    /// `enable_early_data`, connections to a known server can send 0-RTT data.
    ///
    /// # Errors
    /// The library lacks the suite of Initial packets.
    pub fn new(config: Arc<rustls::ClientConfig>) -> Result<Self, QuicTlsError> {
        initial_suite()?;
        Ok(Self {
            config,
            tokens: Arc::default(),
            version: QuicVersion::V1,
        })
    }

    /// Opens connections with this version of QUIC, without tokens of another one. The configuration must have no
    /// sessions of another version (RFC 9369 section 5).
    #[must_use]
    pub fn with_version(self, version: QuicVersion) -> Self {
        Self {
            tokens: Arc::default(),
            version,
            ..self
        }
    }

    pub(crate) fn config(&self, transport: Arc<TransportConfig>) -> ClientConfig {
        ClientConfig {
            tls: Arc::clone(&self.config),
            tokens: Arc::clone(&self.tokens),
            transport,
            version: self.version,
        }
    }
}

impl fmt::Debug for QuicClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicClientTls")
    }
}
