//! What goes past the cache in front of PHP: requests that the key of the cache does not tell apart,
//! while the program does.

use std::rc::Rc;

use apus_http::{Answer, Request, Service, ServiceFactory};

use crate::path::sent_on;
use crate::trace::{self, Step, StepKind};

/// Puts requests to a cache in front of a service, and those past it whose target is not the one by
/// which the cache stores: a program sees the target as the client sent it.
///
/// Where a rewrite or `try_files` replaced the path, the key would be the same for many pages. And a
/// path with `//` or dot segments has the key of the path that it means, while applications answer it
/// with a redirect to that: stored, it would lead in a circle.
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
}

struct UncachedService {
    cached: Rc<dyn Service>,
    inner: Rc<dyn Service>,
}

impl Service for UncachedService {
    fn call(&self, request: Request) -> Answer {
        let is_as_sent = !request.is_rewritten()
            && sent_on(request.path()).is_ok_and(|path| *path == *request.path());
        if is_as_sent {
            return self.cached.call(request);
        }
        trace::note(&request, || {
            let why = "the path is not the one that the client sent, or not in its normal form";
            Step::new(StepKind::Cache, "passed", why)
        });
        self.inner.call(request)
    }
}
