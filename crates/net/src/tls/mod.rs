//! TLS of a listener (RFC 8446, RFC 5246): which names it serves, with which certificates, and what
//! it asks of clients.

mod certificate;
mod handshake;
mod sessions;
mod settings;
mod stream;

pub use certificate::{Certificate, CertificateError};
pub use settings::{ClientAuth, MinVersion, TlsError, TlsSettings, TlsSite, UnknownName};

pub(crate) use handshake::accept;
pub(crate) use stream::TlsStream;
