//! WebSocket handshakes between versions of HTTP (RFC 6455 section 4, RFC 8441 section 5).
//!
//! HTTP/1.1 has keys for it, an extended CONNECT has none.

use apus_http::{Headers, Request, StatusCode, Version};
use apus_net::client::{ClientRequestHead, ClientResponse};
use apus_websocket::codec::accept_key;
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The keys of one handshake.
pub(super) struct Handshake {
    /// What the origin has to answer over HTTP/1.1.
    expected: String,
    /// Whether the key is the client's, who wants to see the answer to it.
    is_of_client: bool,
}

/// The handshake that a request is, if it is one. Gives it a key where HTTP has none; a request of
/// HTTP/1.1 without one is no handshake, and offers nothing to the origin.
pub(super) fn begin(request: &Request, head: &mut ClientRequestHead) -> Option<Handshake> {
    if !head.upgrade.as_deref()?.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let is_of_client = request.version() <= Version::HTTP_11;
    if !is_of_client {
        let mut key = [0; 16];
        // Without random numbers there is no TLS either.
        rand::fill(&mut key).ok()?;
        let key = STANDARD.encode(key);
        head.headers.try_insert("sec-websocket-key", key).ok()?;
    }
    let Some(key) = head.headers.get("sec-websocket-key") else {
        head.upgrade = None;
        return None;
    };
    Some(Handshake {
        expected: accept_key(key),
        is_of_client,
    })
}

/// The origin did not answer the key that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongAnswer;

impl Handshake {
    /// Checks the answer of an origin, and makes it one for the client.
    pub(super) fn finish(&self, answer: &mut ClientResponse) -> Result<(), WrongAnswer> {
        if answer.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(());
        }
        let shown = answer.headers.get("sec-websocket-accept");
        if answer.version <= Version::HTTP_11 && shown != Some(self.expected.as_bytes()) {
            return Err(WrongAnswer);
        }
        self.answer(&mut answer.headers);
        Ok(())
    }

    fn answer(&self, headers: &mut Headers) {
        match self.is_of_client {
            // Base64 is a valid value.
            true => drop(headers.try_insert("sec-websocket-accept", &self.expected)),
            false => drop(headers.remove("sec-websocket-accept")),
        }
    }
}
