//! Marks on requests for which no cache may be used.

use crate::Request;

/// An extension of a request whose response depends on more than the target that the client sent, such as
/// a rewrite by other fields. A response that is stored for that target does not fit this request.
#[derive(Clone, Copy, Debug)]
pub struct CacheBypass;

impl CacheBypass {
    /// Whether a request has the mark and another target than the client sent, or is not cached at all.
    pub fn applies_to(request: &Request) -> bool {
        let is_rewritten = request.is_rewritten() && request.extensions().get::<Self>().is_some();
        is_rewritten || NotCached::applies_to(request)
    }
}

/// An extension of a request that a rule keeps from every cache: it goes to the origin, and the response is not stored.
#[derive(Clone, Copy, Debug)]
pub struct NotCached;

impl NotCached {
    /// Whether a request has the mark.
    pub fn applies_to(request: &Request) -> bool {
        request.extensions().get::<Self>().is_some()
    }
}
