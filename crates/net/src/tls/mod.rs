//! TLS (RFC 8446, RFC 5246) for servers and clients: settings, handshakes, streams.

mod certificate;
mod handshake;
mod sessions;
mod settings;
mod stream;

pub use certificate::{Certificate, CertificateError};
pub use settings::{ClientAuth, MinVersion, TlsError, TlsSettings, TlsSite, UnknownName};

pub(crate) use handshake::{accept, connect};
pub(crate) use stream::TlsStream;
