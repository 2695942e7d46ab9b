//! The properties of requests and responses on which the policy depends.

use apus_http::{Headers, Method, Request, StatusCode};

use super::Timestamp;

/// A request that is presented to the cache (RFC 9111 section 4).
#[derive(Clone, Copy, Debug)]
pub struct PresentedRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`: how the client reached the server.
    pub scheme: &'a str,
    /// `host [":" port]` of the request, in its normal form ([`apus_http::Authority`]); empty if
    /// there is none.
    pub authority: &'a str,
    /// The path, byte for byte as the origin gets it. With any other form in the key, the response
    /// to one path could be sent for another.
    pub path: &'a str,
    /// The query as the origin gets it, without `?`.
    pub query: Option<&'a str>,
    /// The field lines.
    pub headers: &'a Headers,
    /// Whether the request has or may have a body. It is established from the body itself, since
    /// HTTP/2 needs no field to announce it.
    pub has_body: bool,
    /// Whether the client presented a certificate.
    pub has_certificate: bool,
    /// The class of the client's device, if it is part of the key.
    pub device: Option<&'a str>,
    /// The request itself, for what was attached to it.
    pub request: Option<&'a Request>,
}

impl<'a> PresentedRequest<'a> {
    /// Whether the cache may respond to the method.
    pub(super) fn is_read(&self) -> bool {
        matches!(*self.method, Method::GET | Method::HEAD)
    }

    /// The values of all lines of a field; `None` if there is no line.
    pub(super) fn values(&self, name: &'a str) -> Option<impl Iterator<Item = &'a [u8]>> {
        let mut lines = self.headers.get_all(name).peekable();
        lines.peek().is_some().then_some(lines)
    }
}

/// A response as the origin sent it.
#[derive(Clone, Copy, Debug)]
pub struct OriginResponse<'a> {
    /// The status.
    pub status: StatusCode,
    /// The field lines.
    pub headers: &'a Headers,
    /// When the request was sent.
    pub requested: Timestamp,
    /// When the header section of the response was received.
    pub received: Timestamp,
}

/// What the configuration says about one request, and how often its key was requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct CachingContext {
    /// Whether stored responses are ignored. The response may be stored.
    pub bypass: bool,
    /// Whether the response is not stored.
    pub no_store: bool,
    /// Whether the client is trusted, for [`super::ClientDirectiveRule::Trusted`].
    pub is_trusted: bool,
    /// How often the key was requested lately, this request included.
    pub uses: u32,
}
