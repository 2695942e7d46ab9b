//! The WebSocket protocol (RFC 6455) and the compression of its messages (RFC 7692), in both roles.
//!
//! A [`Handshake`] reads what a client asks for and answers it. After it, a [`Connection`] turns bytes
//! into [`Event`]s and messages into bytes. [`Prepared`] is a message encoded once for many connections.

// A length that wraps around is how framing breaks.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod close;
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
pub use close::{Close, CloseCode};
pub use connection::{Closed, Connection, Event, Settings};
pub use error::ProtocolError;
pub use extension::{Agreement, Compression, InvalidAnswer};
pub use handshake::{Handshake, InvalidHandshake, accept_key};
pub use message::{Message, Prepared};
