//! The opening handshake of a server (RFC 6455 section 4.2, RFC 8441 section 5).
//!
//! The codec of HTTP/2 presents an extended CONNECT as a GET with `Upgrade`; it has no key.

use std::fmt;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method, StatusCode, Version, header};

use apus_http::{Headers, Request, Response, list};

/// The string that is appended to a key before it is hashed (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455 section 4.2.2).
pub fn accept_key(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(GUID);
    STANDARD.encode(context.finish())
}

/// A valid request for a WebSocket connection.
#[derive(Clone, Debug)]
pub struct ServerHandshake {
    /// The value of `Sec-WebSocket-Accept`; HTTP/2 has none.
    accept: Option<String>,
    protocols: Vec<Box<str>>,
}

/// Why a request cannot open a WebSocket connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHandshake {
    /// It does not ask for an upgrade, as when a browser opens the `https` URL of a socket.
    NotWebSocket,
    /// Its method is not GET.
    Method,
    /// Its version of the protocol is not 13.
    Version,
    /// Its key is missing, repeated, or not 16 bytes in Base64.
    Key,
}

impl fmt::Display for InvalidHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWebSocket => "only WebSocket connections are served here",
            Self::Method => "a WebSocket handshake must be a GET",
            Self::Version => "the version of WebSocket must be 13",
            Self::Key => "Sec-WebSocket-Key must be 16 bytes in Base64",
        })
    }
}

impl std::error::Error for InvalidHandshake {}

impl InvalidHandshake {
    /// The response to the request (RFC 6455 section 4.4).
    pub fn response(self) -> Response {
        let status = match self {
            Self::NotWebSocket | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Key => StatusCode::BAD_REQUEST,
        };
        let mut response = Response::text(status, format!("{self}\n"));
        let headers = response.headers_mut();
        match self {
            Self::NotWebSocket | Self::Version => {
                headers.insert(&header::UPGRADE, &HeaderValue::from_static("websocket"));
                let version = HeaderValue::from_static("13");
                headers.insert(&header::SEC_WEBSOCKET_VERSION, &version);
            }
            Self::Method => headers.insert(&header::ALLOW, &HeaderValue::from_static("GET")),
            Self::Key => {}
        }
        response
    }
}

impl ServerHandshake {
    /// Reads the handshake in a request.
    ///
    /// # Errors
    /// The request is not a valid handshake.
    pub fn of(request: &Request) -> Result<Self, InvalidHandshake> {
        let headers = request.headers();
        if !request.offers_upgrade_to("websocket") {
            return Err(InvalidHandshake::NotWebSocket);
        }
        if *request.method() != Method::GET {
            return Err(InvalidHandshake::Method);
        }
        if headers.get("sec-websocket-version").map(<[u8]>::trim_ascii) != Some(b"13") {
            return Err(InvalidHandshake::Version);
        }
        let accept = match request.version() {
            Version::HTTP_11 => Some(accept_key(key(headers).ok_or(InvalidHandshake::Key)?)),
            _ => None,
        };
        let protocols = headers
            .get_all("sec-websocket-protocol")
            .flat_map(list::members)
            .filter_map(|name| std::str::from_utf8(name).ok())
            .map(Box::from);
        Ok(Self {
            accept,
            protocols: protocols.collect(),
        })
    }

    /// The subprotocols of the client, in its order of preference.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.protocols.iter().map(|name| &**name)
    }

    /// The response that opens the connection, with a subprotocol of the client and the extensions from
    /// [`super::Compression::accept`]. The caller adds what takes the connection over (see
    /// [`Response::set_tunnel`]).
    pub fn response(&self, protocol: Option<&str>, extensions: Option<&str>) -> Response {
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        let headers = response.headers_mut();
        headers.insert(&header::UPGRADE, &HeaderValue::from_static("websocket"));
        let optional = [
            ("sec-websocket-accept", self.accept.as_deref()),
            ("sec-websocket-protocol", protocol),
            ("sec-websocket-extensions", extensions),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                // It cannot fail: Base64, received field values and our own text are valid values.
                let _ = headers.try_insert(name, value);
            }
        }
        response
    }
}

/// The key, if there is exactly one and it is valid.
fn key(headers: &Headers) -> Option<&[u8]> {
    let mut keys = headers.get_all("sec-websocket-key");
    let key = keys.next()?.trim_ascii();
    let mut bytes = [0; 18];
    let is_valid = STANDARD.decode_slice(key, &mut bytes) == Ok(16);
    (is_valid && keys.next().is_none()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_key_of_rfc_6455_section_1_3() {
        assert_eq!(
            accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
