//! FastCGI 1.0, the side of the web server, without I/O.
//!
//! The specification is at <https://fastcgi-archives.github.io/FastCGI_Specification.html>.
//!
//! [`Params`] is what an application is told of a request, [`ClientConnection`] the connection, and
//! [`ResponseHead`] the header block with which each answer begins, as CGI has it (RFC 3875).
//! Applications are Responders; a connection carries one request at a time.

mod client;
mod error;
mod head;
mod params;
mod record;

pub use client::{ClientConnection, ClientEvent};
pub use error::ProtocolError;
pub use head::{ResponseContent, ResponseHead};
pub use params::Params;
