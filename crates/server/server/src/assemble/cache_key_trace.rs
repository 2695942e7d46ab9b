//! A trace of cache keys, in place of a cache.

use std::rc::Rc;
use std::sync::Arc;

use apus_cache::service::CacheSettings;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Method, Request, ResponseFuture, Service, ServiceFactory};

/// Notes the cache key of a request in the trace.
#[derive(Clone)]
pub(super) struct CacheKeyTrace<F> {
    pub(super) settings: Arc<CacheSettings>,
    pub(super) inner: F,
}

impl<F: ServiceFactory> ServiceFactory for CacheKeyTrace<F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(CacheKeyTraceService {
            settings: Arc::clone(&self.settings),
            inner: self.inner.service(),
        })
    }
}

struct CacheKeyTraceService {
    settings: Arc<CacheSettings>,
    inner: Rc<dyn Service>,
}

impl Service for CacheKeyTraceService {
    fn call(&self, request: Request) -> ResponseFuture {
        trace::note(&request, || {
            let (what, why) = if !matches!(*request.method(), Method::GET | Method::HEAD) {
                ("bypass".to_owned(), "only GET and HEAD are cached")
            } else if self.settings.is_bypassed(&request) {
                let why = "the request has a cookie or a field of `bypass_cookies` or \
                           `bypass_headers`, or an Upgrade, or `bypass_when` holds";
                ("bypass".to_owned(), why)
            } else {
                let key = self.settings.key(&request).to_string();
                (
                    key,
                    "this is the cache key; the response of the origin decides whether it is stored",
                )
            };
            Step::new(StepKind::Cache, what, why)
        });
        self.inner.call(request)
    }
}
