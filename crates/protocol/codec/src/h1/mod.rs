//! HTTP/1.1 (RFC 9112): the sans-I/O state machines of a server's and a client's connection.
//!
//! [`ServerConnection`] and [`ClientConnection`] share the parsing of lines, fields and framing, and the
//! reading and writing of bodies.

mod body;
mod chunked;
mod client;
mod encode;
mod error;
mod field;
mod framing;
mod line;
mod outgoing_request;
mod request;
mod response;
mod server;

pub use client::{ClientConnection, Http1ClientEvent};
pub use error::Http1Error;
pub use framing::{BodyFraming, RequestFraming};
pub use outgoing_request::{InvalidRequest, OutgoingRequest};
pub use request::{HeadLimits, Http1RequestHead};
pub use response::Http1ResponseHead;
pub use server::{Http1ServerEvent, ServerConnection};
