//! HTTP/2 (RFC 9113) without I/O, for servers and clients.
//!
//! [`Http2Codec`] is the state machine of both; its documentation explains how to drive it.

mod connection;
mod error;
mod flow;
mod frame;
pub mod hpack;
mod settings;
mod streams;

pub use self::connection::{Http2Codec, Http2Event};
pub use self::error::{ConnectionError, ErrorCode, Fault};
pub use self::frame::PREFACE;
pub use self::settings::Http2Config;
pub use self::streams::StreamKey;
pub use crate::flood::Flood;
pub use crate::messages::{ExpectedBody, HeadRefusal, OutgoingRequest};
