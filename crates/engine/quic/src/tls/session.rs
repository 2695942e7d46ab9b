//! The TLS session of a server connection, which begins when its site is known.

use std::any::Any;
use std::sync::Arc;

use apus_quic_protocol::{QuicVersion, ServerOffer, StartTlsSession, TlsSession, TransportError};
use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;
use rustls::quic::{Connection, DirectionalKeys, KeyChange, ServerConnection};

use super::QuicHandshake;
use super::hello::{ClientHelloReader, alert};
use super::server::{QuicServerTls, SelectServerTls};

/// The alerts `unexpected_message` and `internal_error` (RFC 8446 section 6.2).
const UNEXPECTED_MESSAGE: u8 = 10;
const INTERNAL_ERROR: u8 = 80;

/// The TLS of an endpoint, which selects the TLS settings of the site by the ClientHello.
pub(crate) struct ServerTlsSelection {
    pub(crate) sites: Arc<dyn SelectServerTls>,
}

impl StartTlsSession for ServerTlsSelection {
    fn start(&self, offer: ServerOffer) -> Box<dyn TlsSession> {
        Box::new(ServerSession::new(Arc::clone(&self.sites), offer))
    }
}

/// The TLS session of a server connection.
pub(super) struct ServerSession {
    sites: Arc<dyn SelectServerTls>,
    stage: Stage,
}

enum Stage {
    /// The ClientHello is not complete.
    Hello {
        reader: Box<ClientHelloReader>,
        offer: Option<ServerOffer>,
    },
    /// The site is selected.
    Selected {
        version: QuicVersion,
        tls: Arc<QuicServerTls>,
        fingerprint: Option<Arc<str>>,
        connection: Box<Connection>,
    },
    /// The handshake is complete, and all is written: the state of TLS, some kilobytes, is not needed any more.
    Complete(Box<CompleteHandshake>),
}

/// What is known of a handshake after its end.
struct CompleteHandshake {
    facts: QuicHandshake,
    certificates: Option<Vec<CertificateDer<'static>>>,
}

impl ServerSession {
    /// The session of a connection with this offer.
    fn new(sites: Arc<dyn SelectServerTls>, offer: ServerOffer) -> Self {
        Self {
            sites,
            stage: Stage::Hello {
                reader: Box::default(),
                offer: Some(offer),
            },
        }
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.stage {
            Stage::Hello { .. } | Stage::Complete(_) => None,
            Stage::Selected { connection, .. } => Some(connection),
        }
    }

    /// The certificates of the client.
    pub(super) fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        match &self.stage {
            Stage::Hello { .. } => None,
            Stage::Selected { connection, .. } => certificates(connection),
            Stage::Complete(complete) => complete.certificates.clone(),
        }
    }

    /// Facts of the handshake, once the site is selected.
    pub(super) fn handshake(&self) -> Option<QuicHandshake> {
        let (tls, fingerprint, connection) = match &self.stage {
            Stage::Hello { .. } => return None,
            Stage::Selected {
                tls,
                fingerprint,
                connection,
                ..
            } => (tls, fingerprint, connection),
            Stage::Complete(complete) => return Some(complete.facts.clone()),
        };
        Some(QuicHandshake {
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            server_name: server_name(connection).map(str::to_owned),
            server_tls: Some(Arc::clone(tls)),
            cipher: connection
                .negotiated_cipher_suite()
                .and_then(|suite| suite.suite().as_str()),
            fingerprint: fingerprint.clone(),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }
}

impl TlsSession for ServerSession {
    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        match &mut self.stage {
            Stage::Selected { connection, .. } => TlsSession::read(&mut **connection, bytes),
            // A client has nothing to send: this end asks for no certificate later, and QUIC updates keys by itself.
            Stage::Complete(_) => Err(alert(
                UNEXPECTED_MESSAGE,
                "a TLS message after the handshake",
            )),
            Stage::Hello { reader, offer } => {
                let client = offer.as_ref().and_then(ServerOffer::proven_client);
                let Some(tls) = reader.read(bytes, &*self.sites, client)? else {
                    return Ok(());
                };
                let Some(offer) = offer.take() else {
                    return Err(alert(INTERNAL_ERROR, "a second ClientHello"));
                };
                let (version, parameters) = offer.respond(&reader.bytes)?;
                let config = Arc::clone(tls.config(version));
                let mut connection = ServerConnection::new(config, version.tls(), parameters)
                    .map(|connection| Box::new(Connection::Server(connection)))
                    .map_err(|error| alert(INTERNAL_ERROR, &error.to_string()))?;
                TlsSession::read(&mut *connection, &reader.bytes)?;
                let fingerprint = self.sites.fingerprint(&reader.bytes);
                self.stage = Stage::Selected {
                    version,
                    tls,
                    fingerprint,
                    connection,
                };
                Ok(())
            }
        }
    }

    fn write(&mut self, buffer: &mut Vec<u8>) -> Option<KeyChange> {
        let Stage::Selected { connection, .. } = &mut self.stage else {
            return None;
        };
        let change = connection.write_hs(buffer);
        if change.is_none()
            && buffer.is_empty()
            && !connection.is_handshaking()
            && let certificates = certificates(connection)
            && let Some(facts) = self.handshake()
        {
            let complete = CompleteHandshake {
                facts,
                certificates,
            };
            self.stage = Stage::Complete(Box::new(complete));
        }
        change
    }

    fn transport_parameters(&self) -> Option<&[u8]> {
        self.connection()?.quic_transport_parameters()
    }

    fn early_keys(&self) -> Option<DirectionalKeys> {
        self.connection()?.zero_rtt_keys()
    }

    fn is_early_data_accepted(&self) -> bool {
        false
    }

    fn is_handshaking(&self) -> bool {
        match &self.stage {
            Stage::Hello { .. } => true,
            Stage::Selected { connection, .. } => connection.is_handshaking(),
            Stage::Complete(_) => false,
        }
    }

    fn selected_version(&self) -> Option<QuicVersion> {
        match self.stage {
            Stage::Selected { version, .. } => Some(version),
            Stage::Hello { .. } | Stage::Complete(_) => None,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The certificates of the peer.
pub(super) fn certificates(connection: &Connection) -> Option<Vec<CertificateDer<'static>>> {
    let chain = connection.peer_certificates()?;
    let owned = chain
        .iter()
        .map(|certificate| certificate.clone().into_owned());
    Some(owned.collect())
}

fn server_name(connection: &Connection) -> Option<&str> {
    match connection {
        Connection::Server(connection) => connection.server_name(),
        Connection::Client(_) => None,
    }
}
