//! What is left of limits, as the fact `limit.NAME` of conditions.

use std::sync::Arc;

use apus_conditions::RequestLimits;
use apus_handler::{Middleware, Next};
use apus_http::{Request, ResponseFuture};

use crate::quota_limit::QuotaLimit;
use crate::rate_limit::RateLimit;

/// Limits for the conditions behind this layer: `limit.pages < 5` holds while there are less than five requests left of the limit `pages`.
/// Asking counts nothing: the limits are layers of their own. Sites have theirs by `Site::limits`.
#[derive(Clone, Debug, Default)]
pub struct LimitFacts(RequestLimits);

impl LimitFacts {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rate, by its name.
    #[must_use]
    pub fn rate(mut self, limit: &RateLimit) -> Self {
        let own = limit.clone();
        let left = move |request: &Request| own.left(request);
        self.0.add(limit.handle().name(), Arc::new(left));
        self
    }

    /// Adds a quota, by its name.
    #[must_use]
    pub fn quota(mut self, limit: &QuotaLimit) -> Self {
        let own = limit.clone();
        let left = move |request: &Request| own.left(request);
        self.0.add(limit.handle().name(), Arc::new(left));
        self
    }
}

impl Middleware<()> for LimitFacts {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        self.0.attach(&mut request);
        next.call(request)
    }
}
