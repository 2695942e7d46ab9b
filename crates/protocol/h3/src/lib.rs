//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) without I/O, for servers and clients.
//!
//! [`H3Connection`] is the state machine of both roles; its documentation explains how to drive it. It reads no
//! socket and no clock, starts no thread, and knows no QUIC implementation.
//!
//! # Modules
//!
//! - `connection`: the state machine. It turns the bytes of streams into events, and schedules what is sent by the
//!   priorities of RFC 9218.
//! - [`qpack`]: field compression with the dynamic table, in both directions. `encoder` uses the table for lines that
//!   repeat: in responses that are made anew, and in requests to origins.
//! - `frame`, `settings`, `error`: the frames, settings and error codes of RFC 9114.
//!
//! # Decisions
//!
//! - **Requests and responses share the code of HTTP/2**: messages, flood budgets and priorities are code of
//!   apus-codec. Only streams and the compression of fields differ.
//!
//! # Tests
//!
//! `tests/it`: one topic a file (`messages`, `faults`, `floods`, `qpack`, `priorities`, `shutdown`), the two ends
//! against each other, and another implementation as the oracle (`oracle`).

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
pub use apus_codec::messages::{ExpectedBody, HeadRefusal, IncomingRequest, OutgoingRequest};
pub use apus_codec::priority::{Priority, SendOrder};

pub use self::connection::{
    H3Connection, H3Event, LocalStream, RequestError, StreamAction, StreamKey,
};
pub use self::error::{H3Error, H3ErrorCode, H3Fault};
pub use self::settings::H3Config;
