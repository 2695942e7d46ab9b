//! Protocol codecs without I/O: they decode the bytes of a connection into messages and encode messages into bytes.
//!
//! No code in this crate does I/O, reads a clock or starts a thread. `apus-net` and `apus-client` drive the codecs
//! over connections.

#![forbid(unsafe_code)]
// Arithmetic that wraps around breaks framing.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod fastcgi;
pub mod field_compression;
pub mod flood;
pub mod h1;
pub mod h2;
pub mod messages;
pub mod priority;
pub mod proxy_protocol;
pub mod schedule;
pub mod stream_table;
