//! A request as a service sees it.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use http::{Extensions, Method, Version};

use crate::grammar::is_host;
use crate::{Body, ConnectionInfo, Headers, Interim, InvalidTarget, Target};

/// A request: head, content, the connection it came over, and what layers attached to it.
pub struct Request {
    head: Box<Head>,
    /// The target that the client sent, if it was replaced.
    original_target: Option<Box<Target>>,
    body: Body,
    connection: Rc<ConnectionInfo>,
    interim: Interim,
    extensions: Extensions,
    id: u64,
}

/// The head of a request. A codec makes it where it stays, in a box of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The target; a rewrite replaces it.
    pub target: Target,
    /// The protocol version of the request.
    pub version: Version,
    /// The field lines.
    pub headers: Headers,
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
        let RequestParts {
            method,
            target,
            version,
            headers,
            body,
            connection,
            extensions,
        } = parts;
        let head = Head {
            method,
            target,
            version,
            headers,
        };
        Self {
            extensions,
            ..Self::from_head(Box::new(head), body, connection)
        }
    }

    /// A request as it came over a connection.
    pub fn from_head(head: Box<Head>, body: Body, connection: Rc<ConnectionInfo>) -> Self {
        Self {
            head,
            original_target: None,
            body,
            connection,
            interim: Interim::default(),
            extensions: Extensions::new(),
            id: next_id(),
        }
    }

    /// The request taken apart.
    pub fn into_parts(self) -> RequestParts {
        let Head {
            method,
            target,
            version,
            headers,
        } = *self.head;
        RequestParts {
            method,
            target,
            version,
            headers,
            body: self.body,
            connection: self.connection,
            extensions: self.extensions,
        }
    }

    /// What tells it apart in logs: a number that hardly any other request has, of this process or
    /// another. Who asks for another answer to the same request gives that the same.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Makes it count as the request that had this [number](Self::id).
    pub fn set_id(&mut self, id: u64) {
        self.id = id;
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// Changes the method.
    pub fn set_method(&mut self, method: Method) {
        self.head.method = method;
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.head.target
    }

    /// The path as it was sent, percent-encoded.
    pub fn path(&self) -> &str {
        self.head.target.path()
    }

    /// The query without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.head.target.query()
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
        if self.head.target.authority().is_some()
            && let Some(host) = authority
        {
            // What the absolute form named stays the authority (RFC 9112 section 3.2.2).
            let _ = self.head.headers.try_insert("host", host);
        }
        let replaced = std::mem::replace(&mut self.head.target, target);
        self.original_target
            .get_or_insert_with(|| Box::new(replaced));
        Ok(())
    }

    /// The target as the client sent it, whatever replaced it since.
    pub fn original_target(&self) -> &Target {
        self.original_target.as_deref().unwrap_or(&self.head.target)
    }

    /// Whether path or query are no longer those that the client sent.
    pub fn is_rewritten(&self) -> bool {
        self.original_target.is_some()
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The field lines.
    pub fn headers(&self) -> &Headers {
        &self.head.headers
    }

    /// The field lines to change.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.head.headers
    }

    /// The content to read.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Takes the content out, leaving none.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Cuts the content off with an error once it is longer than `max` bytes.
    pub fn limit_body(&mut self, max: u64) {
        let body = self.take_body();
        self.body = body.limit(max);
    }

    /// The connection.
    pub fn connection(&self) -> &Rc<ConnectionInfo> {
        &self.connection
    }

    /// Whether the request came over TLS.
    pub fn is_secure(&self) -> bool {
        self.connection.tls.is_some()
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// `host [":" port]` that the request is for: from the target if it names one, else from the
    /// `Host` field (RFC 9112 section 3.3).
    pub fn authority(&self) -> Option<&str> {
        let named = self.head.target.authority().map(str::as_bytes);
        named
            .or_else(|| self.head.headers.get("host"))
            .filter(|host| !host.is_empty() && is_host(host))
            .and_then(|host| std::str::from_utf8(host).ok())
    }

    /// The host of [`Request::authority`] without its port. As it was sent: case is the client's.
    pub fn host(&self) -> Option<&str> {
        let authority = self.authority()?;
        // The port is digits, and an IPv6 address ends with a bracket.
        match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => Some(host),
            _ => Some(authority),
        }
    }

    /// What sends interim responses, such as 103 Early Hints, before the answer. A request that came
    /// over no connection has one whose responses are dropped.
    pub fn interim(&self) -> &Interim {
        &self.interim
    }

    /// Changes where interim responses go: to another request's client, or nowhere.
    pub fn set_interim(&mut self, interim: Interim) {
        self.interim = interim;
    }

    /// Values that layers attached.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Values that layers attach.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// The numbers of a thread follow one another from one at random.
fn next_id() -> u64 {
    thread_local! {
        static NEXT: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    NEXT.with(|next| next.replace(next.get().wrapping_add(1)))
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.head.method)
            .field("target", &self.head.target)
            .field("version", &self.head.version)
            .field("headers", &self.head.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;

    #[test]
    fn a_rewritten_request_still_knows_what_the_client_sent() {
        let mut request = Request::new(RequestParts {
            method: Method::GET,
            target: Target::parse(&Method::GET, "/a?b").unwrap(),
            version: Version::HTTP_11,
            headers: Headers::new(),
            body: Body::Empty,
            connection: Rc::new(ConnectionInfo {
                id: 1,
                peer: Peer::Unix,
                local: Peer::Unix,
                tls: None,
            }),
            extensions: Extensions::new(),
        });
        assert!(!request.is_rewritten());
        assert_eq!(request.original_target().as_str(), "/a?b");
        request.set_path_and_query("/c").unwrap();
        request.set_path_and_query("/d?e").unwrap();
        assert!(request.is_rewritten());
        assert_eq!(request.target().as_str(), "/d?e");
        assert_eq!(request.original_target().as_str(), "/a?b");
    }
}
