//! Clear-text requests, sent to `https`.

use apus_http::{Answer, Request};

use crate::middleware::{Middleware, Next};
pub use apus_layers::ForceHttps;

/// As a layer it redirects what came without TLS: to us, or to the proxy that the client reached, which
/// [`TrustedProxies`](super::TrustedProxies) has to establish before.
impl Middleware<()> for ForceHttps {
    fn call(&self, request: Request, next: Next) -> Answer {
        match request.is_secure() {
            true => next.call(request),
            false => self.redirect(&request).into(),
        }
    }
}
