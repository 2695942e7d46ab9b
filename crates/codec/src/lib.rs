//! Protocol codecs: bytes of a connection into messages, and messages into bytes.
//!
//! Nothing here does I/O, reads a clock or starts a thread. `apus-net` drives the codecs over connections.

#![forbid(unsafe_code)]
// A length that wraps around is how framing breaks.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod fastcgi;
pub mod h1;
pub mod h2;
pub mod proxy_protocol;
