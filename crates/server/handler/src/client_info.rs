//! `ClientInfo` and `TrustedProxies`: the address of the client, also behind trusted proxies (RFC 7239).

use std::convert::Infallible;
use std::net::IpAddr;

pub use apus_http::{ForwardedField, TrustedProxies};
use apus_http::{Request, ResponseFuture};

use crate::extract::FromRequestHead;
use crate::matched::Matched;
use crate::middleware::{Middleware, Next};

/// The address and scheme of the client, which may be behind several proxies.
///
/// An extractor. Without [`TrustedProxies`] it is the peer of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The address; `None` behind a Unix socket whose peer sent none.
    pub ip: Option<IpAddr>,
    /// Whether the client uses TLS, to this server or to its proxy.
    pub is_secure: bool,
}

impl ClientInfo {
    /// The client of a request.
    pub fn of(request: &Request) -> Self {
        Self {
            ip: request.client().ip,
            is_secure: request.is_secure(),
        }
    }
}

impl FromRequestHead for ClientInfo {
    type Rejection = Infallible;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(Self::of(request))
    }
}

/// As a layer it must be the first, since others use its result.
impl Middleware<()> for TrustedProxies {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        self.establish(&mut request);
        next.call(request)
    }
}
