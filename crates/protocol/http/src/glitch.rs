//! `Glitch`: what clients do wrong, which is counted for each client.

use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Something that a client did wrong, or that clients who do nothing wrong seldom do. HAProxy has the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Glitch {
    /// A connection or a request that broke HTTP, or was larger than the server takes.
    Protocol,
    /// A connection that was closed because its client spent a budget against floods.
    Flood,
    /// A TLS handshake that the client broke.
    Handshake,
    /// A request that the client abandoned before its response began.
    Abandoned,
    /// A request whose response was an error of the client, from 400 to 499.
    ErrorResponse,
}

impl Glitch {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Protocol,
        Self::Flood,
        Self::Handshake,
        Self::Abandoned,
        Self::ErrorResponse,
    ];

    /// The name, as in the status of the server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Flood => "floods",
            Self::Handshake => "handshakes",
            Self::Abandoned => "abandoned",
            Self::ErrorResponse => "error_responses",
        }
    }
}

impl fmt::Display for Glitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many glitches the clients of this process have, for conditions. A program that counts none has none.
#[derive(Clone, Copy, Debug)]
pub struct ClientGlitches;

type CountGlitches = dyn Fn(IpAddr) -> u64 + Send + Sync;

static COUNT: OnceLock<Box<CountGlitches>> = OnceLock::new();

impl ClientGlitches {
    /// Has them counted by this function from now on. The first call decides.
    pub fn count_by(count: impl Fn(IpAddr) -> u64 + Send + Sync + 'static) {
        let _ = COUNT.set(Box::new(count));
    }

    /// The glitches of a client; 0 for one without an address.
    pub fn of(client: Option<IpAddr>) -> u64 {
        match (COUNT.get(), client) {
            (Some(count), Some(client)) => count(client),
            _ => 0,
        }
    }
}
