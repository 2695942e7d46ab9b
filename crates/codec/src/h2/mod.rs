//! HTTP/2 (RFC 9113) without I/O, for servers and clients.
//!
//! [`Http2Codec`] is the state machine of both; its documentation explains how to drive it.

mod budget;
mod connection;
mod error;
mod flow;
mod frame;
mod head;
pub mod hpack;
mod priority;
mod schedule;
mod settings;
mod streams;

pub use self::budget::Flood;
pub use self::connection::{
    ExpectedBody, Http2Codec, Http2Event, Http2RequestHead, OutgoingRequest,
};
pub use self::error::{ConnectionError, ErrorCode, Fault, HeadRefusal};
pub use self::frame::PREFACE;
pub use self::settings::Http2Config;
pub use self::streams::StreamKey;
