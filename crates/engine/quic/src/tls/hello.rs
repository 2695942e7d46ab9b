//! Reading the server name of a ClientHello from CRYPTO frames (RFC 9001 section 4.1.3).

use std::net::IpAddr;
use std::sync::Arc;

use apus_quic_protocol::{TransportError, TransportErrorCode};
use rustls::Error;
use rustls::server::{AcceptedAlert, Acceptor};

use super::server::{QuicServerTls, SelectServerTls};

/// The alerts `unexpected_message`, `decode_error` and `unrecognized_name` (RFC 8446 section 6.2).
const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;
const UNRECOGNIZED_NAME: u8 = 112;
/// The most bytes of a TLS record (RFC 8446 section 5.1).
const RECORD: usize = 16_384;

/// Reads a ClientHello that arrives in parts. rustls reads it twice: here as in a TLS record over TCP, to know the
/// server name, and then for QUIC.
#[derive(Default)]
pub(super) struct ClientHelloReader {
    acceptor: Acceptor,
    /// What was read, for the connection of the selected site.
    pub(super) bytes: Vec<u8>,
}

impl ClientHelloReader {
    /// Reads a part, and selects the site when the ClientHello is complete. `client` is its address, if that is proven.
    pub(super) fn read(
        &mut self,
        part: &[u8],
        sites: &dyn SelectServerTls,
        client: Option<IpAddr>,
    ) -> Result<Option<Arc<QuicServerTls>>, TransportError> {
        self.bytes.extend_from_slice(part);
        for fragment in part.chunks(RECORD) {
            let length = u16::try_from(fragment.len()).unwrap_or(u16::MAX);
            let [high, low] = length.to_be_bytes();
            let mut record = vec![22, 3, 1, high, low];
            record.extend_from_slice(fragment);
            let mut unread = record.as_slice();
            while !unread.is_empty() {
                self.acceptor
                    .read_tls(&mut unread)
                    .map_err(|error| alert(DECODE_ERROR, &error.to_string()))?;
            }
        }
        match self.acceptor.accept() {
            Ok(None) => Ok(None),
            Ok(Some(accepted)) => sites
                .select(accepted.client_hello().server_name(), client)
                .map(Some)
                .ok_or_else(|| alert(UNRECOGNIZED_NAME, "no site has this server name")),
            Err((error, rejection)) => {
                Err(alert(description(rejection, &error), &error.to_string()))
            }
        }
    }
}

/// The error by which QUIC sends an alert (RFC 9001 section 4.8).
pub(super) fn alert(description: u8, reason: &str) -> TransportError {
    TransportError::new(TransportErrorCode::crypto(description), reason)
}

/// The description in the record of an alert, which is its last byte (RFC 8446 section 6). rustls has no alert for a
/// message that is no ClientHello.
fn description(mut rejection: AcceptedAlert, error: &Error) -> u8 {
    let mut record = Vec::new();
    let written = rejection.write_all(&mut record);
    match (written, record.last(), error) {
        (Ok(()), Some(description), _) => *description,
        (
            _,
            _,
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. },
        ) => UNEXPECTED_MESSAGE,
        _ => DECODE_ERROR,
    }
}
