//! HTTP/2 (RFC 9113), without I/O, for a server and for a client.
//!
//! [`Connection`] is the one state machine; its documentation says how it is driven.

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
pub use self::connection::{Connection, Content, Event, OutgoingRequest, RequestHead};
pub use self::error::{ConnectionError, ErrorCode, Fault, HeadRefusal};
pub use self::frame::PREFACE;
pub use self::settings::Config;
pub use self::streams::StreamKey;
