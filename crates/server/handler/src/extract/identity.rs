//! `Identity`: the client certificate of a connection (RFC 8446 section 4.4.2).

use std::ops::Deref;
use std::sync::Arc;

use apus_http::{ClientCertificate, Request, StatusCode};

use super::{FromRequestHead, Matched, Rejection};

/// An extractor of the verified client certificate; 403 without one.
///
/// With `Option<Identity>` the certificate is optional. The TLS settings of the listener name the accepted
/// authorities.
#[derive(Clone, Debug)]
pub struct Identity(Arc<ClientCertificate>);

impl Deref for Identity {
    type Target = ClientCertificate;

    fn deref(&self) -> &ClientCertificate {
        &self.0
    }
}

impl FromRequestHead for Identity {
    type Rejection = Rejection;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Rejection> {
        let tls = request.connection().tls.as_ref();
        let certificate = tls.and_then(|tls| tls.client_certificate.clone());
        certificate
            .map(Self)
            .ok_or_else(|| Rejection::new(StatusCode::FORBIDDEN, "this needs a client certificate"))
    }
}
