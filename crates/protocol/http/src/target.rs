//! The request target in its four forms (RFC 9112 section 3.2).

use std::fmt;
use std::ops::Range;

use http::Method;

use crate::grammar::is_authority;
use crate::scan::visible_len;
use crate::url::UrlParts;

/// A request target of visible ASCII, with the positions of its parts.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    text: Box<str>,
    /// The length of the scheme of an absolute form, which starts at 0.
    scheme: u16,
    authority: (u16, u16),
    /// The start and the end of the path; the query follows after a `?`.
    path: (u16, u16),
}

impl Target {
    /// Parses the target of a request with this method.
    ///
    /// # Errors
    /// It is in none of the forms that the method allows, holds a byte that is not visible ASCII,
    /// or is longer than 65,535 bytes.
    pub fn parse(method: &Method, text: &str) -> Result<Self, InvalidTarget> {
        let len = u16::try_from(text.len()).map_err(|_| InvalidTarget)?;
        // A fragment is not part of any form.
        if visible_len(text.as_bytes(), b'#') < text.len() {
            return Err(InvalidTarget);
        }
        let whole = |text: &str, scheme, authority, path_start: u16| {
            let path = text.get(usize::from(path_start)..).unwrap_or("");
            let path_len = visible_len(path.as_bytes(), b'?');
            let path_end = path_start.saturating_add(u16::try_from(path_len).unwrap_or(0));
            Self {
                text: text.into(),
                scheme,
                authority,
                path: (path_start, path_end),
            }
        };
        if *method == Method::CONNECT {
            if !is_authority(text.as_bytes()) || !text.contains(':') {
                return Err(InvalidTarget);
            }
            return Ok(whole(text, 0, (0, len), len));
        }
        if text.starts_with('/') || (text == "*" && *method == Method::OPTIONS) {
            return Ok(whole(text, 0, (0, 0), 0));
        }
        let url = UrlParts::split(text).ok_or(InvalidTarget)?;
        let is_http = ["http", "https"]
            .iter()
            .any(|scheme| url.scheme.eq_ignore_ascii_case(scheme));
        if !is_http || !is_authority(url.authority.as_bytes()) {
            return Err(InvalidTarget);
        }
        let start = url.scheme.len().saturating_add("://".len());
        let end = start.saturating_add(url.authority.len());
        let narrow = |at: usize| u16::try_from(at).map_err(|_| InvalidTarget);
        let (scheme, start, path_start) = (narrow(url.scheme.len())?, narrow(start)?, narrow(end)?);
        let (before, path) = text.split_at_checked(end).ok_or(InvalidTarget)?;
        // An empty path is the same as `/` (RFC 9110 section 4.2.3), and origin-form has only that;
        // for OPTIONS it means the server as a whole, which is `*` (RFC 9112 section 3.2.4).
        let with_path;
        let text = if path.starts_with('/') {
            text
        } else {
            let is_server = path.is_empty() && *method == Method::OPTIONS;
            with_path = format!("{before}{}{path}", if is_server { '*' } else { '/' });
            u16::try_from(with_path.len()).map_err(|_| InvalidTarget)?;
            &with_path
        };
        Ok(whole(text, scheme, (start, path_start), path_start))
    }

    /// The target as it was received. An absolute form without a path gets `/`, or `*` if the method is
    /// OPTIONS.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme of an absolute form.
    pub fn scheme(&self) -> Option<&str> {
        Some(self.part((0, self.scheme))).filter(|scheme| !scheme.is_empty())
    }

    /// The authority of an absolute or authority form.
    pub fn authority(&self) -> Option<&str> {
        Some(self.part(self.authority)).filter(|authority| !authority.is_empty())
    }

    /// The percent-encoded path as it was sent: `/...`, `*` for the asterisk form, and empty for the
    /// authority form. An absolute form without a path has `/`, or `*` with OPTIONS.
    pub fn path(&self) -> &str {
        self.part(self.path)
    }

    /// The query without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.text
            .get(usize::from(self.path.1)..)
            .and_then(|rest| rest.strip_prefix('?'))
    }

    /// The path with the query, as in the origin form.
    pub fn path_and_query(&self) -> &str {
        self.text
            .get(usize::from(self.path.0)..)
            .unwrap_or_default()
    }

    fn part(&self, (start, end): (u16, u16)) -> &str {
        self.text
            .get(Range {
                start: start.into(),
                end: end.into(),
            })
            .unwrap_or("")
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The target is in none of the forms of RFC 9112 section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTarget;

impl fmt::Display for InvalidTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request target is /path, http://host/path, host:port for CONNECT, or *")
    }
}

impl std::error::Error for InvalidTarget {}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(text: &str) -> Target {
        Target::parse(&Method::GET, text).unwrap()
    }

    #[test]
    fn splits_the_four_forms() {
        let origin = get("/a/b?c=d?e");
        assert_eq!((origin.path(), origin.query()), ("/a/b", Some("c=d?e")));
        assert_eq!(origin.authority(), None);

        let absolute = get("http://Example.com:80?q");
        assert_eq!(absolute.authority(), Some("Example.com:80"));
        assert_eq!((absolute.path(), absolute.query()), ("/", Some("q")));
        // The origin form begins with a slash, even if the path is empty.
        assert_eq!(absolute.path_and_query(), "/?q");
        assert_eq!(get("http://a").path_and_query(), "/");
        assert_eq!(get("https://[::1]/x").authority(), Some("[::1]"));

        let authority = Target::parse(&Method::CONNECT, "example.com:443").unwrap();
        assert_eq!(
            (authority.authority(), authority.path()),
            (Some("example.com:443"), "")
        );

        let options = |text| Target::parse(&Method::OPTIONS, text).unwrap();
        assert_eq!(options("*").path(), "*");
        assert_eq!(options("http://a").path_and_query(), "*");
        assert_eq!(options("http://a").authority(), Some("a"));
        assert_eq!(options("http://a?q").path_and_query(), "/?q");
        assert_eq!(options("http://a/").path_and_query(), "/");
    }

    #[test]
    fn refuses_targets_in_no_form() {
        for text in [
            "",
            "*",
            "a",
            "a/b",
            "/a b",
            "/\u{e9}",
            "/a#b",
            "ftp://a/",
            "http://",
            "http:///",
            "http://a@b/",
            "http://a:b/",
            "http://a%62/",
            "http://a:99999/",
            "http://[::1/",
            "http://[x]/",
        ] {
            assert_eq!(
                Target::parse(&Method::GET, text),
                Err(InvalidTarget),
                "{text:?}"
            );
        }
        for text in ["/", "example.com", ":1", "http://a:1/", "a:1/"] {
            assert_eq!(
                Target::parse(&Method::CONNECT, text),
                Err(InvalidTarget),
                "{text:?}"
            );
        }
    }
}
