//! TLS 1.3 as a connection uses it (RFC 9001 section 4), with the keys of rustls.

use std::any::Any;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::quic::{Connection, DirectionalKeys, KeyChange, Keys, Suite, Version};

use crate::connection_id::ConnectionId;
use crate::error::{TransportError, TransportErrorCode};
use crate::packet::TAG;
use crate::stream_id::Side;

/// The alert `internal_error` (RFC 8446 section 6.2).
const INTERNAL_ERROR: u8 = 80;
/// The key and the nonce of Retry packets (RFC 9001 section 5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

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

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes the TLS of server connections.
pub trait StartTlsSession {
    /// The TLS of a new connection, which sends these transport parameters.
    fn start(&self, parameters: Vec<u8>) -> Box<dyn TlsSession>;
}

/// The keys of Initial packets (RFC 9001 section 5.2).
pub(crate) fn initial_keys(suite: Suite, destination: &ConnectionId, side: Side) -> Keys {
    suite.keys(destination, side.into(), Version::V1)
}

/// The tag of a Retry packet (RFC 9001 section 5.8), in response to a packet with this destination.
pub(crate) fn retry_tag(original_destination: &ConnectionId, packet: &[u8]) -> Option<[u8; TAG]> {
    let mut pseudo_packet = vec![original_destination.len() as u8];
    pseudo_packet.extend_from_slice(original_destination);
    pseudo_packet.extend_from_slice(packet);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &RETRY_KEY).ok()?);
    let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(pseudo_packet), &mut [])
        .ok()?;
    tag.as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9001 appendix A.4.
    #[test]
    fn a_retry_packet_has_the_tag_of_the_appendix() {
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let packet = [
            0xff, 0, 0, 0, 1, 0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, b't', b'o',
            b'k', b'e', b'n',
        ];
        let tag = [
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ];
        assert_eq!(retry_tag(&original, &packet), Some(tag));
    }
}
