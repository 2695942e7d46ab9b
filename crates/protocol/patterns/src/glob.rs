//! Glob patterns for paths, such as `*.css` and `/assets/**`.

use std::fmt;

use regex::bytes::Regex;

use crate::hashed;

/// A glob pattern for the path of a file below the root.
///
/// `*` matches any part of a name, `**` any part of a path, `?` one byte of a name, and `{a,b}` either
/// alternative. A pattern without a slash matches the name of a file in any folder. A pattern with a slash
/// matches the complete path, which starts with a slash.
#[derive(Clone, Debug)]
pub struct Glob {
    regex: Regex,
    is_hashed: bool,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A brace is not closed, or opened within another.
    pub fn parse(pattern: &str) -> Result<Self, InvalidGlob> {
        let mut regex = String::from(r"(?s-u)\A");
        if !pattern.contains('/') {
            regex.push_str("(?:.*/)?");
        } else if !pattern.starts_with('/') {
            regex.push('/');
        }
        let mut in_braces = false;
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '*' if characters.next_if_eq(&'*').is_some() => regex.push_str(".*"),
                '*' => regex.push_str("[^/]*"),
                '?' => regex.push_str("[^/]"),
                '{' if in_braces => return Err(InvalidGlob),
                '{' => {
                    in_braces = true;
                    regex.push_str("(?:");
                }
                '}' if in_braces => {
                    in_braces = false;
                    regex.push(')');
                }
                ',' if in_braces => regex.push('|'),
                other => {
                    let mut bytes = [0; 4];
                    for byte in other.encode_utf8(&mut bytes).bytes() {
                        regex.push_str(&format!(r"\x{byte:02x}"));
                    }
                }
            }
        }
        if in_braces {
            return Err(InvalidGlob);
        }
        regex.push_str(r"\z");
        let regex = Regex::new(&regex).map_err(|_| InvalidGlob)?;
        Ok(Self {
            regex,
            is_hashed: false,
        })
    }

    /// Restricts the pattern to files with a content hash in their names, as build tools write it: a part
    /// between `.` or `-` of at least eight hexadecimal digits, or of base 32 or 64 digits with an upper-case
    /// letter, that is not a word, a date or a version.
    #[must_use]
    pub fn hashed(self) -> Self {
        Self {
            is_hashed: true,
            ..self
        }
    }

    /// Whether the pattern matches a path.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.regex.is_match(path) && (!self.is_hashed || hashed::has_hash(path))
    }
}

/// A pattern with unbalanced or nested braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidGlob;

impl fmt::Display for InvalidGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("in a pattern each { needs a }, and braces cannot be nested")
    }
}

impl std::error::Error for InvalidGlob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_names_and_paths() {
        for (pattern, path, matches) in [
            ("*.css", "/a/b.css", true),
            ("*.css", "/b.css", true),
            ("*.css", "/b.css/c", false),
            ("*.{js,css}", "/x.js", true),
            ("*.{js,css}", "/x.jss", false),
            ("/assets/*", "/assets/a", true),
            ("/assets/*", "/assets/a/b", false),
            ("/assets/**", "/assets/a/b", true),
            ("assets/**", "/assets/a/b", true),
            ("/a?.txt", "/ab.txt", true),
            ("/a?.txt", "/a/.txt", false),
            ("a.b", "/axb", false),
            ("é*", "/é.txt", true),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches(path.as_bytes()), matches, "{pattern} {path}");
        }
        assert!(Glob::parse("*.css").unwrap().matches(b"/\xff.css"));
        assert!(Glob::parse("{a").is_err());
        assert!(Glob::parse("{a{b}}").is_err());
    }
}
