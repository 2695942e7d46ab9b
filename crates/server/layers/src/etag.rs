//! Entity tags made from the body, and conditions on them (RFC 9110 sections 8.8.3 and 13).

use std::time::SystemTime;

use apus_http::fields::{EntityTag, EntityTags, Precondition, Validators, http_date};
use apus_http::{
    HeaderValue, Headers, Method, Request, Response, ResponseFuture, StatusCode, header,
};
use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use apus_handler::{Middleware, Next};

/// The default of [`Etag::max_bytes`].
const MAX_BYTES: usize = 1024 * 1024;

/// The bytes of the hash in a tag: enough to prevent collisions.
const TAG_BYTES: usize = 16;

/// A layer that adds entity tags to responses, and responds 304 to clients that have the response.
///
/// It tags responses to GET and HEAD with status 200 by a hash of their body, if that is in memory and not
/// longer than [`Etag::max_bytes`]. A response with a tag keeps it, and conditions are evaluated for it as
/// well. The handler runs in any case; this saves only the transfer.
///
/// Put `Compression` further out; it weakens the tags of compressed responses.
#[derive(Clone, Copy, Debug)]
pub struct Etag {
    is_weak: bool,
    max_bytes: usize,
}

impl Default for Etag {
    fn default() -> Self {
        Self::new()
    }
}

impl Etag {
    /// Adds strong tags: equal tags mean equal bytes.
    pub fn new() -> Self {
        Self {
            is_weak: false,
            max_bytes: MAX_BYTES,
        }
    }

    /// Adds weak tags, for applications behind a proxy that changes bodies.
    #[must_use]
    pub fn weak(mut self) -> Self {
        self.is_weak = true;
        self
    }

    /// The longest body that is tagged, in bytes. Default: 1 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Adds a tag if the response has none and its body allows it.
    fn tag(self, response: &mut Response) {
        let Some(body) = response.body().in_memory() else {
            return;
        };
        if response.headers().contains("etag") || body.len() > self.max_bytes {
            return;
        }
        let hash = digest::digest(&digest::SHA256, body);
        let opaque = URL_SAFE_NO_PAD.encode(hash.as_ref().get(..TAG_BYTES).unwrap_or_default());
        let tag = if self.is_weak {
            format!("W/\"{opaque}\"")
        } else {
            format!("\"{opaque}\"")
        };
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(&header::ETAG, &tag);
        }
    }
}

impl Middleware<()> for Etag {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return next.call(request);
        }
        let etag = *self;
        let conditions = ConditionalRequest::of(&request);
        next.call(request).map(move |mut response| {
            if response.status() != StatusCode::OK {
                return response;
            }
            etag.tag(&mut response);
            match conditions {
                Some(conditions) => conditions.decide(response),
                None => response,
            }
        })
    }
}

/// The conditions of a request.
struct ConditionalRequest {
    method: Method,
    headers: Headers,
}

impl ConditionalRequest {
    const FIELDS: [&str; 4] = [
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
    ];

    fn of(request: &Request) -> Option<Self> {
        let fields = request.headers();
        if !Self::FIELDS.iter().any(|name| fields.contains(name)) {
            return None;
        }
        let mut headers = Headers::new();
        headers.append_from(fields, |name, _| {
            Self::FIELDS
                .iter()
                .any(|field| field.as_bytes().eq_ignore_ascii_case(name))
        });
        Some(Self {
            method: request.method().clone(),
            headers,
        })
    }

    /// Whether the client has a weak tag of this version, for example of its compressed form. The response
    /// then has the weak tag too (RFC 9111 section 4.3.4).
    fn has_weakened(&self, own: &EntityTag<'_>) -> bool {
        let mut lines = self.headers.get_all("if-none-match");
        !own.weak
            && lines.any(|line| match EntityTags::parse(line) {
                EntityTags::Any => false,
                EntityTags::List(mut list) => list.any(|tag| tag.weak && tag.weak_eq(own)),
            })
    }

    /// The response, or the 304 or 412 that the conditions require.
    fn decide(&self, mut response: Response) -> Response {
        let headers = response.headers();
        let validators = Validators {
            entity_tag: headers.get("etag").and_then(EntityTag::parse),
            last_modified: headers.get_str("last-modified").and_then(date),
        };
        let status = match validators.evaluate(&self.method, &self.headers) {
            Precondition::Proceed => return response,
            Precondition::NotModified => StatusCode::NOT_MODIFIED,
            Precondition::Failed => StatusCode::PRECONDITION_FAILED,
        };
        let is_weakened = validators
            .entity_tag
            .is_some_and(|own| self.has_weakened(&own));
        response.set_status(status);
        response.take_body();
        let headers = response.headers_mut();
        if is_weakened && let Some(tag) = headers.get("etag").map(|tag| [b"W/", tag].concat()) {
            // With this prefix it is still a valid field value.
            let _ = headers.try_insert("etag", tag);
        }
        // Fields of the body that is not sent (RFC 9110 section 15.4.5).
        for name in [
            "content-type",
            "content-length",
            "content-encoding",
            "content-language",
            "accept-ranges",
        ] {
            headers.remove(name);
        }
        response
    }
}

fn date(value: &str) -> Option<SystemTime> {
    http_date(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_tagged_up_to_the_longest_length() {
        for (length, is_tagged) in [(0, false), (1, true), (9, true), (10, true), (11, false)] {
            let mut response = Response::text(StatusCode::OK, "x".repeat(length));
            Etag::new().max_bytes(10).tag(&mut response);
            let tag = response.headers().get_str("etag");
            assert_eq!(tag.is_some(), is_tagged, "{length}");
            // Sixteen bytes in Base64, in quotes.
            assert!(tag.is_none_or(|tag| tag.len() == 24), "{tag:?}");
        }
    }

    /// RFC 9110 section 8.8.3.2: a weak tag matches only in `If-None-Match`.
    #[test]
    fn tags_are_compared_weakly_for_if_none_match_and_strongly_for_if_match() {
        let decide = |own: &str, name: &str, sent: &str| {
            let mut response = Response::text(StatusCode::OK, "text");
            response.headers_mut().try_insert("etag", own).unwrap();
            let mut headers = Headers::new();
            headers.try_insert(name, sent).unwrap();
            let request = ConditionalRequest {
                method: Method::GET,
                headers,
            };
            let response = request.decide(response);
            let tag = response.headers().get_str("etag").unwrap().to_owned();
            (response.status().as_u16(), tag)
        };
        for (own, sent, none_match, tag, matches) in [
            ("\"a\"", "\"a\"", 304, "\"a\"", 200),
            ("\"a\"", "W/\"a\"", 304, "W/\"a\"", 412),
            ("W/\"a\"", "\"a\"", 304, "W/\"a\"", 412),
            ("W/\"a\"", "W/\"a\"", 304, "W/\"a\"", 412),
            ("\"a\"", "\"A\"", 200, "\"a\"", 412),
            ("\"a\"", "\"b\", \"a\"", 304, "\"a\"", 200),
            ("\"a\"", "*", 304, "\"a\"", 200),
        ] {
            let found = decide(own, "if-none-match", sent);
            assert_eq!(found, (none_match, tag.to_owned()), "{own} {sent}");
            assert_eq!(decide(own, "if-match", sent).0, matches, "{own} {sent}");
        }
    }
}
