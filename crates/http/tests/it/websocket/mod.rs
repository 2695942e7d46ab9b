//! The WebSocket codec (RFC 6455, RFC 7692).

mod cases;
mod client;
mod compression;
mod handshake;
mod oracle;
mod peer;
mod properties;
mod table;
mod text;
