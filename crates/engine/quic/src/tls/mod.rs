//! TLS 1.3 for QUIC (RFC 9001): as a server, with the configuration of the site that the ClientHello names, and as a
//! client.

mod client;
mod hello;
mod server;
mod session;

use std::fmt;
use std::sync::Arc;

use apus_quic_protocol::TlsSession;
use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;
use rustls::quic::{Connection, Suite};

use session::ServerSession;

pub use client::QuicClientTls;
pub use server::{QuicServerTls, SelectServerTls};

pub(crate) use session::ServerTlsSelection;

/// The suite that protects Initial packets (RFC 9001 section 5.2).
pub(crate) fn initial_suite() -> Result<Suite, QuicTlsError> {
    rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(rustls::Tls13CipherSuite::quic_suite)
        .ok_or(QuicTlsError::NoInitialSuite)
}

/// Facts of the handshake; `None` until there are any.
pub(crate) fn handshake(session: &dyn TlsSession) -> Option<QuicHandshake> {
    let session = session.as_any();
    if let Some(server) = session.downcast_ref::<ServerSession>() {
        return server.handshake();
    }
    let client = session.downcast_ref::<Connection>()?;
    let protocol = client.alpn_protocol().map(<[u8]>::to_vec);
    (protocol.is_some() || !client.is_handshaking()).then_some(QuicHandshake {
        protocol,
        server_name: None,
        server_tls: None,
        cipher: None,
        fingerprint: None,
        is_resumed: client.handshake_kind() == Some(HandshakeKind::Resumed),
    })
}

/// The certificates of the peer.
pub(crate) fn peer_certificates(session: &dyn TlsSession) -> Option<Vec<CertificateDer<'static>>> {
    let session = session.as_any();
    match session.downcast_ref::<ServerSession>() {
        Some(server) => server.certificates(),
        None => session::certificates(session.downcast_ref::<Connection>()?),
    }
}

/// Why a configuration of TLS cannot be used for QUIC.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuicTlsError {
    /// TLS 1.3, which QUIC requires, is off, or none of the cipher suites supports QUIC.
    NoTls13,
    /// Early data is on, and sessions are resumed by tickets without state, which could be replayed.
    EarlyDataWithoutState,
    /// The library lacks `TLS13_AES_128_GCM_SHA256`.
    NoInitialSuite,
}

impl fmt::Display for QuicTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTls13 => "QUIC needs TLS 1.3 with a cipher suite that supports QUIC",
            Self::EarlyDataWithoutState => {
                "early data needs sessions with state: a ticket without state could be replayed"
            }
            Self::NoInitialSuite => "QUIC needs TLS13_AES_128_GCM_SHA256",
        })
    }
}

impl std::error::Error for QuicTlsError {}

/// Facts of a handshake.
#[derive(Clone)]
#[non_exhaustive]
pub struct QuicHandshake {
    /// The protocol selected by ALPN (RFC 7301).
    pub protocol: Option<Vec<u8>>,
    /// The server name that the client sent; `None` at a client.
    pub server_name: Option<String>,
    /// The configuration that was selected; `None` at a client.
    pub server_tls: Option<Arc<QuicServerTls>>,
    /// The cipher suite; `None` at a client.
    pub cipher: Option<&'static str>,
    /// The fingerprint of the client that [`SelectServerTls::fingerprint`] made; `None` at a client.
    pub fingerprint: Option<Arc<str>>,
    /// Whether a session was resumed.
    pub is_resumed: bool,
}

impl fmt::Debug for QuicHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicHandshake")
            .field("protocol", &self.protocol)
            .field("server_name", &self.server_name)
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}
