//! TLS 1.3 as a connection uses it (RFC 9001 section 4), with the keys of rustls.

use std::any::Any;
use std::net::IpAddr;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::quic::{Connection, DirectionalKeys, KeyChange, Keys, Suite};

use crate::client_hello::ClientHelloFacts;
use crate::connection_id::ConnectionId;
use crate::error::{TransportError, TransportErrorCode};
use crate::packet::TAG;
use crate::stream_id::Side;
use crate::transport_parameters::TransportParameters;
use crate::version::{QuicVersion, VersionInformation};

/// The alert `internal_error` (RFC 8446 section 6.2).
const INTERNAL_ERROR: u8 = 80;
/// The alert `missing_extension` (RFC 9001 section 8.2).
pub(crate) const MISSING_EXTENSION: u8 = 109;

/// The TLS of a connection.
pub trait TlsSession {
    /// Reads bytes of CRYPTO frames, in order.
    ///
    /// # Errors
    /// An alert.
    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError>;

    /// Writes bytes for CRYPTO frames of the current encryption level. With keys, what is written next is for the level
    /// of these keys.
    fn write(&mut self, buffer: &mut Vec<u8>) -> Option<KeyChange>;

    /// The transport parameters of the peer, once they are known. Those of a client are known before the handshake if
    /// it resumes a session.
    fn transport_parameters(&self) -> Option<&[u8]>;

    /// The keys of 0-RTT packets. The direction is always from the client to the server.
    fn early_keys(&self) -> Option<DirectionalKeys>;

    /// Whether the server accepted the early data of this client.
    fn is_early_data_accepted(&self) -> bool;

    /// Whether the handshake is going on.
    fn is_handshaking(&self) -> bool;

    /// The version that a server has selected, once it has read the ClientHello.
    fn selected_version(&self) -> Option<QuicVersion>;

    /// Itself, for facts that only its type knows.
    fn as_any(&self) -> &dyn Any;
}

impl TlsSession for Connection {
    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.read_hs(bytes).map_err(|error| {
            let alert = self.alert().map_or(INTERNAL_ERROR, Into::into);
            TransportError::new(TransportErrorCode::crypto(alert), error.to_string())
        })
    }

    fn write(&mut self, buffer: &mut Vec<u8>) -> Option<KeyChange> {
        self.write_hs(buffer)
    }

    fn transport_parameters(&self) -> Option<&[u8]> {
        self.quic_transport_parameters()
    }

    fn early_keys(&self) -> Option<DirectionalKeys> {
        self.zero_rtt_keys()
    }

    fn is_early_data_accepted(&self) -> bool {
        match self {
            Self::Client(client) => client.is_early_data_accepted(),
            Self::Server(_) => false,
        }
    }

    fn is_handshaking(&self) -> bool {
        match self {
            Self::Client(client) => client.is_handshaking(),
            Self::Server(server) => server.is_handshaking(),
        }
    }

    fn selected_version(&self) -> Option<QuicVersion> {
        None
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes the TLS of server connections.
pub trait StartTlsSession {
    /// The TLS of a new connection, whose version and transport parameters depend on the ClientHello.
    fn start(&self, offer: ServerOffer) -> Box<dyn TlsSession>;
}

/// What a server offers to a client whose ClientHello is not read yet.
#[derive(Debug)]
pub struct ServerOffer {
    version: QuicVersion,
    parameters: Box<TransportParameters>,
    proven_client: Option<IpAddr>,
}

impl ServerOffer {
    /// That of a server with these parameters to a client that begins with this version.
    pub(crate) fn new(version: QuicVersion, parameters: TransportParameters) -> Self {
        Self {
            version,
            parameters: Box::new(parameters),
            proven_client: None,
        }
    }

    /// To a client that has proved by a token that it receives at this address (RFC 9000 section 8.1).
    pub(crate) fn with_proven_client(mut self, client: Option<IpAddr>) -> Self {
        self.proven_client = client;
        self
    }

    /// The address at which the client has proved to receive; `None` while the source of its packets may be forged.
    pub fn proven_client(&self) -> Option<IpAddr> {
        self.proven_client
    }

    /// The version and the transport parameters of the response to a ClientHello. The version is the one that the client
    /// prefers (RFC 9368 section 2.3), but stays where early data follows, whose keys are those of the first version.
    ///
    /// # Errors
    /// The transport parameters have the type of a draft, which is none of QUIC (RFC 9001 section 8.2), or there is a
    /// session ID (section 8.4).
    pub fn respond(
        mut self,
        client_hello: &[u8],
    ) -> Result<(QuicVersion, Vec<u8>), TransportError> {
        // The ClientHello is read here, too: rustls takes the version and the parameters of this end when its
        // connection is made, before it reads anything.
        let facts = ClientHelloFacts::read(client_hello).unwrap_or_default();
        // BoringSSL rejects it, too: it would have to be repeated in the ServerHello, for nobody.
        if facts.has_session_id {
            return Err(TransportError::protocol_violation(
                "a session ID in a ClientHello",
            ));
        }
        // h3spec sends them alone and expects an error. A client that sends both is served.
        if facts.has_draft_parameters && facts.parameters.is_none() {
            return Err(TransportError::new(
                TransportErrorCode::crypto(MISSING_EXTENSION),
                "transport parameters of a draft",
            ));
        }
        let parameters = facts
            .parameters
            .filter(|_| !facts.has_early_data)
            .and_then(|bytes| TransportParameters::read(Side::Client, bytes).ok());
        let information = parameters.and_then(|parameters| parameters.version_information);
        let version =
            information.map_or(self.version, |information| information.select(self.version));
        self.parameters.version_information = Some(Box::new(VersionInformation::new(
            version,
            &QuicVersion::ALL,
        )));
        let mut bytes = Vec::new();
        self.parameters.write(&mut bytes);
        Ok((version, bytes))
    }
}

/// The keys of Initial packets (RFC 9001 section 5.2, RFC 9369 section 3.3.1).
pub(crate) fn initial_keys(
    suite: Suite,
    version: QuicVersion,
    destination: &ConnectionId,
    side: Side,
) -> Keys {
    suite.keys(destination, side.into(), version.tls())
}

/// The tag of a Retry packet (RFC 9001 section 5.8), in response to a packet with this destination.
pub(crate) fn retry_tag(
    version: QuicVersion,
    original_destination: &ConnectionId,
    packet: &[u8],
) -> Option<[u8; TAG]> {
    let (key, nonce) = version.retry_secrets();
    // The ID that is no longer in the packet is authenticated, so that only somebody who saw the first packet can make
    // a Retry (RFC 9001 section 5.8).
    let mut pseudo_packet = vec![original_destination.len() as u8];
    pseudo_packet.extend_from_slice(original_destination);
    pseudo_packet.extend_from_slice(packet);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(pseudo_packet), &mut [])
        .ok()?;
    tag.as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_hello;

    /// Early data has the keys of the version with which the client begins.
    #[test]
    fn the_version_stays_where_early_data_follows() {
        let mut parameters = Vec::new();
        TransportParameters {
            version_information: Some(Box::new(VersionInformation::new(
                QuicVersion::V1,
                &[QuicVersion::V2, QuicVersion::V1],
            ))),
            ..TransportParameters::default()
        }
        .write(&mut parameters);
        let extension = [&[0, 0x39, 0, parameters.len() as u8], &parameters[..]].concat();
        let early_data = [&extension[..], &[0, 42, 0, 0]].concat();
        for (extensions, selected) in [
            (&extension[..], QuicVersion::V2),
            (&early_data, QuicVersion::V1),
            (&[], QuicVersion::V1),
        ] {
            let offer = ServerOffer::new(QuicVersion::V1, TransportParameters::default());
            let response = offer.respond(&client_hello::message(extensions));
            let (version, bytes) = response.unwrap();
            assert_eq!(version, selected);
            let response = TransportParameters::read(Side::Server, &bytes).unwrap();
            let information = response.version_information.unwrap();
            assert_eq!(information.chosen, selected.number());
            assert_eq!(information.available.len(), 2);
        }
    }

    /// RFC 9001 section 8.2: TLS would take them for those of version 1.
    #[test]
    fn transport_parameters_of_a_draft_are_not_those_of_the_client() {
        let draft = [0xff, 0xa5, 0, 0];
        let both = [draft, [0, 0x39, 0, 0]].concat();
        for (extensions, is_accepted) in [(&draft[..], false), (&both, true)] {
            let offer = ServerOffer::new(QuicVersion::V1, TransportParameters::default());
            let response = offer.respond(&client_hello::message(extensions));
            match response {
                Ok(_) => assert!(is_accepted),
                Err(error) => assert_eq!((u64::from(error.code), is_accepted), (0x16d, false)),
            }
        }
    }

    /// RFC 9001 appendix A.4, RFC 9369 appendix A.4.
    #[test]
    fn a_retry_packet_has_the_tag_of_the_appendix() {
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let ids = [0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5];
        for (version, first, tag) in [
            (
                QuicVersion::V1,
                0xff,
                0x04a2_65ba_2eff_4d82_9058_fb3f_0f24_96ba_u128,
            ),
            (
                QuicVersion::V2,
                0xcf,
                0xc864_6ce8_bfe3_3952_d955_5436_65dc_c7b6,
            ),
        ] {
            let mut packet = vec![first];
            packet.extend(version.number().to_be_bytes());
            packet.extend(ids);
            packet.extend(b"token");
            let expected = Some(tag.to_be_bytes());
            assert_eq!(retry_tag(version, &original, &packet), expected);
        }
    }
}
