//! The head of a request that a client sends, and what is wrong with one that cannot be sent (RFC 9112 section 3).

use std::fmt;

use http::Method;

use super::BodyFraming;
use apus_http::Headers;
use apus_http::grammar::{is_authority, is_field_content, is_host};

/// The head of a request that is sent.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request target: origin-form, `*` for OPTIONS, or authority-form for CONNECT.
    pub target: &'a str,
    /// The value of `Host`.
    pub host: &'a str,
    /// The field lines. Fields that the connection writes itself are skipped: `Host`, `Content-Length`,
    /// `Expect` and the connection-specific ones.
    pub headers: &'a Headers,
    /// Bytes of the body; `None` if the length is unknown before the body is sent.
    pub content_length: Option<u64>,
    /// The protocols that the request offers to switch to (RFC 9110 section 7.8).
    pub upgrade: Option<&'a str>,
    /// Whether trailer fields are accepted (RFC 9110 section 10.1.4).
    pub te_trailers: bool,
    /// Whether the body waits for `100 Continue` (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
}

impl OutgoingRequest<'_> {
    /// Checks that the server will parse the request line and the fields as they are meant.
    pub(super) fn check(&self) -> Result<(), InvalidRequest> {
        // A space or a line end in the target would begin another request of the writer's choice.
        let is_target = match (self.method, self.target) {
            (&Method::CONNECT, target) => is_authority(target.as_bytes()),
            (&Method::OPTIONS, "*") => true,
            (_, target) => {
                target.starts_with('/')
                    && target
                        .bytes()
                        .all(|byte| byte.is_ascii_graphic() && byte != b'#')
            }
        };
        if !is_target {
            return Err(InvalidRequest::Target);
        }
        if !is_host(self.host.as_bytes()) {
            return Err(InvalidRequest::Host);
        }
        let is_offer =
            |offer: &str| !offer.trim_ascii().is_empty() && is_field_content(offer.as_bytes());
        if self.upgrade.is_some_and(|offer| !is_offer(offer)) {
            return Err(InvalidRequest::Upgrade);
        }
        if self.method == Method::CONNECT && self.content_length != Some(0) {
            return Err(InvalidRequest::Body);
        }
        Ok(())
    }

    /// How the body has to be framed.
    pub(super) fn framing(&self) -> BodyFraming {
        match self.content_length {
            Some(0) => BodyFraming::None,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunked,
        }
    }
}

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// Another request is in progress, or the connection does not persist.
    NotNow,
    /// The request target has no form that the method allows, or contains bytes that would end it.
    Target,
    /// The value of `Host` is not `host [":" port]`.
    Host,
    /// The offered protocol is empty or contains control characters.
    Upgrade,
    /// A CONNECT request has a body.
    Body,
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNow => "the connection cannot carry a request now",
            Self::Target => "a request target must be /path of visible ASCII without #",
            Self::Host => "a Host field must be host or host:port",
            Self::Upgrade => "a protocol to upgrade to must be a token",
            Self::Body => "a CONNECT request must not have a body",
        })
    }
}

impl std::error::Error for InvalidRequest {}
