//! A service that compresses the responses of an inner service.

use std::rc::Rc;

use apus_http::{Request, ResponseFuture, RouteInfo, Service, ServiceFactory};

use crate::{CodingRule, Compression, EncodingNegotiation};

/// Creates services that compress the responses of inner services.
#[derive(Clone, Debug)]
pub struct CompressedFactory<F> {
    compression: Compression,
    inner: F,
}

impl<F> CompressedFactory<F> {
    /// Compresses the responses of the services that `inner` creates.
    pub fn new(compression: Compression, inner: F) -> Self {
        Self { compression, inner }
    }
}

impl<F: ServiceFactory> ServiceFactory for CompressedFactory<F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(CompressedService {
            compression: self.compression,
            inner: self.inner.service(),
        })
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.inner.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }
}

struct CompressedService {
    compression: Compression,
    inner: Rc<dyn Service>,
}

impl Service for CompressedService {
    fn call(&self, request: Request) -> ResponseFuture {
        let negotiation = EncodingNegotiation::of(&request, self.compression);
        let rule = CodingRule::of(&request);
        let response = negotiation.call(&self.inner, request);
        response.map(move |mut response| {
            negotiation.apply_by(rule.as_deref(), &mut response);
            response
        })
    }
}
