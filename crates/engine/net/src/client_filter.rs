//! Which clients may not connect.

use std::net::IpAddr;

/// Decides which clients may not connect, before anything is read of them.
///
/// Workers call it for each connection that they accept, for the client that a PROXY protocol head names, and for the first packet
/// of a QUIC connection. It must not wait.
pub trait ClientFilter: Send + Sync {
    /// Whether connections of this client are closed.
    fn refuses(&self, client: IpAddr) -> bool;
}
