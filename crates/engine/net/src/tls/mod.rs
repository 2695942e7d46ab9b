//! TLS (RFC 8446, RFC 5246) for servers: settings, sessions, handshakes.

mod handshake;
mod policy;
mod quic;
mod sessions;
mod settings;
mod tickets;

pub use policy::TlsPolicy;
pub use settings::{
    ChallengeCertificates, ClientAuth, HandshakeClient, OnDemandCertificates, OnDemandLookup,
    PreparedSite, TlsSettings, TlsSite, UnknownName,
};
pub use tickets::{TicketSecret, TicketSecrets};

pub(crate) use handshake::{AcceptedTls, TlsClient, accept};
pub(crate) use quic::quic_tls_info;
