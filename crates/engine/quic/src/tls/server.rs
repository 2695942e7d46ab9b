//! TLS of a server: one configuration for each site, selected by the server name (RFC 6066 section 3).

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use apus_quic_protocol::QuicVersion;
use rustls::quic::{ServerConnection, Version};
use rustls::server::{NoServerSessionStorage, ProducesTickets, StoresServerSessions};

use super::QuicTlsError;

/// The value of `max_early_data_size` that QUIC requires (RFC 9001 section 4.6.1).
const EARLY_DATA: u32 = u32::MAX;

/// Selects the configuration of a connection by the server name in its ClientHello. It is called once per connection,
/// on the thread of its worker.
pub trait SelectServerTls: Send + Sync + 'static {
    /// The configuration for this name, in lower case; `None` refuses the connection with the alert
    /// `unrecognized_name`. `client` is the address at which the client has proved to receive: without it, the source of
    /// the packets may be forged, and they may cause no work beyond the handshake.
    fn select(
        &self,
        server_name: Option<&str>,
        client: Option<IpAddr>,
    ) -> Option<Arc<QuicServerTls>>;

    /// A fingerprint of the client for [`QuicHandshake::fingerprint`](super::QuicHandshake::fingerprint), by its ClientHello. By default none.
    fn fingerprint(&self, _client_hello: &[u8]) -> Option<Arc<str>> {
        None
    }
}

/// TLS of one site: certificates, rules for client certificates, ALPN protocols and sessions.
pub struct QuicServerTls {
    config: Arc<rustls::ServerConfig>,
    /// The same for version 2, with its own sessions: none is resumed in another version (RFC 9369 section 5).
    config_of_version_2: Arc<rustls::ServerConfig>,
    site: Option<Arc<dyn Any + Send + Sync>>,
}

impl QuicServerTls {
    /// This configuration. With `early_data`, clients that resume a session can send 0-RTT data; then
    /// `session_storage` is the guard against replays, since each session in it can be used once.
    ///
    /// # Errors
    /// TLS 1.3 is off, or early data is on and sessions are resumed by tickets without state.
    pub fn new(mut config: rustls::ServerConfig, early_data: bool) -> Result<Self, QuicTlsError> {
        if early_data && config.ticketer.enabled() {
            return Err(QuicTlsError::EarlyDataWithoutState);
        }
        config.max_early_data_size = if early_data { EARLY_DATA } else { 0 };
        let mut config_of_version_2 = config.clone();
        config_of_version_2.session_storage = if config.ticketer.enabled() {
            // Tickets without state would have to tell the version.
            Arc::new(NoServerSessionStorage {})
        } else {
            Arc::new(SessionsOfVersion2(Arc::clone(&config.session_storage)))
        };
        config_of_version_2.ticketer = Arc::new(NoTickets);
        let config = Arc::new(config);
        // The same checks as for each connection.
        ServerConnection::new(Arc::clone(&config), Version::V1, Vec::new())
            .map_err(|_| QuicTlsError::NoTls13)?;
        Ok(Self {
            config,
            config_of_version_2: Arc::new(config_of_version_2),
            site: None,
        })
    }

    /// Adds what the application has to know of the site, for [`QuicServerTls::site`].
    #[must_use]
    pub fn with_site(mut self, site: Arc<dyn Any + Send + Sync>) -> Self {
        self.site = Some(site);
        self
    }

    /// What the application added.
    pub fn site(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.site.as_ref()
    }

    pub(super) fn config(&self, version: QuicVersion) -> &Arc<rustls::ServerConfig> {
        match version {
            QuicVersion::V1 => &self.config,
            QuicVersion::V2 => &self.config_of_version_2,
        }
    }
}

/// The sessions of version 2 in a storage, in which they have other names than the sessions of version 1.
#[derive(Debug)]
struct SessionsOfVersion2(Arc<dyn StoresServerSessions>);

impl SessionsOfVersion2 {
    fn name(key: &[u8]) -> Vec<u8> {
        [b"quicv2 ", key].concat()
    }
}

impl StoresServerSessions for SessionsOfVersion2 {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.put(Self::name(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(&Self::name(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.take(&Self::name(key))
    }

    fn can_cache(&self) -> bool {
        self.0.can_cache()
    }
}

/// No tickets without state.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl fmt::Debug for QuicServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicServerTls")
    }
}
