//! Clear-text requests, sent to `https`.

use apus_http::{Answer, Request};

use super::ClientInfo;
use crate::middleware::{Middleware, Next};
pub use crate::sites::ForceHttps;

/// As a layer it redirects what came without TLS: to us, or to the proxy that
/// [`TrustedProxies`](super::TrustedProxies), which is to stand before it, was told of.
impl Middleware<()> for ForceHttps {
    fn call(&self, request: Request, next: Next) -> Answer {
        match ClientInfo::of(&request).is_secure {
            true => next.call(request),
            false => self.redirect(&request).into(),
        }
    }
}
