//! The format of the body of an error response, and which one a client prefers (RFC 9110 section 12.5.1).

use smallvec::SmallVec;

use crate::fields::Quality;
use crate::fields::accept::media_ranges;
use crate::{Headers, KnownField};

/// The format of the body of an error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// An HTML page for people.
    Html,
    /// Problem details for programs.
    Json,
    /// A line of text.
    Text,
}

impl ErrorFormat {
    /// The format that `Accept` prefers; `None` if it names none of them.
    pub(crate) fn preferred(headers: &Headers) -> Option<Self> {
        // Most programs send no `Accept`, or only this range, which prefers nothing.
        let mut lines = headers.values_of(KnownField::Accept);
        if matches!((lines.next(), lines.next()), (None | Some(b"*/*"), None)) {
            return None;
        }
        let (mut best, mut preferred) = (Quality::NONE, None);
        for range in media_ranges(headers) {
            if range.quality > best
                && let Some(format) = Self::of_media_range(range.name)
            {
                (best, preferred) = (range.quality, Some(format));
            }
            // The first range of several with the same quality counts, and none has a higher one. Browsers name HTML
            // first when they load a page, so that the rest of a long line is not read.
            if best == Quality::FULL {
                break;
            }
        }
        preferred
    }

    fn of_media_range(name: &[u8]) -> Option<Self> {
        if !matches!(name.first(), Some(b'a' | b'A' | b't' | b'T')) {
            return None;
        }
        let lower: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
        match &*lower {
            b"text/html" | b"application/xhtml+xml" | b"text/*" => Some(Self::Html),
            b"application/json" | b"application/*" => Some(Self::Json),
            b"text/plain" => Some(Self::Text),
            name if name.starts_with(b"application/") && name.ends_with(b"+json") => {
                Some(Self::Json)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred(lines: &[&str]) -> Option<ErrorFormat> {
        let mut headers = Headers::new();
        for line in lines {
            headers.try_append("accept", line).unwrap();
        }
        ErrorFormat::preferred(&headers)
    }

    #[test]
    fn takes_the_format_that_the_client_prefers() {
        for (accept, format) in [
            ("", None),
            ("*/*", None),
            ("text/html", Some(ErrorFormat::Html)),
            ("TEXT/HTML", Some(ErrorFormat::Html)),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Some(ErrorFormat::Html),
            ),
            ("application/json", Some(ErrorFormat::Json)),
            ("application/json, text/plain, */*", Some(ErrorFormat::Json)),
            ("*/*, application/json", Some(ErrorFormat::Json)),
            ("application/problem+json", Some(ErrorFormat::Json)),
            (
                "application/json;q=0.5, text/html;q=0.8",
                Some(ErrorFormat::Html),
            ),
            (
                "application/json;q=0.999, text/html",
                Some(ErrorFormat::Html),
            ),
            (
                "text/html;q=0.8, application/json;q=0.8",
                Some(ErrorFormat::Html),
            ),
            ("text/html;q=0, application/json", Some(ErrorFormat::Json)),
            ("text/html;q=x", None),
            ("application/json; charset=utf-8", Some(ErrorFormat::Json)),
            ("text/plain", Some(ErrorFormat::Text)),
            ("image/avif,image/webp,*/*;q=0.8", None),
            ("image/png, text/plain;q=0.1", Some(ErrorFormat::Text)),
            ("application/octet-stream, text/css", None),
        ] {
            assert_eq!(preferred(&[accept]), format, "{accept}");
        }
        assert_eq!(preferred(&[]), None);
    }

    #[test]
    fn several_lines_of_accept_are_one_list() {
        let html = Some(ErrorFormat::Html);
        assert_eq!(preferred(&["application/json;q=0.5", "text/html"]), html);
        assert_eq!(preferred(&["*/*", "text/html"]), html);
        assert_eq!(preferred(&["", "*/*;q=0.1"]), None);
    }
}
