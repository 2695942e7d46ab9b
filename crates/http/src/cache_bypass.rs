//! A mark on requests that a cache must not answer.

use crate::Request;

/// An extension of a request whose response depends on more than the target that the client sent, as after
/// a rewrite that looked at other fields: a response that is stored for that target is not for it.
#[derive(Clone, Copy, Debug)]
pub struct CacheBypass;

impl CacheBypass {
    /// Whether a request has the mark, and goes to another target than the client sent.
    pub fn applies_to(request: &Request) -> bool {
        request.is_rewritten() && request.extensions().get::<Self>().is_some()
    }
}
