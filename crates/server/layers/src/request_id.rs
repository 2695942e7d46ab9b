//! `RequestIds`: the layer that sends the id of a request to origins and clients.

use apus_handler::{Middleware, Next};
use apus_http::{HeaderName, HeaderValue, Request, ResponseFuture};

/// A layer that sends the [id](Request::id) of each request: as `X-Request-Id` in the request to handlers and origins, and
/// in the response.
///
/// It replaces the id that a client sent, so that clients cannot write into logs. The id of a trusted proxy is kept, if
/// [`TrustedProxies`](apus_handler::TrustedProxies) is further out.
#[derive(Clone, Debug)]
pub struct RequestIds {
    field: HeaderName,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestIds {
    /// Sends ids as `X-Request-Id`.
    pub fn new() -> Self {
        Self {
            field: HeaderName::from_static("x-request-id"),
        }
    }

    /// The field of the id, in place of `X-Request-Id`.
    #[must_use]
    pub fn field(mut self, name: HeaderName) -> Self {
        self.field = name;
        self
    }
}

impl Middleware<()> for RequestIds {
    fn changes_only_fields(&self) -> bool {
        true
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        // An id has only characters that are valid in a field value.
        let Ok(value) = HeaderValue::from_str(&request.id().to_string()) else {
            return next.call(request);
        };
        let field = self.field.clone();
        request.headers_mut().insert(&field, &value);
        next.call_and_change(request, move |mut response| {
            response.headers_mut().insert(&field, &value);
            response
        })
    }
}
