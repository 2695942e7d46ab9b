//! What the policy has to know of a request and of its answer.

use apus_http::{Headers, Method, StatusCode};

use super::Timestamp;

/// A request that is presented to the cache (RFC 9111 section 4).
#[derive(Clone, Copy, Debug)]
pub struct PresentedRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`: how the client reached the server.
    pub scheme: &'a str,
    /// `host [":" port]` that the request is for, in its normal form ([`apus_http::Authority`]); empty if it
    /// names none.
    pub authority: &'a str,
    /// The path, byte for byte as the origin gets it: a key of another form than what is answered
    /// would let one path be answered with another's content.
    pub path: &'a str,
    /// The query as the origin gets it, without `?`.
    pub query: Option<&'a str>,
    /// The field lines.
    pub headers: &'a Headers,
    /// Whether the request has a body, or may have one: established from the body itself, since HTTP/2 needs
    /// no field to announce it.
    pub has_body: bool,
    /// Whether the client showed a certificate.
    pub has_certificate: bool,
    /// The class of the client's device, if the configuration tells them apart.
    pub device: Option<&'a str>,
}

impl<'a> PresentedRequest<'a> {
    /// Whether the method can be answered from the cache.
    pub(super) fn is_read(&self) -> bool {
        matches!(*self.method, Method::GET | Method::HEAD)
    }

    /// The values of all lines of a field; `None` if there is no line.
    pub(super) fn values(&self, name: &'a str) -> Option<impl Iterator<Item = &'a [u8]>> {
        let mut lines = self.headers.get_all(name).peekable();
        lines.peek().is_some().then_some(lines)
    }
}

/// A response as it came from the origin.
#[derive(Clone, Copy, Debug)]
pub struct OriginResponse<'a> {
    /// The status.
    pub status: StatusCode,
    /// The field lines.
    pub headers: &'a Headers,
    /// When the request was sent.
    pub requested: Timestamp,
    /// When the head of the response was there.
    pub received: Timestamp,
}

/// What the configuration decided about one request, and what the store counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// Nothing stored is to be used. The answer may be stored.
    pub bypass: bool,
    /// The answer is not to be stored.
    pub no_store: bool,
    /// The client is one whose wishes count, for [`super::ClientDirectives::Trusted`].
    pub is_trusted: bool,
    /// How often the key was asked for lately, with this request.
    pub uses: u32,
}
