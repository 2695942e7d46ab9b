//! `ClientInfo` and `TrustedProxies`: the address of the client, also behind trusted proxies (RFC 7239).

use std::convert::Infallible;
use std::net::IpAddr;

use apus_http::{Answer, Request};
pub use apus_http::{ForwardedField, TrustedProxies};

use crate::extract::FromRequestHead;
use crate::matched::Matched;
use crate::middleware::{Middleware, Next};

/// What is known of the client itself, which may be several proxies away.
///
/// An extractor. Without [`TrustedProxies`] it is the other end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its address; `None` behind a Unix socket whose other side told none.
    pub ip: Option<IpAddr>,
    /// Whether it uses TLS, to us or to the proxy that it reached.
    pub is_secure: bool,
}

impl ClientInfo {
    /// Of the client that sent a request.
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

/// As a layer it is to be the first, since others go by what it establishes.
impl Middleware<()> for TrustedProxies {
    fn call(&self, mut request: Request, next: Next) -> Answer {
        self.establish(&mut request);
        next.call(request)
    }
}
