//! A cache in front of programs, with a bypass for requests whose response does not depend on the
//! key alone.

use std::rc::Rc;

use apus_http::{CacheBypass, Method, Request, ResponseFuture, RouteInfo, Service, ServiceFactory};

use apus_http::path::normalise_encoded;
use apus_http::trace::{self, Step, StepKind};

/// Sends requests to a cache in front of a service, except those whose response depends on more
/// than the target that the client sent: the cache [stores](super::CacheSettings::by_sent_target)
/// by that target.
///
/// A path with `//` or dot segments has the key of its normal form, to which applications redirect:
/// the stored redirect would be a loop. After a rewrite that depends on more than the target,
/// clients may get different programs. And an internal redirect (`X-Accel-Redirect`) would be
/// stored over the response that requests it. The user of a client certificate is known to the program, and to no
/// field that the response could name in `Vary`.
#[derive(Clone, Debug)]
pub struct CacheUnlessBypassed<C, F> {
    cached: C,
    inner: F,
}

impl<C, F> CacheUnlessBypassed<C, F> {
    /// Sends requests to `cached`, or to `inner`, the service behind it.
    pub fn new(cached: C, inner: F) -> Self {
        Self { cached, inner }
    }
}

impl<C: ServiceFactory, F: ServiceFactory> ServiceFactory for CacheUnlessBypassed<C, F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(CacheUnlessBypassedService {
            cached: self.cached.service(),
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

struct CacheUnlessBypassedService {
    cached: Rc<dyn Service>,
    inner: Rc<dyn Service>,
}

impl Service for CacheUnlessBypassedService {
    fn call(&self, request: Request) -> ResponseFuture {
        let sent = request.original_target().path();
        let is_normal = if request.is_rewritten() {
            normalise_encoded(sent).is_ok_and(|path| *path == *sent)
        } else {
            request.forwarded_path() == Ok(sent)
        };
        // A program may respond to the user whom the handshake authenticated, and no field of the request tells that.
        let tls = request.connection().tls.as_ref();
        let has_certificate = matches!(*request.method(), Method::GET | Method::HEAD)
            && tls.is_some_and(|tls| tls.client_certificate.is_some());
        if is_normal && !has_certificate && !CacheBypass::applies_to(&request) {
            return self.cached.call(request);
        }
        trace::note(&request, || {
            let why = if !is_normal {
                "the path that the client sent is not in its normal form"
            } else if has_certificate {
                "the client has a certificate, which the program knows"
            } else {
                "the program depends on more than the path that the client sent"
            };
            Step::new(StepKind::Cache, "passed", why)
        });
        self.inner.call(request)
    }
}
