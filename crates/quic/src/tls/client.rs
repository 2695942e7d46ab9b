//! TLS of a client.

use std::fmt;
use std::sync::Arc;

use apus_quic_protocol::{ClientConfig, TokenStore, TransportConfig};

use super::{QuicTlsError, initial_suite};

/// TLS of a client, with the tokens by which it proves its address to servers that it knows (RFC 9000 section 8.1.3).
#[derive(Clone)]
pub struct QuicClientTls {
    config: Arc<rustls::ClientConfig>,
    tokens: Arc<TokenStore>,
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
        })
    }

    pub(crate) fn config(&self, transport: Arc<TransportConfig>) -> ClientConfig {
        ClientConfig {
            tls: Arc::clone(&self.config),
            tokens: Arc::clone(&self.tokens),
            transport,
        }
    }
}

impl fmt::Debug for QuicClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicClientTls")
    }
}
