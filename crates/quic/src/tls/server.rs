//! TLS of a server: one configuration for each site, selected by the server name (RFC 6066 section 3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use apus_quic_protocol::{StartTlsSession, TlsSession};
use rustls::quic::{ServerConnection, Version};

use super::QuicTlsError;
use super::session::ServerSession;

/// The value of `max_early_data_size` that QUIC requires (RFC 9001 section 4.6.1).
const EARLY_DATA: u32 = u32::MAX;

/// Selects the configuration of a connection by the server name in its ClientHello. It is called once per connection,
/// on the thread of its worker.
pub trait SelectServerTls: Send + Sync + 'static {
    /// The configuration for this name, in lower case; `None` refuses the connection with the alert
    /// `unrecognized_name`.
    fn select(&self, server_name: Option<&str>) -> Option<Arc<QuicServerTls>>;
}

/// TLS of one site: certificates, rules for client certificates, ALPN protocols and sessions.
pub struct QuicServerTls {
    config: Arc<rustls::ServerConfig>,
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
        let config = Arc::new(config);
        // The same checks as for each connection.
        ServerConnection::new(Arc::clone(&config), Version::V1, Vec::new())
            .map_err(|_| QuicTlsError::NoTls13)?;
        Ok(Self { config, site: None })
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

    pub(super) fn config(&self) -> &Arc<rustls::ServerConfig> {
        &self.config
    }
}

impl fmt::Debug for QuicServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicServerTls")
    }
}

/// The TLS of an endpoint, which selects that of the site by the ClientHello.
pub(crate) struct ServerTlsSelection {
    pub(crate) sites: Arc<dyn SelectServerTls>,
}

impl StartTlsSession for ServerTlsSelection {
    fn start(&self, parameters: Vec<u8>) -> Box<dyn TlsSession> {
        Box::new(ServerSession::new(Arc::clone(&self.sites), parameters))
    }
}
