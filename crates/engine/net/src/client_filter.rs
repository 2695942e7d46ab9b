//! Which clients may not connect, and what clients do wrong.

use std::net::IpAddr;

use apus_http::Glitch;
use tokio::sync::watch;

/// Decides which clients may not connect, before anything is read of them, and learns what clients do wrong.
///
/// Workers call it for each connection that they accept, for the client that a PROXY protocol head names, and for the first packet
/// of a QUIC connection. It must not wait.
pub trait ClientFilter: Send + Sync {
    /// Why connections of this client are closed, if they are.
    fn refuses(&self, client: IpAddr) -> Option<ClientRefusal>;

    /// Changes each time that more clients may be banned than before. A second after a change, workers close all connections of
    /// banned clients. Without it, what is open stays open.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// A client did something wrong. Its address is proven, and is that of the connection: a proxy's, if its clients do wrong.
    ///
    /// Workers call it for what goes wrong only. It must not wait.
    fn note(&self, _client: IpAddr, _glitch: Glitch) {}
}

/// Why a client may not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRefusal {
    /// It is banned.
    Banned,
    /// It did much wrong before, and the workers are busy.
    Glitches,
}
