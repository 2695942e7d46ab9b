//! HTTP/1.1 (RFC 9112): the sans-I/O state machine of a connection and what it is made of.
//!
//! [`ServerConnection`] is the server's side and [`ClientConnection`] the client's. Reading of lines,
//! fields, framing and content, and writing of fields and content, know nothing of the side.

mod chunked;
mod client;
mod content;
mod encode;
mod error;
mod field;
mod framing;
mod head;
mod line;
mod response;
mod server;

pub use client::{ClientConnection, ClientEvent, InvalidRequest, OutgoingRequest};
pub use encode::BodyFraming;
pub use error::ProtocolError;
pub use head::{ContentFraming, HeadLimits, RequestHead};
pub use response::{ResponseContent, ResponseHead};
pub use server::{Event, ServerConnection};
