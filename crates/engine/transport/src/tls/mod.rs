//! TLS (RFC 8446, RFC 5246) over a socket, for servers and clients: streams, certificates, versions.

mod any_certificate;
mod certificate;
mod key_log;
mod pem;
mod pinned;
mod settings;
mod stream;

pub use self::any_certificate::AnyCertificate;
pub use self::certificate::{Certificate, CertificateError};
pub use self::key_log::{KeyLogFile, open_key_log};
pub use self::pem::{PemFault, certificates_from_pem, revocation_lists_from_pem};
pub use self::pinned::{authority_roots, client_verifier, server_verifier};
pub use self::settings::{MinVersion, TlsError};
pub use self::stream::TlsStream;
