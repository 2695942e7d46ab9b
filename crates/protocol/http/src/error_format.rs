//! The format of the body of an error response, and which one a client prefers (RFC 9110 section 12.5.1).

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
        // A range without parameters has the highest quality, and the first one with it counts. Browsers begin with `text/html`:
        // reading their line to its end took 830 instructions of each request, most of which are no errors.
        let first = headers.values_of(KnownField::Accept).next();
        let first = first.and_then(|line| line.split(|byte| *byte == b',').next());
        let first = first.filter(|range| !range.contains(&b';'));
        if let Some(format) = first.and_then(|range| Self::of_media_range(range.trim_ascii())) {
            return Some(format);
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

    /// The format of a media range in any case, without its parameters.
    fn of_media_range(name: &[u8]) -> Option<Self> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.first()? {
            b't' | b'T' if is(b"text/html") || is(b"text/*") => Some(Self::Html),
            b't' | b'T' if is(b"text/plain") => Some(Self::Text),
            b'a' | b'A' if is(b"application/xhtml+xml") => Some(Self::Html),
            b'a' | b'A' if is(b"application/json") || is(b"application/*") => Some(Self::Json),
            b'a' | b'A' => {
                let subtype = name.get(APPLICATION.len()..)?;
                let suffix = subtype.get(subtype.len().checked_sub(JSON_SUFFIX.len())?..)?;
                let is_json = name
                    .get(..APPLICATION.len())?
                    .eq_ignore_ascii_case(APPLICATION)
                    && suffix.eq_ignore_ascii_case(JSON_SUFFIX);
                is_json.then_some(Self::Json)
            }
            _ => None,
        }
    }
}

const APPLICATION: &[u8] = b"application/";
/// Of media types whose syntax is JSON (RFC 6839 section 3.1).
const JSON_SUFFIX: &[u8] = b"+json";

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
            ("application/x;y=+json", None),
            ("application/x;y=\"a,text/html\"", None),
            (" text/html , application/json", Some(ErrorFormat::Html)),
            ("Application/Problem+JSON", Some(ErrorFormat::Json)),
            ("application/+json", Some(ErrorFormat::Json)),
            ("json", None),
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
