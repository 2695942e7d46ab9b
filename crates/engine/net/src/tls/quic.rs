//! TLS of QUIC connections (RFC 9001), by the same sites.

use std::net::IpAddr;
use std::sync::Arc;

use apus_codec::client_hello::{TlsTransport, ja4};
use apus_http::{TlsFingerprints, TlsInfo, TlsVersion};
use apus_quic::{QuicConnection, QuicServerTls, SelectServerTls};

use super::handshake::{http_protocol, identity};
use super::settings::{HandshakeClient, OnDemandLookup, TlsSettings};
use super::site_quic::{QuicSite, SiteQuic};

impl SelectServerTls for TlsSettings {
    fn select(
        &self,
        server_name: Option<&str>,
        client: Option<IpAddr>,
    ) -> Option<Arc<QuicServerTls>> {
        let client = client.map_or(HandshakeClient::Unproven, HandshakeClient::Proven);
        let quic = match self.on_demand(server_name, client) {
            OnDemandLookup::NotCovered => self.site(server_name)?.quic.clone(),
            OnDemandLookup::Ready(site) => site.0.quic.clone(),
            // A client comes over TCP first, and learns of HTTP/3 there.
            _ => None,
        };
        quic.map(|SiteQuic(tls)| tls)
    }

    fn fingerprint(&self, client_hello: &[u8]) -> Option<Arc<str>> {
        if !TlsFingerprints::are_wanted() {
            return None;
        }
        ja4(client_hello, TlsTransport::Quic).map(Into::into)
    }
}

/// The result of the handshake of a connection; `None` before the site is selected.
pub(crate) fn quic_tls_info(connection: &QuicConnection) -> Option<TlsInfo> {
    let handshake = connection.handshake()?;
    let tls = handshake.server_tls?;
    let site = tls.site()?.downcast_ref::<QuicSite>()?;
    let certificates = connection.peer_certificates();
    let leaf = certificates.as_ref().and_then(|chain| chain.first());
    Some(TlsInfo {
        version: TlsVersion::Tls13,
        cipher: handshake.cipher.unwrap_or("unknown"),
        alpn: handshake.protocol.as_deref().and_then(http_protocol),
        fingerprint: handshake.fingerprint,
        server_name: handshake
            .server_name
            .map(|name| name.trim_end_matches('.').into()),
        certificate_names: Arc::clone(&site.certificate_names),
        client_certificate: leaf.and_then(|leaf| identity(leaf)).map(Arc::new),
    })
}
