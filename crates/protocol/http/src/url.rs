//! The parts of a URL with an authority (RFC 3986 section 3).

/// The parts of a URL, as they were written. None of them is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlParts<'a> {
    /// The text before `://`.
    pub scheme: &'a str,
    /// The text up to the first `/`, `?` or `#` after the scheme.
    pub authority: &'a str,
    /// The path, the query and the fragment: empty, or a text that begins with `/`, `?` or `#`.
    pub rest: &'a str,
}

impl<'a> UrlParts<'a> {
    /// Splits a URL; `None` if it has no `://`.
    pub fn split(url: &'a str) -> Option<Self> {
        let (scheme, rest) = split_scheme(url)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end)?;
        Some(Self {
            scheme,
            authority,
            rest,
        })
    }
}

/// Splits a URL into its scheme and the text after `://`; `None` if it has no `://`.
pub fn split_scheme(url: &str) -> Option<(&str, &str)> {
    url.split_once("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_scheme_authority_and_rest() {
        for (url, scheme, authority, rest) in [
            ("http://a", "http", "a", ""),
            ("HTTPS://A:1/b?c#d", "HTTPS", "A:1", "/b?c#d"),
            ("http://[::1]?b/c", "http", "[::1]", "?b/c"),
            ("http://a#b?c", "http", "a", "#b?c"),
            ("http:///a://b", "http", "", "/a://b"),
            ("://", "", "", ""),
        ] {
            let expected = UrlParts {
                scheme,
                authority,
                rest,
            };
            assert_eq!(UrlParts::split(url), Some(expected), "{url}");
        }
        for text in ["", "/a", "a.example/b", "http:/a", "mailto:a@b"] {
            assert_eq!(UrlParts::split(text), None, "{text}");
        }
    }
}
