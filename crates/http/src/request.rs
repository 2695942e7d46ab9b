//! A request as a service sees it.

use std::fmt;
use std::rc::Rc;

use http::{Extensions, Method, Version};

use crate::grammar::is_host;
use crate::{Body, ConnectionInfo, Headers, InvalidTarget, Target};

/// A request: head, content, the connection it came over, and what layers attached to it.
///
/// One pointer wide, so that passing it down the layers costs nothing.
pub struct Request {
    parts: Box<RequestParts>,
}

/// The parts of a [`Request`].
pub struct RequestParts {
    /// The method.
    pub method: Method,
    /// The target; a rewrite replaces it.
    pub target: Target,
    /// The protocol version of the request.
    pub version: Version,
    /// The field lines.
    pub headers: Headers,
    /// The content.
    pub body: Body,
    /// The connection.
    pub connection: Rc<ConnectionInfo>,
    /// Values that layers attach for the layers below; empty costs nothing.
    pub extensions: Extensions,
}

impl Request {
    /// A request from its parts.
    pub fn new(parts: RequestParts) -> Self {
        Self {
            parts: Box::new(parts),
        }
    }

    /// The request taken apart.
    pub fn into_parts(self) -> RequestParts {
        *self.parts
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    /// Changes the method.
    pub fn set_method(&mut self, method: Method) {
        self.parts.method = method;
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.parts.target
    }

    /// The path as it was sent, percent-encoded.
    pub fn path(&self) -> &str {
        self.parts.target.path()
    }

    /// The query without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.parts.target.query()
    }

    /// Replaces path and query, as a rewrite does.
    ///
    /// # Errors
    /// The text is not in origin form.
    pub fn set_path_and_query(&mut self, text: &str) -> Result<(), InvalidTarget> {
        if !text.starts_with('/') {
            return Err(InvalidTarget);
        }
        let authority = self.authority().map(|host| host.to_owned());
        let target = Target::parse(&Method::GET, text)?;
        if self.parts.target.authority().is_some()
            && let Some(host) = authority
        {
            // What the absolute form named stays the authority (RFC 9112 section 3.2.2).
            let _ = self.parts.headers.try_insert("host", host);
        }
        self.parts.target = target;
        Ok(())
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.parts.version
    }

    /// The field lines.
    pub fn headers(&self) -> &Headers {
        &self.parts.headers
    }

    /// The field lines to change.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.parts.headers
    }

    /// The content to read.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.parts.body
    }

    /// Takes the content out, leaving none.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.parts.body)
    }

    /// Cuts the content off with an error once it is longer than `max` bytes.
    pub fn limit_body(&mut self, max: u64) {
        let body = self.take_body();
        self.parts.body = body.limit(max);
    }

    /// The connection.
    pub fn connection(&self) -> &Rc<ConnectionInfo> {
        &self.parts.connection
    }

    /// Whether the request came over TLS.
    pub fn is_secure(&self) -> bool {
        self.parts.connection.tls.is_some()
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// `host [":" port]` that the request is for: from the target if it names one, else from the
    /// `Host` field (RFC 9112 section 3.3).
    pub fn authority(&self) -> Option<&str> {
        self.parts
            .target
            .authority()
            .or_else(|| self.parts.headers.get_str("host"))
            .filter(|host| !host.is_empty() && is_host(host))
    }

    /// The host of [`Request::authority`] without its port. As it was sent: case is the client's.
    pub fn host(&self) -> Option<&str> {
        let authority = self.authority()?;
        match authority.strip_prefix('[') {
            Some(_) => authority.split_inclusive(']').next(),
            None => authority.split(':').next(),
        }
    }

    /// Values that layers attached.
    pub fn extensions(&self) -> &Extensions {
        &self.parts.extensions
    }

    /// Values that layers attach.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.parts.extensions
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.parts.method)
            .field("target", &self.parts.target)
            .field("version", &self.parts.version)
            .field("headers", &self.parts.headers)
            .field("body", &self.parts.body)
            .finish_non_exhaustive()
    }
}
