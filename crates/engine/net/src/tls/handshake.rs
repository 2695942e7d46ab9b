//! TLS handshakes of a server that picks the site by the ClientHello.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Poll, ready};

use apus_codec::client_hello::ja4_of_records;
use apus_http::{ClientCertificate, Peer, TlsFingerprints, TlsInfo, TlsVersion};
use apus_tokens::Hexadecimal;
use apus_transport::buffers::BufferPool;
use apus_transport::tls::TlsStream;
use apus_transport::{StreamSocket, Transport};
use rustls::server::{Accepted, AcceptedAlert, Acceptor, ClientHello};
use rustls::{Connection, ProtocolVersion, ServerConnection};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::settings::{
    CHALLENGE_PROTOCOL, HandshakeClient, OnDemandLookup, TlsSettings, TlsSiteConfig,
};
use crate::connection_table::ConnectionSlot;

/// The fatal alert `unrecognized_name` (RFC 6066 section 3) as a record.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The fatal alert `internal_error` (RFC 8446 section 6.2) as a record: the client can try again later.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// The fatal alert `unexpected_message` (RFC 8446 section 6.2) as a record.
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// The fatal alert `decode_error` (RFC 8446 section 6.2) as a record: for a ClientHello that is larger than
/// rustls takes, or that is none.
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// The response to a client that speaks HTTP without TLS to a TLS port.
const CLEAR_TEXT: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 49\r\nconnection: close\r\n\r\nThis port speaks HTTPS. Use https:// to reach it\n";

/// The longest beginning of a connection that is kept for a fingerprint.
const MAX_FINGERPRINTED: usize = 64 * 1024;

/// A connection whose handshake is complete.
pub(crate) struct AcceptedTls {
    pub(crate) transport: Transport,
    pub(crate) info: TlsInfo,
    /// Whether the site is served over HTTP/3, too.
    pub(crate) has_http3: bool,
}

/// A connection before its handshake.
pub(crate) struct TlsClient {
    pub(crate) socket: StreamSocket,
    /// The client, by a PROXY header if there is one.
    pub(crate) peer: Peer,
    /// Bytes that were read already.
    pub(crate) early: Vec<u8>,
}

/// Performs the handshake within the connection's deadline.
pub(crate) async fn accept(
    settings: &TlsSettings,
    client: TlsClient,
    slot: &ConnectionSlot,
    buffers: &BufferPool,
) -> io::Result<AcceptedTls> {
    let TlsClient {
        mut socket,
        peer,
        early,
    } = client;
    // Boxed, like the stream: while many clients connect at once, each waits with a small future.
    let hello = Box::pin(read_hello(&mut socket, slot, buffers, early)).await;
    let mut behind = Vec::new();
    let mut fingerprint = None;
    let begun = match hello {
        Err(refusal) => Err(refusal),
        Ok(AcceptedHello {
            accepted,
            rest,
            fingerprint: found,
        }) => {
            behind = rest;
            fingerprint = found;
            let hello = accepted.client_hello();
            let on_demand = if is_challenge(&hello) {
                OnDemandLookup::NotCovered
            } else {
                // Over TCP the client has completed a handshake, so its address is not forged.
                let client = peer
                    .ip()
                    .map_or(HandshakeClient::Local, HandshakeClient::Proven);
                settings.on_demand(hello.server_name(), client)
            };
            let on_demand = match on_demand {
                // Boxed: few handshakes wait for this.
                OnDemandLookup::Pending(mut lookup) => {
                    slot.wait(|cx| lookup.as_mut().poll(cx).map(Ok)).await?
                }
                lookup => lookup,
            };
            choose_site(settings, *accepted, on_demand)
        }
    };
    let (session, site) = match begun {
        Ok(begun) => begun,
        Err(HandshakeRefusal { error, reply }) => {
            if !reply.is_empty() {
                send_refusal(&mut socket, slot, buffers, &reply).await;
            }
            return Err(error);
        }
    };
    let mut stream = Box::new(TlsStream::new(socket, *session));
    let received = stream.receive(&behind);
    drop(behind);
    let handshake = match received {
        Ok(()) => slot.wait(|cx| stream.poll_handshake(cx)).await,
        Err(error) => {
            let _ = slot.wait(|cx| stream.poll_flush(cx)).await;
            Err(error)
        }
    };
    if let Err(error) = handshake {
        // The alert has been sent; a client of TLS 1.3 may have sent its first request already.
        if error.kind() == io::ErrorKind::InvalidData {
            linger(stream.socket_mut(), slot, buffers).await;
        }
        return Err(error);
    }
    let Some(site) = site else {
        // The authority has seen the certificate, and sends nothing more (RFC 8737 section 3).
        stream.close_notify();
        slot.wait(|cx| stream.poll_flush(cx)).await?;
        linger(stream.socket_mut(), slot, buffers).await;
        return Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "a certificate authority verified the server name",
        ));
    };
    Ok(AcceptedTls {
        info: TlsInfo {
            fingerprint,
            ..tls_info(&stream, &site)
        },
        transport: Transport::Tls(stream),
        has_http3: site.quic.is_some(),
    })
}

/// Why there is no session, and the reply to the client.
struct HandshakeRefusal {
    error: io::Error,
    reply: Vec<u8>,
}

impl HandshakeRefusal {
    fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>, reply: &[u8]) -> Self {
        Self {
            error: io::Error::new(io::ErrorKind::InvalidData, error),
            reply: reply.to_vec(),
        }
    }

    /// The alert of rustls.
    fn by_alert((error, mut alert): (rustls::Error, AcceptedAlert)) -> Self {
        let mut record = Vec::new();
        match alert.write_all(&mut record) {
            // rustls has no alert for a few errors.
            Ok(()) if record.is_empty() => match error {
                rustls::Error::PeerMisbehaved(_) => Self::new(error, &UNEXPECTED_MESSAGE),
                _ => Self::new(error, &DECODE_ERROR),
            },
            Ok(()) => Self::new(error, &record),
            Err(error) => error.into(),
        }
    }
}

impl From<io::Error> for HandshakeRefusal {
    fn from(error: io::Error) -> Self {
        Self {
            error,
            reply: Vec::new(),
        }
    }
}

/// A ClientHello.
struct AcceptedHello {
    accepted: Box<Accepted>,
    /// The bytes behind it that rustls does not have yet.
    rest: Vec<u8>,
    /// Its fingerprint, if something asks for it.
    fingerprint: Option<Arc<str>>,
}

/// Reads the ClientHello, and returns it with the bytes behind it that rustls does not have yet.
async fn read_hello(
    socket: &mut StreamSocket,
    slot: &ConnectionSlot,
    buffers: &BufferPool,
    early: Vec<u8>,
) -> Result<AcceptedHello, HandshakeRefusal> {
    let mut acceptor = Acceptor::default();
    let mut input = early;
    let mut first = true;
    // A copy, as rustls does not tell the order of extensions, nor which ones it does not know.
    let mut records = TlsFingerprints::are_wanted().then(Vec::new);
    loop {
        if input.is_empty() {
            slot.wait(|cx| {
                let mut buffer = buffers.take();
                let polled = socket.poll_read(cx, &mut buffer);
                if polled.is_ready() {
                    input = buffer;
                } else {
                    buffers.put(buffer);
                }
                polled
            })
            .await?;
            if input.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        // A later part of a ClientHello may start with any byte.
        // A TLS record begins with its type, 22. A browser that was sent to the wrong port shows the text instead of
        // an error of TLS.
        if std::mem::take(&mut first) && input.first().is_some_and(u8::is_ascii_uppercase) {
            return Err(HandshakeRefusal::new("HTTP without TLS", CLEAR_TEXT));
        }
        if let Some(copy) = &mut records {
            copy.extend_from_slice(&input);
            if copy.len() > MAX_FINGERPRINTED {
                records = None;
            }
        }
        let mut unread = input.as_slice();
        while !unread.is_empty() {
            // rustls takes a few KB at once, and more of a message that it knows to be incomplete only.
            if let Err(error) = acceptor.read_tls(&mut unread) {
                return Err(HandshakeRefusal::new(error, &DECODE_ERROR));
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let rest = unread.to_vec();
                    buffers.put(input);
                    return Ok(AcceptedHello {
                        accepted: Box::new(accepted),
                        rest,
                        fingerprint: records
                            .and_then(|records| ja4_of_records(&records))
                            .map(Into::into),
                    });
                }
                Ok(None) => {}
                Err(refused) => return Err(HandshakeRefusal::by_alert(refused)),
            }
        }
        buffers.put(std::mem::take(&mut input));
    }
}

/// Picks the site by the server name, and continues the handshake with its configuration. There is no site in a handshake
/// by which a certificate authority verifies the name.
fn choose_site(
    settings: &TlsSettings,
    accepted: Accepted,
    on_demand: OnDemandLookup,
) -> Result<(Box<ServerConnection>, Option<Arc<TlsSiteConfig>>), HandshakeRefusal> {
    let hello = accepted.client_hello();
    if is_challenge(&hello) {
        let Some(config) = hello
            .server_name()
            .and_then(|name| settings.challenge(name))
        else {
            return Err(HandshakeRefusal::new(
                "no challenge is open for this server name",
                &UNRECOGNIZED_NAME,
            ));
        };
        let session = accepted
            .into_connection(config)
            .map_err(HandshakeRefusal::by_alert)?;
        return Ok((Box::new(session), None));
    }
    let site = match on_demand {
        OnDemandLookup::Ready(site) => Some(site.0),
        OnDemandLookup::NotCovered => settings.site(hello.server_name()).cloned(),
        OnDemandLookup::NotPermitted => None,
        OnDemandLookup::NotYet | OnDemandLookup::Pending(_) => {
            return Err(HandshakeRefusal::new(
                "there is no certificate for this server name yet",
                &INTERNAL_ERROR,
            ));
        }
    };
    let Some(site) = site else {
        return Err(HandshakeRefusal::new(
            "no site has this server name",
            &UNRECOGNIZED_NAME,
        ));
    };
    let Some(config) = &site.config else {
        return Err(HandshakeRefusal::new(
            "the site has no certificate yet",
            &INTERNAL_ERROR,
        ));
    };
    let session = accepted
        .into_connection(Arc::clone(config))
        .map_err(HandshakeRefusal::by_alert)?;
    Ok((Box::new(session), Some(site)))
}

/// Whether a certificate authority verifies the server name (RFC 8737 section 3).
fn is_challenge(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut protocols| protocols.any(|protocol| protocol == CHALLENGE_PROTOCOL))
}

/// Tries once to say why the connection is refused; a client that does not take it gets nothing.
async fn send_refusal(
    socket: &mut StreamSocket,
    slot: &ConnectionSlot,
    buffers: &BufferPool,
    bytes: &[u8],
) {
    let said = slot
        .wait(|cx| socket.poll_write(cx, &[IoSlice::new(bytes)]))
        .await;
    if said.is_ok() {
        linger(socket, slot, buffers).await;
    }
}

/// Ends our side, and reads until the deadline: a reset caused by unread bytes would destroy the reply.
async fn linger(socket: &mut StreamSocket, slot: &ConnectionSlot, buffers: &BufferPool) {
    if socket.shutdown().is_err() {
        return;
    }
    let _ = slot
        .wait(|cx| {
            loop {
                let mut buffer = buffers.take();
                let polled = socket.poll_read(cx, &mut buffer);
                buffers.put(buffer);
                if ready!(polled)? == 0 {
                    return Poll::Ready(Ok(()));
                }
            }
        })
        .await;
}

fn tls_info(stream: &TlsStream, site: &TlsSiteConfig) -> TlsInfo {
    let session = stream.session();
    TlsInfo {
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        },
        cipher: session
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or("unknown"),
        alpn: session.alpn_protocol().and_then(http_protocol),
        fingerprint: None,
        server_name: match session {
            Connection::Server(session) => session
                .server_name()
                .map(|name| name.trim_end_matches('.').into()),
            Connection::Client(_) => None,
        },
        certificate_names: Arc::clone(&site.certificate_names),
        client_certificate: session
            .peer_certificates()
            .and_then(|chain| chain.first())
            .and_then(|leaf| identity(leaf))
            .map(Arc::new),
    }
}

/// A protocol of ALPN, if it is one of HTTP.
pub(super) fn http_protocol(name: &[u8]) -> Option<&'static str> {
    let known = ["h2", "http/1.1", "h3", "http/1.0"];
    known.into_iter().find(|known| known.as_bytes() == name)
}

/// The identity in a verified client certificate.
pub(super) fn identity(der: &[u8]) -> Option<ClientCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(ClientCertificate {
        der: der.into(),
        subject: certificate.subject().to_string(),
        serial: format!("{:X}", Hexadecimal(certificate.raw_serial())),
        issuer: certificate.issuer().to_string(),
        names: alternative_names(&certificate),
    })
}

/// The alternative names of the subject; none if they cannot be read.
fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let found = certificate.subject_alternative_name().ok().flatten();
    let names = found.map(|extension| extension.value.general_names.iter());
    names
        .into_iter()
        .flatten()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
                Some((*name).to_owned())
            }
            GeneralName::IPAddress(bytes) => ip_address(bytes).map(|ip| ip.to_string()),
            _ => None,
        })
        .collect()
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(bytes.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}
