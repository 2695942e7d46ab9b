//! `SiteQuic`: the configuration of a site for HTTP/3.

use std::sync::Arc;

use apus_quic::QuicServerTls;
use apus_transport::tls::TlsError;
use rustls::ServerConfig;

use super::sessions::TlsSessions;

/// The configuration of a site for HTTP/3.
#[derive(Clone)]
pub(super) struct SiteQuic(pub(super) Arc<QuicServerTls>);

/// What a QUIC connection has to know of its site.
pub(super) struct QuicSite {
    pub(super) certificate_names: Arc<[Box<str>]>,
}

impl SiteQuic {
    /// Its sessions are in memory, so that each can be resumed once: this is the guard against replays of early data.
    pub(super) fn new(
        config: &ServerConfig,
        early_data: bool,
        sessions: &TlsSessions,
        certificate_names: &Arc<[Box<str>]>,
    ) -> Result<Self, TlsError> {
        let mut config = config.clone();
        config.alpn_protocols = vec![b"h3".to_vec()];
        config.session_storage = Arc::clone(&sessions.quic_storage);
        let tls = QuicServerTls::new(config, early_data)
            .map_err(|error| TlsError::new(error.to_string()))?
            .with_site(Arc::new(QuicSite {
                certificate_names: Arc::clone(certificate_names),
            }));
        Ok(Self(Arc::new(tls)))
    }
}
