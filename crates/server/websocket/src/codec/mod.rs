//! The WebSocket protocol (RFC 6455) and the compression of its messages (RFC 7692), in both roles.
//!
//! A [`ServerHandshake`] reads the request of a client and makes the response. After it, a
//! [`WebSocketConnection`] decodes bytes into [`WebSocketEvent`]s and encodes messages into bytes.
//! [`PreparedMessage`] is a message encoded once for many connections.

// An integer overflow in a length breaks the framing.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod close;
mod close_code;
mod connection;
mod deflate;
mod error;
mod extension;
mod frame;
mod handshake;
mod inflate;
mod mask;
mod message;
mod output;
mod reader;
mod utf8;
mod writer;

pub use bytestring::ByteString;
pub use close::Close;
pub use close_code::CloseCode;
pub use connection::{CodecSettings, ConnectionClosed, WebSocketConnection, WebSocketEvent};
pub use error::WebSocketProtocolError;
pub use extension::{Compression, DeflateConfig, InvalidExtensionResponse};
pub use handshake::{InvalidHandshake, ServerHandshake, accept_key};
pub use message::{Message, PreparedMessage};
