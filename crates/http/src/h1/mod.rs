//! HTTP/1.1 (RFC 9112): the sans-I/O state machine of a connection and what it is made of.
//!
//! [`ServerConnection`] is the server role. Reading of lines, field sections and chunked content,
//! and writing of field sections, know nothing of the role; a client role stands on the same parts.

mod chunked;
mod encode;
mod error;
mod field;
mod head;
mod line;
mod server;

pub use encode::BodyFraming;
pub use error::ProtocolError;
pub use head::{ContentFraming, HeadLimits, RequestHead};
pub use server::{Event, ServerConnection};
