//! The extractor of WebSocket handshakes (RFC 6455 section 4).

use apus_http::{Request, Response};
use apus_websocket::WebSocketUpgrade;
use apus_websocket::codec::InvalidHandshake;

use crate::extract::FromRequestHead;
use crate::matched::Matched;

impl FromRequestHead for WebSocketUpgrade {
    type Rejection = Response;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Response> {
        Self::of(request).map_err(InvalidHandshake::response)
    }
}
