//! FastCGI 1.0 without I/O, at the web server.
//!
//! The specification is at <https://fastcgi-archives.github.io/FastCGI_Specification.html>.
//!
//! [`Params`] are the parameters of a request, [`FastCgiConnection`] is the connection, and
//! [`CgiResponseHead`] is the CGI header block (RFC 3875) at the start of each response. Applications are
//! Responders, and a connection carries one request at a time.

mod client;
mod error;
mod header_block;
mod params;
mod record;

pub use client::{FastCgiConnection, FastCgiEvent};
pub use error::FastCgiError;
pub use header_block::{BodyLength, CgiResponseHead};
pub use params::Params;
