//! WebSocket handshakes between HTTP/1.1, which has keys, and HTTP/2, which has none (RFC 6455 section 4, RFC 8441 section 5).

use apus_client::{ClientRequestHead, ClientResponse};
use apus_http::{Headers, Request, StatusCode, Version};
use apus_tokens::nonce;
use apus_websocket::codec::accept_key;

/// The key of one handshake.
pub(super) struct HandshakeKey {
    /// The `Sec-WebSocket-Accept` that the origin has to send over HTTP/1.1.
    expected: String,
    /// Whether the client sent the key and expects `Sec-WebSocket-Accept`.
    is_of_client: bool,
}

/// Returns the key of a request that is a WebSocket handshake. An extended CONNECT gets a new key. A request of
/// HTTP/1.1 without a key is no handshake, and its upgrade is removed.
pub(super) fn begin(request: &Request, head: &mut ClientRequestHead) -> Option<HandshakeKey> {
    if !head.upgrade.as_deref()?.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let is_of_client = request.version() <= Version::HTTP_11;
    if !is_of_client {
        // Without random numbers there is no TLS either.
        let key = nonce().ok()?;
        head.headers.try_insert("sec-websocket-key", key).ok()?;
    }
    let Some(key) = head.headers.get("sec-websocket-key") else {
        head.upgrade = None;
        return None;
    };
    Some(HandshakeKey {
        expected: accept_key(key),
        is_of_client,
    })
}

/// The error for an origin that sent the wrong `Sec-WebSocket-Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidAccept;

impl HandshakeKey {
    /// Checks the response of an origin, and changes it for the client.
    pub(super) fn check_response(
        &self,
        response: &mut ClientResponse,
    ) -> Result<(), InvalidAccept> {
        if response.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(());
        }
        let shown = response.headers.get("sec-websocket-accept");
        if response.version <= Version::HTTP_11 && shown != Some(self.expected.as_bytes()) {
            return Err(InvalidAccept);
        }
        self.set_accept(&mut response.headers);
        Ok(())
    }

    fn set_accept(&self, headers: &mut Headers) {
        if self.is_of_client {
            // Base64 is a valid value.
            let _ = headers.try_insert("sec-websocket-accept", &self.expected);
        } else {
            headers.remove("sec-websocket-accept");
        }
    }
}
