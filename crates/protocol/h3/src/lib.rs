//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) without I/O, for servers and clients.
//!
//! [`H3Connection`] is the state machine of both roles; its documentation explains how to drive it. It reads no
//! socket and no clock, starts no thread, and knows no QUIC implementation.

#![forbid(unsafe_code)]
// Arithmetic that wraps around breaks framing.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod connection;
mod error;
mod frame;
pub mod qpack;
mod seen_streams;
mod settings;
mod varint;

pub use apus_codec::flood::Flood;
pub use apus_codec::messages::{ExpectedBody, HeadRefusal, OutgoingRequest};
pub use apus_codec::priority::{Priority, SendOrder};

pub use self::connection::{
    H3Connection, H3Event, H3RequestHead, LocalStream, RequestError, StreamAction, StreamKey,
};
pub use self::error::{H3Error, H3ErrorCode, H3Fault};
pub use self::settings::H3Config;
