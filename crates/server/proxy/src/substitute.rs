//! The replacement of texts in a streamed response body, also across frames.

use std::task::{Context, Poll, ready};

use apus_http::fields::remove_digests;
use apus_http::{Body, BodyError, BodyStream, Frame, Headers, KnownField, Response, StatusCode};
use bytes::{Bytes, BytesMut};

/// The replacement of a text in response bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// The text; not empty.
    pub from: Box<[u8]>,
    /// Its replacement.
    pub to: Box<[u8]>,
}

/// Which responses are changed, and how. If several texts start at the same position, the first rule applies.
#[derive(Clone, Debug, Default)]
pub struct Substitutions {
    rules: Vec<Substitution>,
    media_types: Vec<Box<str>>,
}

impl Substitutions {
    /// Creates rules for responses of these media types; `text/html` if there are none.
    pub fn new(rules: Vec<Substitution>, media_types: Vec<Box<str>>) -> Self {
        let rules = rules
            .into_iter()
            .filter(|rule| !rule.from.is_empty())
            .collect();
        let media_types = if media_types.is_empty() {
            vec!["text/html".into()]
        } else {
            media_types
        };
        Self { rules, media_types }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Applies the rules to a response, if it has one of the media types, is complete and not compressed.
    ///
    /// It loses what describes the bytes of the origin. Its tag becomes a weak one, and it has no date, so that
    /// no client resumes it by `If-Range` into other bytes.
    pub(super) fn apply(&self, response: &mut Response) {
        if response.status() == StatusCode::PARTIAL_CONTENT || !self.applies_to(response.headers())
        {
            return;
        }
        let headers = response.headers_mut();
        headers.remove("content-length");
        headers.remove("accept-ranges");
        remove_digests(headers);
        weaken_validators(headers);
        let source = response.take_body();
        *response.body_mut() = Body::stream(SubstitutionBody {
            source,
            rules: self.rules.clone(),
            buffer: BytesMut::new(),
            tail: None,
        });
    }

    /// Gives a 304 the validators of the replaced response, if the client has one: a 304 mostly has no media
    /// type, but clients get weak tags of replaced responses only, if the origin has strong ones.
    pub(super) fn complete_not_modified(&self, response: &mut Response, request: &Headers) {
        let names_weak_tag = |line: &[u8]| line.windows(3).any(|part| part == b"W/\"");
        let headers = response.headers_mut();
        let is_replaced = if headers.has(KnownField::ContentType) {
            self.applies_to(headers)
        } else {
            !self.is_empty() && request.get_all("if-none-match").any(names_weak_tag)
        };
        if is_replaced {
            weaken_validators(headers);
        }
    }

    /// Whether a response to a request with `Range` may be about a part of a body with texts to replace.
    pub(super) fn may_concern(&self, part: &Response) -> bool {
        match part.status() {
            StatusCode::PARTIAL_CONTENT => {
                media_type(part.headers()).eq_ignore_ascii_case("multipart/byteranges")
                    || self.applies_to(part.headers())
            }
            // It has the media type of the message.
            StatusCode::RANGE_NOT_SATISFIABLE => !self.is_empty(),
            _ => false,
        }
    }

    /// Whether texts are replaced in responses with these fields.
    pub(super) fn applies_to(&self, headers: &Headers) -> bool {
        let media_type = media_type(headers);
        let is_any = |known: &str| known == "*" || known.eq_ignore_ascii_case(media_type);
        !self.is_empty()
            && self.media_types.iter().any(|known| is_any(known))
            && !headers.contains("content-encoding")
    }
}

fn media_type(headers: &Headers) -> &str {
    let media_type = headers.get_str("content-type").unwrap_or("");
    media_type.split(';').next().unwrap_or("").trim()
}

fn weaken_validators(headers: &mut Headers) {
    headers.remove("last-modified");
    let weakened = headers
        .get("etag")
        .filter(|tag| !tag.starts_with(b"W/"))
        .map(|tag| [b"W/", tag].concat());
    if let Some(tag) = weakened {
        // What was a field value stays one.
        let _ = headers.try_insert("etag", tag);
    }
}

/// A body in which texts are replaced.
struct SubstitutionBody {
    source: Body,
    rules: Vec<Substitution>,
    /// Bytes that may be the start of a text whose end has not come.
    buffer: BytesMut,
    /// The trailers, once all data has passed.
    tail: Option<Option<Headers>>,
}

impl SubstitutionBody {
    /// Replaces the texts that are complete in the buffer; at the end of the body that is all of it.
    fn advance(&mut self, at_end: bool) -> Bytes {
        let mut output = BytesMut::with_capacity(self.buffer.len());
        let longest = self
            .rules
            .iter()
            .map(|rule| rule.from.len())
            .max()
            .unwrap_or(0);
        let mut at = 0;
        let mut copied = 0;
        while let Some(rest) = self.buffer.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(rule) = self.rules.iter().find(|rule| rest.starts_with(&rule.from)) {
                output.extend_from_slice(self.buffer.get(copied..at).unwrap_or_default());
                output.extend_from_slice(&rule.to);
                at = at.saturating_add(rule.from.len());
                copied = at;
                continue;
            }
            let may_be_prefix = !at_end
                && rest.len() < longest
                && self.rules.iter().any(|rule| rule.from.starts_with(rest));
            if may_be_prefix {
                break;
            }
            // Skips to the next position at which a text could start.
            let next = rest.get(1..).unwrap_or_default();
            let starts = self.rules.iter().filter_map(|rule| rule.from.first());
            let skip = starts
                .filter_map(|byte| memchr::memchr(*byte, next))
                .min()
                .unwrap_or(next.len());
            at = at.saturating_add(1).saturating_add(skip);
        }
        output.extend_from_slice(self.buffer.get(copied..at).unwrap_or_default());
        let _ = self.buffer.split_to(at.min(self.buffer.len()));
        output.freeze()
    }
}

impl BodyStream for SubstitutionBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if let Some(tail) = &mut self.tail {
                return Poll::Ready(tail.take().map(|lines| Ok(Frame::Trailers(lines))));
            }
            let output = match ready!(self.source.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) => {
                    self.buffer.extend_from_slice(&bytes);
                    self.advance(false)
                }
                Some(Ok(Frame::File(_))) => {
                    let error = "texts cannot be replaced in a file range";
                    return Poll::Ready(Some(Err(BodyError::Source(error.into()))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(Frame::Trailers(mut lines))) => {
                    remove_digests(&mut lines);
                    self.tail = Some(Some(lines));
                    self.advance(true)
                }
                None => {
                    self.tail = Some(None);
                    self.advance(true)
                }
            };
            if !output.is_empty() {
                return Poll::Ready(Some(Ok(Frame::Data(output))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct ChunkedBody(Vec<Vec<u8>>);

    impl BodyStream for ChunkedBody {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Poll::Ready(if self.0.is_empty() {
                None
            } else {
                Some(Ok(Frame::Data(self.0.remove(0).into())))
            })
        }
    }

    fn substitutions(rules: &[(&str, &str)]) -> Substitutions {
        let rule = |(from, to): &(&str, &str)| Substitution {
            from: from.as_bytes().into(),
            to: to.as_bytes().into(),
        };
        Substitutions::new(rules.iter().map(rule).collect(), Vec::new())
    }

    fn pass(rules: &[(&str, &str)], pieces: Vec<Vec<u8>>) -> String {
        let mut response = Response::new(StatusCode::OK);
        for (name, value) in [
            ("content-type", "text/html"),
            ("etag", "\"x\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("accept-ranges", "bytes"),
            ("content-length", "9"),
            ("content-md5", "x"),
            ("content-digest", "x"),
            ("repr-digest", "x"),
            ("digest", "x"),
        ] {
            response.headers_mut().try_insert(name, value).unwrap();
        }
        *response.body_mut() = Body::stream(ChunkedBody(pieces));
        substitutions(rules).apply(&mut response);
        let lines: Vec<_> = response.headers().iter().collect();
        let left = [("content-type", &b"text/html"[..]), ("etag", b"W/\"x\"")];
        assert_eq!(lines, left);
        let mut output = Vec::new();
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(Frame::Data(bytes)))) = response.body_mut().poll_frame(cx) {
            output.extend_from_slice(&bytes);
        }
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn replaces_texts_across_frames() {
        let rules = [
            ("http://internal", "https://example"),
            ("</head>", "<x></head>"),
        ];
        let text = "<a href=http://internal/a></head>http://intern http://internal";
        let output = "<a href=https://example/a><x></head>http://intern https://example";
        for size in 1..text.len() {
            let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(pass(&rules, pieces), output, "in pieces of {size}");
        }
    }

    #[test]
    fn leaves_other_media_types_and_compressed_bodies_alone() {
        for (name, value, status) in [
            ("content-type", "image/png", StatusCode::OK),
            ("content-encoding", "gzip", StatusCode::OK),
            ("content-range", "bytes 0-1/9", StatusCode::PARTIAL_CONTENT),
        ] {
            let mut response = Response::text(status, "a");
            let headers = response.headers_mut();
            headers.try_insert("content-type", "text/html").unwrap();
            headers.try_insert(name, value).unwrap();
            substitutions(&[("a", "b")]).apply(&mut response);
            assert!(matches!(response.body(), Body::Bytes(_)), "{name}");
        }
    }

    proptest! {
        #[test]
        fn replaces_as_str_replace_does(text in "[ab]{0,40}", from in "[ab]{1,4}", size in 1_usize..9) {
            let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(pass(&[(&from, "X")], pieces), text.replace(&from, "X"));
        }
    }
}
