//! `Compression`: the layer that compresses responses (RFC 9110 section 8.4).

use apus_http::fields::Vary;
use apus_http::{Request, ResponseFuture, StatusCode};

use crate::middleware::{Middleware, Next};
use apus_compress::Compression;
use apus_compress::{EncodingNegotiation, vary};

/// Compresses responses with the coding that the client prefers, if that makes them smaller.
impl Middleware<()> for Compression {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let negotiation = EncodingNegotiation::of(&request, *self);
        next.call(request).map(move |mut response| {
            let is_not_modified = response.status() == StatusCode::NOT_MODIFIED;
            if is_not_modified && !response.is_coding_chosen() {
                // A 304 has the fields of the compressed response (RFC 9110 section 15.4.5).
                let headers = response.headers_mut();
                let is_told = match Vary::of(headers) {
                    Vary::Any => true,
                    Vary::Fields(names) => names.iter().any(|name| **name == *"accept-encoding"),
                };
                if !is_told {
                    vary(headers);
                }
            } else {
                negotiation.apply(&mut response);
            }
            response
        })
    }
}
