//! `LocalPath`: a path of this site, as the parameter `next` of a log-in.

use std::fmt;

use apus_handler::Redirect;

/// A path of this site to redirect to. A text of the client that leads to another site, as `//evil.example`, is not one: a
/// log-in that redirects to it would send visitors to a copy of itself (open redirect).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPath(String);

impl LocalPath {
    /// The path in a text of the client, with or without a query; `None` if it may lead elsewhere.
    ///
    /// ```
    /// use apus_account::LocalPath;
    ///
    /// assert!(LocalPath::parse("/orders?page=2").is_some());
    /// for text in ["//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example", "orders"] {
    ///     assert!(LocalPath::parse(text).is_none());
    /// }
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        // Browsers read `\` as `/`, and remove tabs and line ends (URL standard section 4.4).
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
        let rest = text.strip_prefix('/')?;
        (!rest.starts_with('/') && rest.bytes().all(is_plain)).then(|| Self(text.to_owned()))
    }

    /// The path in a text of the client, or another one.
    pub fn parse_or(text: Option<&str>, default: &str) -> Self {
        text.and_then(Self::parse)
            .unwrap_or_else(|| Self(default.to_owned()))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A redirect to it.
    pub fn redirect(self) -> Redirect {
        Redirect::to(self.0)
    }
}

impl fmt::Display for LocalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_this_site_begins_with_one_slash() {
        for (text, is_local) in [
            ("", false),
            ("/", true),
            ("//", false),
            ("/a//b", true),
            ("/a?next=//evil.example", true),
            ("/\\evil.example", false),
            ("/a\\b", false),
            ("/a b", false),
            ("/a\r\nSet-Cookie: b", false),
            ("/\u{fc}", false),
            ("/%5cevil.example", true),
            ("javascript:alert(1)", false),
        ] {
            assert_eq!(LocalPath::parse(text).is_some(), is_local, "{text:?}");
            let path = LocalPath::parse_or(Some(text), "/home");
            assert_eq!(path.as_str(), if is_local { text } else { "/home" });
        }
        assert_eq!(LocalPath::parse_or(None, "/home").as_str(), "/home");
    }
}
