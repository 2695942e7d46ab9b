//! What goes past the cache in front of PHP: requests that the key of the cache does not tell apart,
//! while the program does.

use std::rc::Rc;

use apus_http::{Answer, Request, RouteInfo, Service, ServiceFactory};

use apus_http::path::sent_on;
use apus_http::trace::{self, Step, StepKind};

/// Puts requests to a cache in front of a service, and those past it that the target which the client sent
/// does not tell apart, by which the cache [stores](crate::cached::CacheSettings::by_sent_target).
///
/// A path with `//` or dot segments has the key of the path that it means, while applications answer it
/// with a redirect to that: stored, it would lead in a circle. Where a rewrite looked at more than the
/// target, it is another program for each client. And what a program has the site answer in its place
/// would be stored over the answer that says so.
#[derive(Clone, Debug)]
pub struct Uncached<C, F> {
    cached: C,
    inner: F,
}

impl<C, F> Uncached<C, F> {
    /// Puts requests to `cached`, or past it to `inner`, which is the service behind it.
    pub fn new(cached: C, inner: F) -> Self {
        Self { cached, inner }
    }
}

impl<C: ServiceFactory, F: ServiceFactory> ServiceFactory for Uncached<C, F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(UncachedService {
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

struct UncachedService {
    cached: Rc<dyn Service>,
    inner: Rc<dyn Service>,
}

impl Service for UncachedService {
    fn call(&self, request: Request) -> Answer {
        let sent = request.original_target().path();
        let is_normal = match request.is_rewritten() {
            true => sent_on(sent).is_ok_and(|path| *path == *sent),
            false => request.forwarded_path() == Ok(sent),
        };
        if is_normal && !Untold::is(&request) {
            return self.cached.call(request);
        }
        trace::note(&request, || {
            let why = match is_normal {
                true => "more than the path that the client sent says what is run",
                false => "the path that the client sent is not in its normal form",
            };
            Step::new(StepKind::Cache, "passed", why)
        });
        self.inner.call(request)
    }
}

/// Attached to a request that goes where the target which the client sent does not say alone: what is
/// stored for that target is not for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untold;

impl Untold {
    /// Whether a request is one.
    pub(crate) fn is(request: &Request) -> bool {
        request.is_rewritten() && request.extensions().get::<Self>().is_some()
    }
}
