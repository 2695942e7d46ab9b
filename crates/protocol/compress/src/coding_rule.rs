//! What lets the response to a request be compressed, besides `Accept-Encoding`.

use std::fmt;
use std::sync::Arc;

use apus_http::{Request, Response};

/// An extension of a request: a function that says of its response, which is not compressed yet, whether it may be.
///
/// Whoever chooses a content coding asks it: files, caches and compressed services. A response that may not be compressed is the one that
/// a client without any coding gets, with the same `Vary`.
#[derive(Clone)]
pub struct CodingRule(Arc<RuleFunction>);

type RuleFunction = dyn Fn(&Request, &Response) -> bool + Send + Sync;

impl CodingRule {
    /// A rule with this function.
    pub fn new(allows: impl Fn(&Request, &Response) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }

    /// Whether the response to a request may be compressed. A request without a rule lets each be. The function returns what there is of
    /// the response.
    pub fn allows(request: &Request, response: impl FnOnce() -> Response) -> bool {
        let rule = request.extensions().get::<Self>();
        rule.is_none_or(|rule| (rule.0)(request, &response()))
    }

    /// The rule of a request with a copy of the request, for when its response is there.
    pub fn of(request: &Request) -> Option<Box<RequestCodingRule>> {
        let rule = request.extensions().get::<Self>()?.clone();
        let mut copy = request.without_body();
        *copy.extensions_mut() = request.extensions().clone();
        Some(Box::new(RequestCodingRule {
            rule,
            request: copy,
        }))
    }
}

impl fmt::Debug for CodingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodingRule").finish_non_exhaustive()
    }
}

/// A rule, and a copy of its request.
#[derive(Debug)]
pub struct RequestCodingRule {
    rule: CodingRule,
    request: Request,
}

impl RequestCodingRule {
    /// Whether this response may be compressed.
    pub fn allows_response(&self, response: &Response) -> bool {
        (self.rule.0)(&self.request, response)
    }
}
