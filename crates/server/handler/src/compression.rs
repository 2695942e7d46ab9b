//! `Compression`: the layer that compresses responses (RFC 9110 section 8.4).

use apus_http::{Request, ResponseFuture};

use crate::middleware::{Middleware, Next};
use apus_compress::{CodingRule, Compression, EncodingNegotiation};

/// Compresses responses with the coding that the client prefers, if that makes them smaller.
impl Middleware<()> for Compression {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let negotiation = EncodingNegotiation::of(&request, *self);
        // The rest of the chain can be called once only.
        negotiation.ignore_range_by_date(&mut request);
        let rule = CodingRule::of(&request);
        next.call(request).map(move |mut response| {
            negotiation.apply_by(rule.as_deref(), &mut response);
            response
        })
    }
}
