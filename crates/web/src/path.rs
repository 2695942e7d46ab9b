//! The one normal form of a request path (RFC 3986 section 6.2.2), which locations and routes match
//! and files are looked up by.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use apus_http::Request;

/// The normal form of a path as it was sent: percent-decoded once, `//` as one slash, dot segments
/// resolved.
///
/// The result starts with `/` and has no NUL or other control byte, no empty segment, no `.` and no
/// `..` segment. It may hold any other bytes, also such that are not UTF-8. A path that is in this
/// form already is borrowed.
///
/// # Errors
/// What has no normal form that everybody would agree on; the answer to it is 400.
pub fn normalise(raw: &str) -> Result<Cow<'_, [u8]>, InvalidPath> {
    resolve(raw, EncodedSlash::Refused)
}

/// As [`normalise`], but an encoded slash is a slash: for finding what is responsible for a path that
/// may be sent on as it is. What an application takes `%2F` for is its own affair; rules about what it
/// may mean have to hold for it all the same.
pub(crate) fn matched(raw: &str) -> Result<Cow<'_, [u8]>, InvalidPath> {
    resolve(raw, EncodedSlash::Slash)
}

/// What `%2F` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodedSlash {
    Refused,
    Slash,
}

fn resolve(raw: &str, encoded_slash: EncodedSlash) -> Result<Cow<'_, [u8]>, InvalidPath> {
    let bytes = raw.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err(InvalidPath::NotAbsolute);
    }
    if is_normal(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut normal = Vec::with_capacity(bytes.len());
    let decoded = decode(bytes, encoded_slash)?;
    // The first slash stands before the first segment.
    let segments = decoded.get(1..).unwrap_or_default();
    let mut segments = segments.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"" | b"." if is_last => normal.push(b'/'),
            b"" | b"." => {}
            b".." => {
                let parent = normal.iter().rposition(|byte| *byte == b'/');
                normal.truncate(parent.ok_or(InvalidPath::AboveRoot)?);
                if is_last {
                    normal.push(b'/');
                }
            }
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
            }
        }
    }
    Ok(Cow::Owned(normal))
}

/// The path as it is sent on to another server: as it was sent, unless it had segments to resolve or
/// to collapse, in which that server might see something else than locations did.
///
/// # Errors
/// As [`normalise`].
pub(crate) fn sent_on(raw: &str) -> Result<Cow<'_, str>, InvalidPath> {
    match matched(raw)? {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(raw)),
        Cow::Owned(normal) if normal == decode(raw.as_bytes(), EncodedSlash::Slash)? => {
            Ok(Cow::Borrowed(raw))
        }
        Cow::Owned(normal) => Ok(Cow::Owned(encode(&normal))),
    }
}

/// Whether nothing is to decode, collapse or resolve.
fn is_normal(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'%' | 0..=0x1f | 0x7f => return false,
            b'/' => {
                if matches!(
                    after,
                    [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]
                ) {
                    return false;
                }
            }
            _ => {}
        }
        rest = after;
    }
    true
}

fn decode(path: &[u8], encoded_slash: EncodedSlash) -> Result<Vec<u8>, InvalidPath> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let byte = if *first == b'%' {
            let [high, low, after @ ..] = after else {
                return Err(InvalidPath::Encoding);
            };
            rest = after;
            match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(InvalidPath::Encoding),
            }
        } else {
            rest = after;
            *first
        };
        match byte {
            0..=0x1f | 0x7f => return Err(InvalidPath::Control),
            b'/' if *first == b'%' && encoded_slash == EncodedSlash::Refused => {
                return Err(InvalidPath::EncodedSlash);
            }
            byte => decoded.push(byte),
        }
    }
    Ok(decoded)
}

pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// Writes `path`, which is not encoded, as the path of a URI (RFC 3986 section 3.3).
pub fn encode(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    encode_onto(&mut encoded, path);
    encoded
}

/// As [`encode`], behind what `encoded` holds.
pub(crate) fn encode_onto(encoded: &mut String, path: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in path {
        if is_path_byte(*byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                let digit = DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0');
                encoded.push(char::from(digit));
            }
        }
    }
}

/// `pchar` and the slash, but for `%`.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
                | b'/'
        )
}

/// Why a path has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPath {
    /// It does not start with a slash: the asterisk or the authority form of a target.
    NotAbsolute,
    /// A `%` without two hexadecimal digits: a faulty client, or an attempt to be read in two ways.
    Encoding,
    /// A NUL or another control byte, encoded: an attack on what reads the path next.
    Control,
    /// `%2F`: a slash for some readers and a part of a name for others.
    EncodedSlash,
    /// `..` out of the root: a traversal attack.
    AboveRoot,
}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "the path does not start with a slash",
            Self::Encoding => "a % in the path is not followed by two hexadecimal digits",
            Self::Control => "the path holds a control character",
            Self::EncodedSlash => "the path holds an encoded slash",
            Self::AboveRoot => "the path leads out of the root",
        })
    }
}

impl std::error::Error for InvalidPath {}

/// What was taken off the front of the path before the service below saw it; an extension of the
/// request, set where a service is mounted under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt(pub Arc<str>);

/// The percent-encoded path under which the client knows this service: empty, or `/prefix` without a
/// slash at its end. What a service redirects to within itself starts with it.
pub fn mounted_at(request: &Request) -> &str {
    request
        .extensions()
        .get::<MountedAt>()
        .map_or("", |mounted| &mounted.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_sent_on_as_it_came_unless_others_may_resolve_it_differently() {
        for same in ["/a%20b/%C3%A4", "/a/b", "/%7Euser/..x", "/a%2Fb"] {
            assert_eq!(sent_on(same).unwrap(), same);
        }
        for (sent, resolved) in [
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b%20c", "/b%20c"),
            ("//a//b", "/a/b"),
            ("/a%2f..%2Fb", "/b"),
            ("/a/./b/", "/a/b/"),
        ] {
            assert_eq!(sent_on(sent).unwrap(), resolved);
        }
    }

    #[test]
    fn borrows_what_is_normal() {
        for path in [
            "/",
            "/a/b.html",
            "/.well-known/x",
            "/a/..b",
            "/a/b/",
            "/...",
            "/a~b@c",
        ] {
            assert!(
                matches!(normalise(path), Ok(Cow::Borrowed(same)) if same == path.as_bytes()),
                "{path}"
            );
        }
    }

    #[test]
    fn decodes_once_and_resolves_dot_segments() {
        for (raw, normal) in [
            ("//", "/"),
            ("/a//b///c", "/a/b/c"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/a/b/%2e%2E/c", "/a/c"),
            ("/a//../b", "/b"),
            ("/%61%20b", "/a b"),
            ("/%252e%252e/", "/%2e%2e/"),
            ("/a%5C..%5Cb", "/a\\..\\b"),
            ("/caf%C3%A9", "/café"),
        ] {
            assert_eq!(normalise(raw).unwrap().as_ref(), normal.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn keeps_overlong_utf8_as_bytes() {
        assert_eq!(
            normalise("/%c0%ae%c0%ae/").unwrap().as_ref(),
            b"/\xc0\xae\xc0\xae/"
        );
    }

    #[test]
    fn refuses_what_can_be_read_in_two_ways() {
        for (raw, why) in [
            ("", InvalidPath::NotAbsolute),
            ("*", InvalidPath::NotAbsolute),
            ("/..", InvalidPath::AboveRoot),
            ("/a/../../b", InvalidPath::AboveRoot),
            ("/%2e%2e/b", InvalidPath::AboveRoot),
            ("/a%2fb", InvalidPath::EncodedSlash),
            ("/a%00", InvalidPath::Control),
            ("/a%0a", InvalidPath::Control),
            ("/%", InvalidPath::Encoding),
            ("/%4", InvalidPath::Encoding),
            ("/%zz", InvalidPath::Encoding),
            ("/%+1", InvalidPath::Encoding),
        ] {
            assert_eq!(normalise(raw), Err(why), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn normal_form_is_safe_and_stable(raw in "/[a./%25eEfF0-]{0,24}") {
            if let Ok(normal) = normalise(&raw) {
                prop_assert_eq!(normal.first(), Some(&b'/'));
                let mut segments: Vec<_> = normal.split(|byte| *byte == b'/').skip(1).collect();
                segments.pop_if(|last| last.is_empty());
                for segment in segments {
                    prop_assert!(!matches!(segment, b"" | b"." | b".."), "{raw}");
                }
                let encoded = encode(&normal);
                let again = normalise(&encoded).unwrap();
                prop_assert_eq!(again, normal);
            }
        }
    }
}
