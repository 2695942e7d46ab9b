//! TLS (RFC 8446, RFC 5246): which names a listener serves, with which certificates, and what it asks
//! of clients; handshakes, and the stream after them, for servers and clients.

mod certificate;
mod handshake;
mod sessions;
mod settings;
mod stream;

pub use certificate::{Certificate, CertificateError};
pub use settings::{ClientAuth, MinVersion, TlsError, TlsSettings, TlsSite, UnknownName};

pub(crate) use handshake::{accept, connect};
pub(crate) use stream::TlsStream;
