//! `RequireClientCertificate`: clients with a verified certificate only.

use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, ResponseMarker};
use apus_http::{Request, ResponseFuture};

use crate::access::{self, AccessCheck, AccessDecision};

/// A layer that rejects requests on connections without a verified client certificate with 403, for parts of a site whose
/// listener requests certificates and does not require them. A certificate that is not valid, or that is revoked, ends the
/// handshake, so that no request comes with one.
///
/// It is the certificate of the connection: behind a proxy, the one of the proxy.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RequireClientCertificate;

impl RequireClientCertificate {
    /// The layer.
    pub fn new() -> Self {
        Self
    }
}

impl AccessCheck for RequireClientCertificate {
    fn name(&self) -> &'static str {
        "client_certificate"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        let tls = request.connection().tls.as_ref();
        if tls.is_some_and(|tls| tls.client_certificate.is_some()) {
            return AccessDecision::ADMITTED;
        }
        AccessDecision::refused(Error::forbidden("a client certificate is required"))
    }
}

impl Middleware<ResponseMarker> for RequireClientCertificate {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}
