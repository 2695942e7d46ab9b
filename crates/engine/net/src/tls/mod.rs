//! TLS (RFC 8446, RFC 5246) for servers: settings, sessions, handshakes.

mod handshake;
mod policy;
#[cfg(feature = "http3")]
mod quic;
mod sessions;
mod settings;
#[cfg(feature = "http3")]
mod site_quic;
#[cfg(not(feature = "http3"))]
#[path = "site_quic_off.rs"]
mod site_quic;
mod tickets;

pub use policy::TlsPolicy;
pub use settings::{
    ChallengeCertificates, ClientAuth, HandshakeClient, OnDemandCertificates, OnDemandLookup,
    PreparedSite, TlsSettings, TlsSite, UnknownName,
};
pub use tickets::{TicketSecret, TicketSecrets};

pub(crate) use handshake::{AcceptedTls, TlsClient, accept};
#[cfg(feature = "http3")]
pub(crate) use quic::quic_tls_info;
