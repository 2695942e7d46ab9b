//! The normal form of a request path, decoded for matching and encoded for origins (RFC 3986 section 6.2.2).

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

use crate::percent;
use crate::scan::is_plain_path;

/// The normal form of a path: percent-decoded once, `//` as one slash, dot segments resolved.
///
/// The result starts with `/` and has no NUL or other control byte, no empty segment, no `.` and no
/// `..` segment. It may have any other bytes, including bytes that are not UTF-8. A path that is in this
/// form already is borrowed.
///
/// # Errors
/// Servers would disagree about the normal form; the response is 400.
pub fn normalise(raw: &str) -> Result<Cow<'_, [u8]>, InvalidPath> {
    match resolve(raw)? {
        None => Ok(Cow::Borrowed(raw.as_bytes())),
        Some(resolved) if resolved.has_encoded_slash => Err(InvalidPath::EncodedSlash),
        Some(resolved) => Ok(Cow::Owned(resolved.normal)),
    }
}

/// As [`normalise`], but an encoded slash is a slash. Locations and rules match this form of a path that is
/// forwarded encoded: an application may read `%2F` as a slash, so the rules for the resulting path have
/// to apply.
///
/// # Errors
/// As [`normalise`], except that an encoded slash is no error.
pub fn normalise_for_matching(raw: &str) -> Result<Cow<'_, [u8]>, InvalidPath> {
    Ok(match resolve(raw)? {
        None => Cow::Borrowed(raw.as_bytes()),
        Some(resolved) => Cow::Owned(resolved.normal),
    })
}

/// The encoded normal form, which is forwarded to another server: every segment as the client encoded it,
/// with `//` as one slash and dot segments resolved, because that server might resolve them in another way.
///
/// Encoded slashes stay as they are, also several in a row, unless the path has a dot segment: then an encoded
/// slash separates segments when they are resolved, and stays encoded if both segments are left. So the result
/// has the same normal form as the path ([`normalise_for_matching`]).
///
/// # Errors
/// As [`normalise`], except that an encoded slash is no error.
pub fn normalise_encoded(raw: &str) -> Result<Cow<'_, str>, InvalidPath> {
    Ok(match resolve(raw)? {
        None => Cow::Borrowed(raw),
        Some(resolved) => Cow::Owned(resolved.encoded),
    })
}

/// The rest of an encoded path after a prefix that is given decoded; `None` if the path does not begin with
/// the prefix. Several slashes of the path in a row, in any encoding, are one slash of the prefix.
pub fn strip_decoded_prefix<'a>(encoded: &'a str, prefix: &[u8]) -> Option<&'a str> {
    let mut rest = encoded.as_bytes();
    let mut last = None;
    for wanted in prefix {
        let (mut byte, mut after) = decode_first(rest).ok()??;
        while byte == b'/' && last == Some(b'/') && *wanted != b'/' {
            (byte, after) = decode_first(after).ok()??;
        }
        if byte != *wanted {
            return None;
        }
        last = Some(byte);
        rest = after;
    }
    encoded.get(encoded.len().checked_sub(rest.len())?..)
}

/// Checks a path that is forwarded to a server that may read more than [`normalise_for_matching`] does into it:
/// parameters behind `;`, which some servers remove, and `\`, which some take for a slash.
///
/// # Errors
/// A segment is a dot segment for such a server.
pub fn check_forwarded(encoded: &str) -> Result<(), InvalidPath> {
    if !encoded.contains([';', '\\', '%']) {
        return Ok(());
    }
    let decoded = decode(encoded)?;
    let is_separator = |byte: &u8| matches!(byte, b'/' | b'\\');
    let is_odd = |segment: &[u8]| matches!(without_parameters(segment), b"." | b"..");
    for segment in decoded.split(|byte| *byte == b'/') {
        let is_plain = matches!(segment, b"." | b"..");
        if !is_plain && segment.split(is_separator).any(is_odd) {
            return Err(InvalidPath::DotSegment);
        }
    }
    Ok(())
}

/// Checks a path that is forwarded as it was sent, to a server that may read it in another way than this one.
///
/// # Errors
/// The path is invalid ([`normalise_for_matching`]), has a dot segment in any encoding, or begins with `//`, behind
/// which some servers expect an authority.
pub fn check_raw(raw: &str) -> Result<(), InvalidPath> {
    resolve(raw)?;
    if has_dot_segment(raw)? || raw.starts_with("//") {
        return Err(InvalidPath::DotSegment);
    }
    check_forwarded(raw)
}

/// Whether a path has a segment `.` or `..`, in any encoding, between slashes in any encoding.
///
/// # Errors
/// A percent-encoding is invalid.
pub fn has_dot_segment(raw: &str) -> Result<bool, InvalidPath> {
    if !raw.contains('.') && !raw.contains('%') {
        return Ok(false);
    }
    let decoded = decode(raw)?;
    let mut segments = decoded.split(|byte| *byte == b'/');
    Ok(segments.any(|segment| matches!(segment, b"." | b"..")))
}

/// The path that a server reads that removes parameters behind `;` and takes `\` for a slash, for a path in
/// [its normal form](normalise_for_matching); `None` if it reads the same, or nothing valid.
pub fn reading_without_parameters(normal: &[u8]) -> Option<Vec<u8>> {
    if !normal.iter().any(|byte| matches!(byte, b';' | b'\\')) {
        return None;
    }
    let is_separator = |byte: &u8| matches!(byte, b'/' | b'\\');
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in normal.split(is_separator).map(without_parameters) {
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut read = Vec::with_capacity(normal.len());
    for segment in &kept {
        read.push(b'/');
        read.extend_from_slice(segment);
    }
    if kept.is_empty() || normal.last().is_some_and(is_separator) {
        read.push(b'/');
    }
    Some(read)
}

/// A segment without the parameters behind `;`.
fn without_parameters(segment: &[u8]) -> &[u8] {
    segment
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or(segment)
}

/// All bytes of an encoded path, decoded.
fn decode(encoded: &str) -> Result<SmallVec<[u8; 128]>, InvalidPath> {
    let mut decoded = SmallVec::new();
    let mut rest = encoded.as_bytes();
    while let Some((byte, after)) = decode_first(rest)? {
        decoded.push(byte);
        rest = after;
    }
    Ok(decoded)
}

/// The normal forms of one path, which are computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathForms {
    /// The decoded form, with an encoded slash as a slash.
    pub(crate) normal: Vec<u8>,
    /// The encoded form.
    pub(crate) encoded: String,
    /// Whether the path has a `%2F`, which is a slash for some servers and a part of a name for others.
    pub(crate) has_encoded_slash: bool,
}

/// A segment of a path, with the slash before it.
struct Segment<'a> {
    raw: &'a str,
    decoded: SmallVec<[u8; 32]>,
    /// Whether the slash was sent as `%2F`.
    is_slash_encoded: bool,
}

/// Resolves a path; `None` if it is in its normal form.
pub(crate) fn resolve(raw: &str) -> Result<Option<PathForms>, InvalidPath> {
    let bytes = raw.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err(InvalidPath::NotAbsolute);
    }
    if is_normal(bytes) {
        return Ok(None);
    }
    let mut kept: Vec<Segment<'_>> = Vec::new();
    let mut has_encoded_slash = false;
    let mut has_dot_segments = false;
    let mut ends_with_slash = false;
    // Whether a plain slash follows the last segment that is kept. The next one is separated by an encoded
    // slash only if all slashes between the two are encoded.
    let mut after_plain = false;
    let mut rest = raw;
    while !rest.is_empty() {
        let (segment, after) = first_segment(rest)?;
        rest = after;
        has_encoded_slash |= segment.is_slash_encoded;
        after_plain |= !segment.is_slash_encoded;
        ends_with_slash = false;
        match &*segment.decoded {
            b"" | b"." => {
                ends_with_slash = rest.is_empty();
                has_dot_segments |= !segment.raw.is_empty();
            }
            b".." => {
                let parent = kept.pop().ok_or(InvalidPath::AboveRoot)?;
                after_plain |= !parent.is_slash_encoded;
                ends_with_slash = rest.is_empty();
                has_dot_segments = true;
            }
            _ => kept.push(Segment {
                is_slash_encoded: !std::mem::take(&mut after_plain),
                ..segment
            }),
        }
    }
    let (mut normal, mut encoded) = (Vec::with_capacity(raw.len()), String::new());
    for segment in &kept {
        normal.push(b'/');
        normal.extend_from_slice(&segment.decoded);
        encoded.push_str(if segment.is_slash_encoded { "%2F" } else { "/" });
        encoded.push_str(segment.raw);
    }
    if ends_with_slash {
        normal.push(b'/');
        encoded.push('/');
    }
    Ok(Some(PathForms {
        normal,
        encoded: if has_dot_segments {
            encoded
        } else {
            merge_slashes(raw)
        },
        has_encoded_slash,
    }))
}

/// The path with one slash for several slashes in a row that are not encoded.
fn merge_slashes(raw: &str) -> String {
    let mut merged = String::with_capacity(raw.len());
    for byte in raw.chars() {
        if byte != '/' || !merged.ends_with('/') {
            merged.push(byte);
        }
    }
    merged
}

/// Splits the first segment, with the slash before it, off a path.
fn first_segment(path: &str) -> Result<(Segment<'_>, &str), InvalidPath> {
    let (slash_len, is_slash_encoded) = if path.starts_with('/') {
        (1, false)
    } else {
        (3, true)
    };
    let start = path.get(slash_len..).unwrap_or_default();
    let mut decoded = SmallVec::new();
    let mut rest = start.as_bytes();
    while let Some((byte, after)) = decode_first(rest)? {
        match byte {
            0..=0x1f | 0x7f => return Err(InvalidPath::Control),
            b'/' => break,
            byte => decoded.push(byte),
        }
        rest = after;
    }
    let (raw, rest) = start
        .split_at_checked(start.len().saturating_sub(rest.len()))
        .unwrap_or((start, ""));
    let segment = Segment {
        raw,
        decoded,
        is_slash_encoded,
    };
    Ok((segment, rest))
}

/// Whether there is nothing to decode, collapse or resolve.
fn is_normal(path: &[u8]) -> bool {
    if is_plain_path(path) {
        return true;
    }
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

/// The first decoded byte of an encoded path and the rest; `None` at its end.
fn decode_first(path: &[u8]) -> Result<Option<(u8, &[u8])>, InvalidPath> {
    match path {
        [] => Ok(None),
        [b'%', high, low, after @ ..] => match (hex(*high), hex(*low)) {
            (Some(high), Some(low)) => Ok(Some((high << 4 | low, after))),
            _ => Err(InvalidPath::Encoding),
        },
        [b'%', ..] => Err(InvalidPath::Encoding),
        [byte, after @ ..] => Ok(Some((*byte, after))),
    }
}

/// The value of a hexadecimal digit.
pub fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// Percent-encodes a decoded path for a URI (RFC 3986 section 3.3).
pub fn encode(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    encode_onto(&mut encoded, path);
    encoded
}

/// As [`encode`], appended to `encoded`.
pub fn encode_onto(encoded: &mut String, path: &[u8]) {
    percent::encode_onto(encoded, path, is_path_byte);
}

/// Whether the byte is a slash or a `pchar` other than `%`.
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
    /// A `%` without two hexadecimal digits: a faulty client, or an attack on servers that read it in
    /// different ways.
    Encoding,
    /// An encoded NUL or other control byte: an attack on applications that read the path.
    Control,
    /// `%2F`, which is a slash for some servers and a part of a name for others.
    EncodedSlash,
    /// `..` above the root: a traversal attack.
    AboveRoot,
    /// A segment that some servers resolve and others do not, as `..;x`: an attack on rules for paths.
    DotSegment,
}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "the path does not start with a slash",
            Self::Encoding => "a % in the path is not followed by two hexadecimal digits",
            Self::Control => "the path holds a control character",
            Self::EncodedSlash => "the path holds an encoded slash",
            Self::AboveRoot => "the path leads out of the root",
            Self::DotSegment => "servers read the path in different ways",
        })
    }
}

impl std::error::Error for InvalidPath {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_sent_on_as_it_came_unless_others_may_resolve_it_differently() {
        for same in [
            "/a%20b/%C3%A4",
            "/a/b",
            "/%7Euser/..x",
            "/a%2Fb",
            "/a%2fb/",
            "/a%2F",
            "/p%2F%2Fb",
            "/p%2f%2Fb%2F",
            "/p%2F/b",
            "/p/%2Fb",
            "/%2F",
            "/http:%2F%2Fa.example%2F",
            "/a;b=c/d+e/%3B/%5c/%ff",
        ] {
            assert_eq!(normalise_encoded(same).unwrap(), same);
        }
        for (sent, resolved) in [
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b%20c", "/b%20c"),
            ("//a//b", "/a/b"),
            ("/a%2f..%2Fb", "/b"),
            ("/a/./b/", "/a/b/"),
            ("/api/../api/a%2Fb", "/api/a%2Fb"),
            ("/a/./b%2fc", "/a/b%2Fc"),
            ("/p/a%2f..%2Fb", "/p/b"),
            ("/p%2Fa%2f..%2Fb", "/p%2Fb"),
            ("/a/..", "/"),
            ("/a//b%2F%2Fc", "/a/b%2F%2Fc"),
        ] {
            assert_eq!(normalise_encoded(sent).unwrap(), resolved, "{sent}");
        }
    }

    #[test]
    fn every_place_of_a_path_is_checked() {
        for at in 0..40 {
            for special in ["%41", "/", "/.", "/..", "/./", "\u{1}", "\u{7f}"] {
                let path = format!("/{}{special}", "a".repeat(at));
                let is_normal = special == "/" && at > 0;
                assert_eq!(resolve(&path) == Ok(None), is_normal, "{path:?}");
                let longer = format!("{path}/{}", "b".repeat(40));
                assert_ne!(resolve(&longer), Ok(None), "{longer:?}");
            }
            for normal in ["/.a", "/..a", "/a.", "/...", "/a/"] {
                let path = format!("/a{}{normal}", "a".repeat(at));
                assert_eq!(resolve(&path), Ok(None), "{path:?}");
            }
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

    #[test]
    fn what_other_servers_may_resolve_is_not_forwarded() {
        for path in [
            "/a/..;/b",
            "/a/..;x=1/b",
            "/a/.;/b",
            "/a/..%3B/b",
            "/a%2F..;/b",
            "/a/%2e%2e;/b",
            "/a\\..\\b",
            "/a%5C..%5Cb",
            "/a%5c..",
            "/a\\..;x/b",
        ] {
            assert_eq!(
                check_forwarded(path),
                Err(InvalidPath::DotSegment),
                "{path}"
            );
            assert_eq!(check_raw(path), Err(InvalidPath::DotSegment), "{path}");
        }
        for path in [
            "/a;b/c",
            "/a;..",
            "/a/...;/b",
            "/a%5Cb",
            "/a..;b",
            "/a%2Fb",
            "/",
        ] {
            assert_eq!(check_forwarded(path), Ok(()), "{path}");
            assert_eq!(check_raw(path), Ok(()), "{path}");
        }
        for path in [
            "/a/../b",
            "/a/./b",
            "/a%2F..%2Fb",
            "/a/%2e/b",
            "/.",
            "//a",
            "/a/..",
        ] {
            assert_eq!(check_raw(path), Err(InvalidPath::DotSegment), "{path}");
        }
        for path in [
            "/a//b",
            "/a%2F%2Fb",
            "/%2Fa",
            "/a/",
            "/.a/..b",
            "/a;b",
            "/%ff+%20%7E~",
        ] {
            assert_eq!(check_raw(path), Ok(()), "{path}");
        }
        for (path, why) in [
            ("/a%00", InvalidPath::Control),
            ("/a%", InvalidPath::Encoding),
            ("*", InvalidPath::NotAbsolute),
        ] {
            assert_eq!(check_raw(path), Err(why), "{path}");
        }
    }

    #[test]
    fn parameters_and_backslashes_are_read_as_other_servers_do() {
        for (normal, read) in [
            ("/a;b/c", Some("/a/c")),
            ("/admin;x", Some("/admin")),
            ("/;x/admin/", Some("/admin/")),
            ("/a\\b", Some("/a/b")),
            ("/;", Some("/")),
            ("/a/..;/b\\..\\c/.;", Some("/c")),
            ("/a/b", None),
        ] {
            let found = reading_without_parameters(normal.as_bytes());
            assert_eq!(found.as_deref(), read.map(str::as_bytes), "{normal}");
        }
    }

    #[test]
    fn a_decoded_prefix_is_taken_off_whatever_its_encoding() {
        for (path, prefix, rest) in [
            ("/api/x", "/api/", Some("x")),
            ("/%61pi/x%20y", "/api/", Some("x%20y")),
            ("/ap%69%2Fx", "/api/", Some("x")),
            ("/api", "/api", Some("")),
            ("/api", "/api/", None),
            ("/other", "/api", None),
            ("/%2Fapi/x", "/api/", Some("x")),
            ("/a%2F%2Fb//c", "/a/b/", Some("/c")),
            ("/a%2F%2Fc", "/a/b/", None),
        ] {
            assert_eq!(
                strip_decoded_prefix(path, prefix.as_bytes()),
                rest,
                "{path}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_on_is_the_path_that_was_matched(raw in "/[a./%25eEfF0-]{0,24}") {
            if let (Ok(sent), Ok(Some(resolved))) = (normalise_encoded(&raw), resolve(&raw)) {
                let again = resolve(&sent).unwrap();
                let normal = again.map_or_else(|| sent.as_bytes().to_vec(), |again| again.normal);
                prop_assert_eq!(normal, resolved.normal, "{}", raw);
                prop_assert_eq!(strip_decoded_prefix(&sent, b"/").is_some(), true);
            }
        }

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
