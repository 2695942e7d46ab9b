//! Listeners with TLS, and HTTP/3.

use std::net::ToSocketAddrs;
use std::sync::Arc;

#[cfg(feature = "http3")]
use apus_net::Http3Settings;
use apus_net::tls::{TlsSettings, TlsSite, UnknownName};
use apus_transport::tls::Certificate;

use super::Server;
use super::error::StartError;

impl Server {
    /// Listens on an address with TLS, for HTTP/3, HTTP/2 and HTTP/1.1. HTTP/3 uses the UDP port of the same
    /// number; if that is not free, a warning is logged, and the others are served.
    ///
    /// # Errors
    /// The text is not an address, or its host name cannot be resolved.
    pub fn listen_tls(
        self,
        address: impl ToSocketAddrs,
        certificate: Certificate,
    ) -> Result<Self, StartError> {
        let site = TlsSite::new(Vec::new(), vec![certificate]);
        let settings = TlsSettings::new(&[site], UnknownName::FirstSite)
            .map_err(|error| StartError::Tls(error.into()))?;
        self.listen_with(address, Arc::new(settings))
    }

    /// Listens on an address with custom TLS settings; HTTP/3 is served for the sites that have
    /// [`TlsSite::http3`].
    ///
    /// # Errors
    /// The text is not an address, or its host name cannot be resolved.
    pub fn listen_with(
        self,
        address: impl ToSocketAddrs,
        tls: Arc<TlsSettings>,
    ) -> Result<Self, StartError> {
        self.listen_on(address, |listener| listener.tls = Some(Arc::clone(&tls)))
    }

    /// The settings of HTTP/3, which is on where there is TLS; `None` is off.
    #[cfg(feature = "http3")]
    #[must_use]
    pub fn http3(mut self, settings: Option<Http3Settings>) -> Self {
        self.http3 = settings;
        self
    }
}
