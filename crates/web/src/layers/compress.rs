//! Compression as a layer: what [`crate::Compressed`] does around a service.

use apus_http::{Answer, Request};

use crate::compress::Wish;
use crate::files::Compression;
use crate::middleware::{Middleware, Next};

/// Compresses answers that are worth it in the coding that the client likes best.
impl Middleware<()> for Compression {
    fn call(&self, request: Request, next: Next) -> Answer {
        let wish = Wish::of(&request, *self);
        next.call(request).map(move |mut response| {
            wish.apply(&mut response);
            response
        })
    }
}
