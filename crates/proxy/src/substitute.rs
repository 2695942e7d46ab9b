//! Texts of an answer that are replaced by others as it passes, also where they are cut in two.

use std::task::{Context, Poll, ready};

use apus_http::{Body, BodyError, BodyStream, Frame, Headers, Response};
use bytes::{Bytes, BytesMut};

/// A text that is replaced by another in the content of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// What is replaced; not empty.
    pub from: Box<[u8]>,
    /// What stands there instead.
    pub to: Box<[u8]>,
}

/// Which answers are changed, and how. Where several texts start at the same place, the first of the
/// list counts.
#[derive(Clone, Debug, Default)]
pub struct Substitutions {
    rules: Vec<Substitution>,
    media_types: Vec<Box<str>>,
}

impl Substitutions {
    /// Replaces texts in answers of these media types; `text/html` if there are none.
    pub fn new(rules: Vec<Substitution>, media_types: Vec<Box<str>>) -> Self {
        let rules = rules
            .into_iter()
            .filter(|rule| !rule.from.is_empty())
            .collect();
        let media_types = match media_types.is_empty() {
            true => vec!["text/html".into()],
            false => media_types,
        };
        Self { rules, media_types }
    }

    /// Whether nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Replaces the texts of an answer, if it is of the right kind and not compressed.
    pub(super) fn apply(&self, response: &mut Response) {
        if self.is_empty() || !self.is_meant(response.headers()) {
            return;
        }
        let headers = response.headers_mut();
        for name in [
            "content-length",
            "accept-ranges",
            "content-md5",
            "content-digest",
            "etag",
        ] {
            headers.remove(name);
        }
        let source = response.take_body();
        *response.body_mut() = Body::stream(Substituting {
            source,
            rules: self.rules.clone(),
            kept: BytesMut::new(),
            tail: None,
        });
    }

    fn is_meant(&self, headers: &Headers) -> bool {
        let media_type = headers.get_str("content-type").unwrap_or("");
        let media_type = media_type.split(';').next().unwrap_or("").trim();
        self.media_types
            .iter()
            .any(|meant| &**meant == "*" || meant.eq_ignore_ascii_case(media_type))
            && !headers.contains("content-encoding")
            && !headers.contains("content-range")
    }
}

/// Content in which texts are replaced.
struct Substituting {
    source: Body,
    rules: Vec<Substitution>,
    /// What may be the start of a text whose end has not come.
    kept: BytesMut,
    /// What follows once all content has passed.
    tail: Option<Option<Headers>>,
}

impl Substituting {
    /// Replaces what is whole in `kept`; at the end of the content that is everything.
    fn advance(&mut self, at_end: bool) -> Bytes {
        let mut made = BytesMut::with_capacity(self.kept.len());
        let longest = self
            .rules
            .iter()
            .map(|rule| rule.from.len())
            .max()
            .unwrap_or(0);
        let mut at = 0;
        let mut copied = 0;
        while let Some(rest) = self.kept.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(rule) = self.rules.iter().find(|rule| rest.starts_with(&rule.from)) {
                made.extend_from_slice(self.kept.get(copied..at).unwrap_or_default());
                made.extend_from_slice(&rule.to);
                at = at.saturating_add(rule.from.len());
                copied = at;
                continue;
            }
            let may_become_one = !at_end
                && rest.len() < longest
                && self.rules.iter().any(|rule| rule.from.starts_with(rest));
            if may_become_one {
                break;
            }
            // On to where any of the texts could start.
            let next = rest.get(1..).unwrap_or_default();
            let starts = self.rules.iter().filter_map(|rule| rule.from.first());
            let skip = starts
                .filter_map(|byte| memchr::memchr(*byte, next))
                .min()
                .unwrap_or(next.len());
            at = at.saturating_add(1).saturating_add(skip);
        }
        made.extend_from_slice(self.kept.get(copied..at).unwrap_or_default());
        let _ = self.kept.split_to(at.min(self.kept.len()));
        made.freeze()
    }
}

impl BodyStream for Substituting {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if let Some(tail) = &mut self.tail {
                return Poll::Ready(tail.take().map(|lines| Ok(Frame::Trailers(lines))));
            }
            let made = match ready!(self.source.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) => {
                    self.kept.extend_from_slice(&bytes);
                    self.advance(false)
                }
                Some(Ok(Frame::File(_))) => {
                    let error = "content from a file cannot be searched on its way";
                    return Poll::Ready(Some(Err(BodyError::Source(error.into()))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(Frame::Trailers(lines))) => {
                    self.tail = Some(Some(lines));
                    self.advance(true)
                }
                None => {
                    self.tail = Some(None);
                    self.advance(true)
                }
            };
            if !made.is_empty() {
                return Poll::Ready(Some(Ok(Frame::Data(made))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Pieces(Vec<Vec<u8>>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Poll::Ready(match self.0.is_empty() {
                true => None,
                false => Some(Ok(Frame::Data(self.0.remove(0).into()))),
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
        let mut response = Response::new(apus_http::StatusCode::OK);
        for (name, value) in [("content-type", "text/html"), ("etag", "\"x\"")] {
            response.headers_mut().try_insert(name, value).unwrap();
        }
        *response.body_mut() = Body::stream(Pieces(pieces));
        substitutions(rules).apply(&mut response);
        assert!(!response.headers().contains("etag"));
        let mut made = Vec::new();
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(Frame::Data(bytes)))) = response.body_mut().poll_frame(cx) {
            made.extend_from_slice(&bytes);
        }
        String::from_utf8(made).unwrap()
    }

    #[test]
    fn replaces_texts_that_are_cut_in_two() {
        let rules = [
            ("http://internal", "https://example"),
            ("</head>", "<x></head>"),
        ];
        let text = "<a href=http://internal/a></head>http://intern http://internal";
        let made = "<a href=https://example/a><x></head>http://intern https://example";
        for size in 1..text.len() {
            let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(pass(&rules, pieces), made, "in pieces of {size}");
        }
    }

    #[test]
    fn leaves_other_kinds_and_compressed_content_alone() {
        for (name, value) in [
            ("content-type", "image/png"),
            ("content-encoding", "gzip"),
            ("content-range", "bytes 0-1/9"),
        ] {
            let mut response = Response::text(apus_http::StatusCode::OK, "a");
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
