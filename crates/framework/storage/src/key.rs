//! `StorageKey`: the name of an object.

use std::fmt;
use std::str::FromStr;

use apus_handler::HttpError;
use apus_http::StatusCode;
use apus_tokens::{Hexadecimal, random_bytes};

/// The name of an object: segments between slashes, as `invoices/2026/7.pdf`.
///
/// It can only hold names that are the same in a folder and in an object store, and that lead nowhere else: no segment is
/// empty, begins with a dot, has a control character or a backslash, or is longer than 200 bytes; and the whole has at most 800.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageKey(Box<str>);

/// The most bytes of a key, and of one segment. Object stores allow 1024, file systems 255.
const LONGEST: usize = 800;
const LONGEST_SEGMENT: usize = 200;

impl StorageKey {
    /// A new random key, with an extension: for files whose name is of no use, such as uploads of clients.
    pub fn random(prefix: &str, extension: &str) -> Result<Self, InvalidKey> {
        let name =
            random_bytes::<16>().map_err(|_| InvalidKey("the system has no random bytes"))?;
        let name = Hexadecimal(&name);
        let slash = if prefix.is_empty() { "" } else { "/" };
        let dot = if extension.is_empty() { "" } else { "." };
        format!("{prefix}{slash}{name}{dot}{extension}").parse()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders, and the name in the last of them.
    pub(crate) fn split(&self) -> (impl Iterator<Item = &str>, &str) {
        let (folders, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (folders.split('/').filter(|one| !one.is_empty()), name)
    }

    /// The media type of the extension.
    pub(crate) fn media_type(&self) -> String {
        let extension = apus_compress::media_type::extension(self.0.as_bytes());
        let media_type = apus_compress::media_type::of_extension(&extension);
        if apus_compress::media_type::has_charset(media_type) {
            format!("{media_type}; charset=utf-8")
        } else {
            media_type.to_owned()
        }
    }
}

impl FromStr for StorageKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(InvalidKey("a key has from 1 to 800 bytes"));
        }
        for segment in text.split('/') {
            let problem = match segment {
                "" => "a segment of the key is empty",
                _ if segment.starts_with('.') => "a segment of the key begins with a dot",
                _ if segment.len() > LONGEST_SEGMENT => {
                    "a segment of the key has more than 200 bytes"
                }
                _ if segment.contains(|c: char| c.is_control() || c == '\\') => {
                    "the key has a control character or a backslash"
                }
                _ => continue,
            };
            return Err(InvalidKey(problem));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no key. It is a 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKey(&'static str);

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidKey {}

impl HttpError for InvalidKey {
    fn status(&self) -> StatusCode {
        StatusCode::BAD_REQUEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_nowhere_else() {
        for text in ["a", "a/b.txt", "ä/ö ü", "a..b/c..", "con", "%2e%2e/x"] {
            assert_eq!(text.parse::<StorageKey>().unwrap().as_str(), text);
        }
        let long = "x".repeat(201);
        let longest = ["y/"; 400].concat() + "y";
        for text in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/./b",
            ".htaccess",
            "a/.b",
            "a\\..\\b",
            "a\0",
            "a\nb",
            &long,
            &longest,
        ] {
            assert!(text.parse::<StorageKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn random_keys_differ() {
        let [one, other] = [(); 2].map(|()| StorageKey::random("a/b", "png").unwrap());
        assert_ne!(one, other);
        assert!(one.as_str().starts_with("a/b/") && one.as_str().ends_with(".png"));
        assert!(StorageKey::random("..", "png").is_err());
        assert!(StorageKey::random("", "p/../../x").is_err());
    }

    #[test]
    fn a_key_has_at_most_800_bytes_and_a_segment_200() {
        for (length, is_valid) in [(199, true), (200, true), (201, false)] {
            let text = format!("a/{}/b", "x".repeat(length));
            assert_eq!(text.parse::<StorageKey>().is_ok(), is_valid, "{length}");
        }
        // A letter of two bytes counts as two.
        assert!("ü".repeat(100).parse::<StorageKey>().is_ok());
        assert!("ü".repeat(101).parse::<StorageKey>().is_err());
        for (length, is_valid) in [(799, true), (800, true), (801, false)] {
            let mut text = "x/".repeat(length / 2 - 1);
            text.push_str(&"y".repeat(length - text.len()));
            assert_eq!(text.len(), length);
            assert_eq!(text.parse::<StorageKey>().is_ok(), is_valid, "{length}");
        }
    }

    #[test]
    fn a_key_has_folders_a_name_and_a_media_type() {
        for (text, folders, name, media_type) in [
            ("a.txt", &[][..], "a.txt", "text/plain; charset=utf-8"),
            ("a/b.PNG", &["a"], "b.PNG", "image/png"),
            ("a.d/b/c", &["a.d", "b"], "c", "application/octet-stream"),
        ] {
            let key: StorageKey = text.parse().unwrap();
            let (found, last) = key.split();
            assert_eq!(found.collect::<Vec<_>>(), folders);
            assert_eq!((last, &*key.media_type()), (name, media_type));
        }
    }
}
