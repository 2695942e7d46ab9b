//! Preconditions of requests (RFC 9110 section 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;

use super::entity_tag::{EntityTag, EntityTags};
use crate::Headers;

/// The validators of the representation that would be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validators<'a> {
    /// Its `ETag`.
    pub entity_tag: Option<EntityTag<'a>>,
    /// Its `Last-Modified`. Parts of a second do not count.
    pub last_modified: Option<SystemTime>,
}

/// The decision of the preconditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The request is performed.
    Proceed,
    /// The client has this version: 304.
    NotModified,
    /// The request is not performed: 412.
    Failed,
}

impl Validators<'_> {
    /// Evaluates all preconditions except `If-Range`, in the order of RFC 9110 section 13.2.2.
    pub fn evaluate(&self, method: &Method, headers: &Headers) -> Precondition {
        let only_if = if headers.contains("if-match") {
            self.matches(headers, "if-match", |tag, own| tag.strong_eq(own))
        } else {
            self.modified_since(headers, "if-unmodified-since") != Some(true)
        };
        if !only_if {
            return Precondition::Failed;
        }
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        if !self.has_client_current(headers, is_read) {
            Precondition::Proceed
        } else if is_read {
            Precondition::NotModified
        } else {
            Precondition::Failed
        }
    }

    /// Whether a cache that would respond to a GET or HEAD request with this version responds with 304
    /// (RFC 9111 section 4.3.2). Only origins evaluate `If-Match` and `If-Unmodified-Since` (RFC 9110
    /// section 13.1.1).
    pub fn is_not_modified(&self, headers: &Headers) -> bool {
        self.has_client_current(headers, true)
    }

    /// Whether the client has this version, by `If-None-Match`, or else by `If-Modified-Since` if the
    /// method is GET or HEAD.
    fn has_client_current(&self, headers: &Headers, is_read: bool) -> bool {
        if headers.contains("if-none-match") {
            return self.matches(headers, "if-none-match", |tag, own| tag.weak_eq(own));
        }
        is_read && self.modified_since(headers, "if-modified-since") == Some(false)
    }

    /// Whether `Range` applies: there is no `If-Range`, or it names this version (RFC 9110 section
    /// 13.1.5).
    pub fn allow_range(&self, headers: &Headers) -> bool {
        let mut lines = headers.get_all("if-range");
        let Some(value) = lines.next() else {
            return true;
        };
        if lines.next().is_some() {
            return false;
        }
        match EntityTag::parse(value) {
            Some(tag) => self.entity_tag.is_some_and(|own| own.strong_eq(&tag)),
            None => date(value).is_some_and(|date| self.last_modified_seconds() == Some(date)),
        }
    }

    fn matches(
        &self,
        headers: &Headers,
        name: &str,
        eq: fn(&EntityTag<'_>, &EntityTag<'_>) -> bool,
    ) -> bool {
        headers
            .get_all(name)
            .any(|value| match EntityTags::parse(value) {
                EntityTags::Any => true,
                EntityTags::List(mut list) => self
                    .entity_tag
                    .is_some_and(|own| list.any(|tag| eq(&tag, &own))),
            })
    }

    /// Whether the representation changed after the date in the field; `None` if the field has no valid
    /// date, or the representation has none.
    fn modified_since(&self, headers: &Headers, name: &str) -> Option<bool> {
        let mut lines = headers.get_all(name);
        let date = date(lines.next()?)?;
        if lines.next().is_some() {
            return None;
        }
        Some(self.last_modified_seconds()? > date)
    }

    fn last_modified_seconds(&self) -> Option<Duration> {
        let since = self.last_modified?.duration_since(UNIX_EPOCH).ok()?;
        Some(Duration::from_secs(since.as_secs()))
    }
}

/// An HTTP date (RFC 9110 section 5.6.7) as the time since 1970.
fn date(value: &[u8]) -> Option<Duration> {
    super::http_date(value)?.duration_since(UNIX_EPOCH).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDER: &str = "Sat, 29 Oct 1994 19:43:30 GMT";
    const SAME: &str = "Sat, 29 Oct 1994 19:43:31 GMT";
    const NEWER: &str = "Sat, 29 Oct 1994 19:43:32 GMT";

    fn validators() -> Validators<'static> {
        Validators {
            entity_tag: EntityTag::parse(b"\"v1\""),
            last_modified: Some(
                super::super::http_date(SAME.as_bytes()).unwrap() + Duration::from_millis(700),
            ),
        }
    }

    fn headers(lines: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in lines {
            headers.try_append(name, value).unwrap();
        }
        headers
    }

    #[test]
    fn evaluates_in_the_order_of_section_13_2_2() {
        use Precondition::{Failed, NotModified, Proceed};
        for (lines, decision) in [
            (&[][..], Proceed),
            (&[("if-match", "\"v1\"")], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "W/\"v1\"")], Failed),
            (&[("if-match", "\"v0\", \"v2\"")], Failed),
            (&[("if-match", "\"v0\""), ("if-match", "\"v1\"")], Proceed),
            // If-Match takes precedence over If-Unmodified-Since.
            (
                &[("if-match", "\"v1\""), ("if-unmodified-since", OLDER)],
                Proceed,
            ),
            (&[("if-unmodified-since", OLDER)], Failed),
            (&[("if-unmodified-since", SAME)], Proceed),
            (&[("if-unmodified-since", "yesterday")], Proceed),
            (&[("if-none-match", "\"v0\", W/\"v1\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"v0\"")], Proceed),
            // If-None-Match takes precedence over If-Modified-Since.
            (
                &[("if-none-match", "\"v0\""), ("if-modified-since", NEWER)],
                Proceed,
            ),
            (&[("if-modified-since", OLDER)], Proceed),
            (&[("if-modified-since", SAME)], NotModified),
            (&[("if-modified-since", NEWER)], NotModified),
            (&[("if-modified-since", "")], Proceed),
            (
                &[("if-match", "\"v0\""), ("if-none-match", "\"v1\"")],
                Failed,
            ),
        ] {
            assert_eq!(
                validators().evaluate(&Method::GET, &headers(lines)),
                decision,
                "{lines:?}"
            );
        }
        let none_match = headers(&[("if-none-match", "\"v1\"")]);
        assert_eq!(validators().evaluate(&Method::PUT, &none_match), Failed);
    }

    #[test]
    fn a_range_applies_only_to_the_same_version() {
        for (value, allowed) in [
            ("\"v1\"", true),
            ("W/\"v1\"", false),
            ("\"v2\"", false),
            (SAME, true),
            (OLDER, false),
            (NEWER, false),
            ("", false),
            ("v1", false),
        ] {
            assert_eq!(
                validators().allow_range(&headers(&[("if-range", value)])),
                allowed,
                "{value}"
            );
        }
        assert!(validators().allow_range(&Headers::new()));
    }
}
