//! A parser of `multipart/form-data` without I/O (RFC 7578, RFC 2046 section 5.1).

use std::fmt;

use apus_http::list;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// The longest head of a part, in bytes.
const MAX_HEAD: usize = 8 * 1024;

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// The bytes that are added to the window at a time, where a head lies across pieces.
const STEP: usize = 1024;

/// Splits a body into its parts.
///
/// Feed it with [`MultipartParser::push`], then call [`MultipartParser::next`] until it returns `None`.
/// Data is returned in slices of what was pushed: a few bytes are copied only where a delimiter may
/// lie across two pieces. The memory that it keeps is limited by the longest head of a part.
pub struct MultipartParser {
    /// CR LF, two dashes, and the boundary.
    delimiter: Box<[u8]>,
    finder: memmem::Finder<'static>,
    stage: ParseStage,
    /// The bytes that are parsed now.
    window: Bytes,
    /// The bytes behind them.
    rest: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseStage {
    /// Bytes before the first delimiter are ignored.
    Preamble,
    /// The bytes behind a delimiter show whether it was the last.
    Delimiter,
    Head,
    Data,
    End,
}

/// What the parser found next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartEvent {
    /// A part starts.
    Part(PartHead),
    /// Bytes of the part's body.
    Data(Bytes),
    /// The part is complete.
    PartEnd,
    /// The last part is complete.
    End,
}

/// The head of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartHead {
    /// The name of the form's field.
    pub name: String,
    /// The name of the file without folders, if the part is a file.
    pub file_name: Option<String>,
    /// The media type, as the client sent it.
    pub content_type: Option<String>,
}

/// Why a body is not a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartError {
    /// Other bytes than the end of the line or two dashes follow a boundary.
    Delimiter,
    /// The head of a part is not made of valid field lines.
    Head,
    /// The head of a part is longer than 8 KiB.
    HeadTooLong,
    /// A part has no `Content-Disposition: form-data` with a name.
    NoName,
}

/// Why a `Content-Type` does not describe a form with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormTypeError {
    /// The media type is another one.
    OtherType,
    /// There is no valid boundary.
    NoBoundary,
}

impl fmt::Display for MultipartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delimiter => "a boundary is followed by neither the end of its line nor dashes",
            Self::Head => "the head of a part is not valid",
            Self::HeadTooLong => "the head of a part is too long",
            Self::NoName => "a part has no name",
        })
    }
}

impl MultipartParser {
    /// A parser for a body with this `Content-Type`.
    ///
    /// # Errors
    /// The media type is not `multipart/form-data`, or it has no valid boundary.
    pub fn for_content_type(content_type: &str) -> Result<Self, FormTypeError> {
        let (media_type, parameters) = list::parameters(content_type.as_bytes());
        if !media_type.eq_ignore_ascii_case(b"multipart/form-data") {
            return Err(FormTypeError::OtherType);
        }
        let boundary = boundary(parameters).ok_or(FormTypeError::NoBoundary)?;
        Self::new(boundary).ok_or(FormTypeError::NoBoundary)
    }

    /// A parser for a body whose parts are separated by this boundary; `None` if it is not valid.
    fn new(boundary: impl AsRef<[u8]>) -> Option<Self> {
        let boundary = boundary.as_ref();
        let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
        if !(1..=MAX_BOUNDARY).contains(&boundary.len()) || !boundary.iter().all(is_valid) {
            return None;
        }
        let delimiter = [b"\r\n--", boundary].concat();
        Some(Self {
            finder: memmem::Finder::new(&delimiter).into_owned(),
            delimiter: delimiter.into(),
            stage: ParseStage::Preamble,
            // The first delimiter may stand at the very start.
            window: Bytes::from_static(b"\r\n"),
            rest: Bytes::new(),
        })
    }

    /// Takes the next bytes of the body, once [`MultipartParser::next`] returned `None`.
    pub fn push(&mut self, piece: Bytes) {
        self.rest = piece;
    }

    /// The next event; `None` if the parser needs more bytes.
    ///
    /// # Errors
    /// The body is not a valid form.
    #[expect(
        clippy::should_implement_trait,
        reason = "the errors end it, and it continues after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<MultipartEvent>, MultipartError> {
        loop {
            let step = match self.stage {
                ParseStage::Preamble | ParseStage::Data => self.data(),
                ParseStage::Delimiter => self.delimiter()?,
                ParseStage::Head => self.head()?,
                ParseStage::End => ParseStep::Event(MultipartEvent::End),
            };
            match step {
                ParseStep::Event(event) => return Ok(Some(event)),
                ParseStep::Again => {}
                ParseStep::More if self.refill() => {}
                ParseStep::More => return Ok(None),
            }
        }
    }

    /// Moves bytes into the window: all of them into an empty window, else only some behind its bytes.
    fn refill(&mut self) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        if self.window.is_empty() {
            self.window = std::mem::take(&mut self.rest);
            return true;
        }
        let more = match self.stage {
            ParseStage::Preamble | ParseStage::Data => self.delimiter.len(),
            _ => STEP,
        };
        let more = self.rest.split_to(more.min(self.rest.len()));
        let mut joined = BytesMut::with_capacity(self.window.len().saturating_add(more.len()));
        joined.extend_from_slice(&self.window);
        joined.extend_from_slice(&more);
        self.window = joined.freeze();
        true
    }

    /// Reads data up to the next delimiter.
    fn data(&mut self) -> ParseStep {
        let found = self.finder.find(&self.window);
        let end = found.unwrap_or_else(|| self.window.len().saturating_sub(self.partial()));
        let data = self.window.split_to(end);
        if self.stage == ParseStage::Data && !data.is_empty() {
            return ParseStep::Event(MultipartEvent::Data(data));
        }
        if found.is_none() {
            return ParseStep::More;
        }
        self.window.advance(self.delimiter.len());
        match std::mem::replace(&mut self.stage, ParseStage::Delimiter) {
            ParseStage::Data => ParseStep::Event(MultipartEvent::PartEnd),
            _ => ParseStep::Again,
        }
    }

    /// How many bytes at the end of the window may be the start of a delimiter.
    fn partial(&self) -> usize {
        let longest = self.delimiter.len().saturating_sub(1);
        let start = self.window.len().saturating_sub(longest);
        let tail = self.window.get(start..).unwrap_or_default();
        let mut fronts = memchr::memchr_iter(b'\r', tail);
        let found = fronts.find(|at| {
            let front = tail.get(*at..).unwrap_or_default();
            self.delimiter.starts_with(front)
        });
        found.map_or(0, |at| tail.len().saturating_sub(at))
    }

    /// Reads what follows a boundary: two dashes, or the end of its line.
    fn delimiter(&mut self) -> Result<ParseStep, MultipartError> {
        if self.window.starts_with(b"--") {
            self.stage = ParseStage::End;
            self.window.clear();
            self.rest.clear();
            return Ok(ParseStep::Again);
        }
        let is_padding = |byte: &&u8| matches!(byte, b' ' | b'\t');
        let padding = self.window.iter().take_while(is_padding).count();
        match self.window.get(padding..).unwrap_or_default() {
            _ if padding > MAX_BOUNDARY => Err(MultipartError::Delimiter),
            [b'\r', b'\n', ..] => {
                self.window.advance(padding.saturating_add(2));
                self.stage = ParseStage::Head;
                Ok(ParseStep::Again)
            }
            [] | [b'\r'] => Ok(ParseStep::More),
            [b'-'] if padding == 0 => Ok(ParseStep::More),
            _ => Err(MultipartError::Delimiter),
        }
    }

    fn head(&mut self) -> Result<ParseStep, MultipartError> {
        let looked_at = self.window.get(..MAX_HEAD).unwrap_or(&self.window);
        if looked_at.starts_with(b"\r\n") {
            return Err(MultipartError::NoName);
        }
        let Some(end) = memmem::find(looked_at, b"\r\n\r\n") else {
            return if looked_at.len() < MAX_HEAD {
                Ok(ParseStep::More)
            } else {
                Err(MultipartError::HeadTooLong)
            };
        };
        let head = self.window.split_to(end);
        self.window.advance(4);
        self.stage = ParseStage::Data;
        PartHead::parse(&head).map(|head| ParseStep::Event(MultipartEvent::Part(head)))
    }
}

/// The result of parsing the window.
enum ParseStep {
    Event(MultipartEvent),
    /// The stage changed.
    Again,
    /// More bytes are needed.
    More,
}

impl PartHead {
    /// Reads field lines without the last line's end.
    fn parse(lines: &[u8]) -> Result<Self, MultipartError> {
        let mut head = Self {
            name: String::new(),
            file_name: None,
            content_type: None,
        };
        let mut is_named = false;
        let mut rest = Some(lines);
        while let Some(line) = rest.take() {
            let line = match memmem::find(line, b"\r\n") {
                Some(end) => {
                    rest = line.get(end.saturating_add(2)..);
                    line.get(..end).unwrap_or_default()
                }
                None => line,
            };
            let colon = memchr::memchr(b':', line).ok_or(MultipartError::Head)?;
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            let is_token =
                |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
            let is_text = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
            if name.is_empty() || !name.iter().all(is_token) || !value.iter().all(is_text) {
                return Err(MultipartError::Head);
            }
            if name.eq_ignore_ascii_case(b"content-disposition") {
                if is_named {
                    return Err(MultipartError::Head);
                }
                let name = parameter(value, b"name").ok_or(MultipartError::NoName)?;
                head.name = String::from_utf8(name).map_err(|_| MultipartError::Head)?;
                head.file_name = parameter(value, b"filename")
                    .map(|name| last_segment(&String::from_utf8_lossy(&name)));
                is_named = true;
            } else if name.eq_ignore_ascii_case(b"content-type") {
                let text = std::str::from_utf8(value).map_err(|_| MultipartError::Head)?;
                head.content_type = Some(text.to_owned());
            }
        }
        is_named.then_some(head).ok_or(MultipartError::NoName)
    }
}

/// The boundary among the parameters of the content type.
fn boundary<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    for parameter in parameters {
        let Some(equals) = memchr::memchr(b'=', parameter) else {
            continue;
        };
        let (name, value) = parameter.split_at(equals);
        if name.trim_ascii().eq_ignore_ascii_case(b"boundary") {
            let value = value.get(1..)?.trim_ascii();
            return unescaped(value).or_else(|| Some(value.to_vec()));
        }
    }
    None
}

/// The text of a quoted string (RFC 9110 section 5.6.4); `None` if it is no such string.
fn unescaped(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?.iter();
    let mut text = Vec::with_capacity(bytes.len());
    while let Some(byte) = bytes.next() {
        text.push(match byte {
            b'\\' => *bytes.next()?,
            byte => *byte,
        });
    }
    Some(text)
}

/// A parameter of `form-data; name="..."; filename="..."`, unescaped: browsers write `%22`, `%0D` and
/// `%0A` (HTML standard, section 4.10.21.8), others `\"`. A backslash before anything else is itself.
fn parameter(value: &[u8], wanted: &[u8]) -> Option<Vec<u8>> {
    let (kind, mut rest) = value.split_at(memchr::memchr(b';', value)?);
    if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return None;
    }
    while let Some(after) = rest.strip_prefix(b";") {
        let equals = memchr::memchr(b'=', after)?;
        let (name, after) = after.split_at(equals);
        let after = after.get(1..)?.trim_ascii_start();
        let (text, after) = match after.strip_prefix(b"\"") {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = memchr::memchr(b';', after).unwrap_or(after.len());
                let (token, after) = after.split_at(end);
                (token.trim_ascii().to_vec(), after)
            }
        };
        if name.trim_ascii().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
        rest = after.trim_ascii_start();
    }
    None
}

/// The text up to a closing quote, and the bytes behind the quote.
fn unquoted(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::with_capacity(quoted.len());
    let mut rest = quoted;
    loop {
        let (byte, after) = match rest {
            [b'"', after @ ..] => return Some((text, after)),
            [b'\\', b'"', after @ ..] | [b'%', b'2', b'2', after @ ..] => (b'"', after),
            [b'%', b'0', b'D' | b'd', after @ ..] => (b'\r', after),
            [b'%', b'0', b'A' | b'a', after @ ..] => (b'\n', after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        text.push(byte);
        rest = after;
    }
}

/// The name of a file without the folders that some clients send along.
fn last_segment(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or("");
    let name: String = name.chars().filter(|each| !each.is_control()).collect();
    match name.as_str() {
        "." | ".." => String::new(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(body: &[u8], size: usize) -> Result<Vec<MultipartEvent>, MultipartError> {
        let mut parser = MultipartParser::new("b-1").unwrap();
        let mut events: Vec<MultipartEvent> = Vec::new();
        for piece in body.chunks(size) {
            parser.push(Bytes::copy_from_slice(piece));
            while let Some(event) = parser.next()? {
                if event == MultipartEvent::End {
                    events.push(event);
                    return Ok(events);
                }
                match (events.last_mut(), event) {
                    (Some(MultipartEvent::Data(before)), MultipartEvent::Data(more)) => {
                        *before = Bytes::from([&before[..], &more].concat());
                    }
                    (_, event) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    fn part(name: &str, file_name: Option<&str>, content_type: Option<&str>) -> MultipartEvent {
        MultipartEvent::Part(PartHead {
            name: name.to_owned(),
            file_name: file_name.map(str::to_owned),
            content_type: content_type.map(str::to_owned),
        })
    }

    #[test]
    fn reads_parts_in_pieces_of_any_size() {
        let body = b"preamble\r\n--b-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\
            one\r\n--b-\r\n--b-1 \t\r\ncontent-disposition:form-data;filename=x.txt;name=b\r\n\
            Content-Type: text/plain\r\nX-Other: y\r\n\r\n\r\n--b-1\r\n\
            Content-Disposition: form-data; name=c\r\n\r\n\r\r\n-\r\n--b-1--\r\nepilogue";
        let expected = [
            part("a", None, None),
            MultipartEvent::Data(Bytes::from_static(b"one\r\n--b-")),
            MultipartEvent::PartEnd,
            part("b", Some("x.txt"), Some("text/plain")),
            MultipartEvent::PartEnd,
            part("c", None, None),
            MultipartEvent::Data(Bytes::from_static(b"\r\r\n-")),
            MultipartEvent::PartEnd,
            MultipartEvent::End,
        ];
        for size in 1..=body.len() {
            assert_eq!(all(body, size).unwrap(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn data_is_a_slice_of_what_was_pushed() {
        let front = b"\r\n--b-1\r\nContent-Disposition: form-data; name=a\r\n\r\n";
        let body = Bytes::from([b"\r", &front[..], &[b'x'; 5000], b"\r\n--b-1--"].concat());
        let mut parser = MultipartParser::new("b-1").unwrap();
        parser.push(body.clone());
        let (mut copied, mut shared) = (0, 0);
        while let Some(event) = parser.next().unwrap() {
            match event {
                MultipartEvent::Data(bytes) if body.as_ptr_range().contains(&bytes.as_ptr()) => {
                    shared += bytes.len();
                }
                MultipartEvent::Data(bytes) => copied += bytes.len(),
                MultipartEvent::End => break,
                _ => {}
            }
        }
        assert_eq!(copied + shared, 5000);
        assert!(copied < STEP, "{copied}");
    }

    #[test]
    fn unescapes_names_and_removes_folders() {
        for (disposition, name, file_name) in [
            ("form-data; name=\"a\"", "a", None),
            ("FORM-DATA ;name = a ; filename=b", "a", Some("b")),
            (
                "form-data; filename=\"b\"; name=\"a;b=c\"",
                "a;b=c",
                Some("b"),
            ),
            (
                r#"form-data; name="%22a%0D%0a%2e"; filename="\"b\".txt""#,
                "\"a\r\n%2e",
                Some("\"b\".txt"),
            ),
            (
                r#"form-data; name=a; filename="C:\folder\b.txt""#,
                "a",
                Some("b.txt"),
            ),
            (
                r#"form-data; name=a; filename="../../etc/passwd""#,
                "a",
                Some("passwd"),
            ),
            (r#"form-data; name=a; filename="..""#, "a", Some("")),
            ("form-data; name=a; filename=\".%0D.\"", "a", Some("")),
            ("form-data; name=a; filename=\"\"", "a", Some("")),
            ("form-data; name=\"\"", "", None),
            ("form-data; name=\"é你\"; filename=好", "é你", Some("好")),
            ("form-data; name=a; filename*=UTF-8''b", "a", None),
        ] {
            let lines = format!("Content-Disposition: {disposition}");
            let head = PartHead::parse(lines.as_bytes()).unwrap();
            assert_eq!((&*head.name, head.file_name.as_deref()), (name, file_name));
        }
    }

    #[test]
    fn rejects_invalid_heads() {
        for (lines, why) in [
            ("Content-Type: text/plain", MultipartError::NoName),
            ("Content-Disposition: form-data", MultipartError::NoName),
            (
                "Content-Disposition: attachment; name=a",
                MultipartError::NoName,
            ),
            (
                "Content-Disposition: form-data; name=\"a",
                MultipartError::NoName,
            ),
            (
                "Content-Disposition: form-data; filename=a",
                MultipartError::NoName,
            ),
            ("no colon", MultipartError::Head),
            (": no name", MultipartError::Head),
            ("two words: a", MultipartError::Head),
            (
                "Content-Disposition: form-data; name=a\r\n folded",
                MultipartError::Head,
            ),
            (
                "Content-Disposition: form-data; name=a\r\nX: a\nb",
                MultipartError::Head,
            ),
            (
                "Content-Disposition: form-data; name=\"a\rb\"",
                MultipartError::Head,
            ),
            (
                "Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b",
                MultipartError::Head,
            ),
        ] {
            assert_eq!(PartHead::parse(lines.as_bytes()), Err(why), "{lines}");
        }
        assert_eq!(all(b"--b-1x", 1), Err(MultipartError::Delimiter));
        assert_eq!(all(b"--b-1-x", 1), Err(MultipartError::Delimiter));
        assert_eq!(all(b"--b-1 --", 1), Err(MultipartError::Delimiter));
        assert_eq!(all(b"--b-1\r\n\r\n", 1), Err(MultipartError::NoName));
        let padded = [b"--b-1", &[b' '; 100][..]].concat();
        assert_eq!(all(&padded, 7), Err(MultipartError::Delimiter));
        let long = [b"--b-1\r\n", &[b'a'; MAX_HEAD][..]].concat();
        for size in [1000, long.len()] {
            assert_eq!(all(&long, size), Err(MultipartError::HeadTooLong));
        }
    }

    #[test]
    fn a_form_without_last_boundary_does_not_end() {
        let whole = b"--b-1\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--b-1--";
        for end in 0..whole.len() {
            let events = all(&whole[..end], 3).unwrap();
            assert!(!events.contains(&MultipartEvent::End), "{end}");
        }
    }

    #[test]
    fn boundaries_are_those_of_rfc_2046() {
        assert!(MultipartParser::new("----WebKitFormBoundaryAbC0").is_some());
        assert!(MultipartParser::new("a".repeat(70)).is_some());
        for boundary in ["", "a\"b", "a\r\n", &"a".repeat(71)] {
            assert!(MultipartParser::new(boundary).is_none(), "{boundary:?}");
        }
    }

    /// A semicolon or `boundary=` in a quoted string is a part of it (RFC 9110 section 5.6.6).
    #[test]
    fn a_boundary_is_not_sought_in_the_quoted_strings_of_other_parameters() {
        let delimiter = |content_type: &str| -> Result<String, FormTypeError> {
            let parser = MultipartParser::for_content_type(content_type)?;
            let text = String::from_utf8_lossy(&parser.delimiter).into_owned();
            Ok(text.trim_start_matches("\r\n--").to_owned())
        };
        for (parameters, boundary) in [
            ("boundary=b", Some("b")),
            ("charset=utf-8; Boundary = b ", Some("b")),
            ("x=\"a; boundary=evil\"; boundary=b", Some("b")),
            ("x=\"a\\\"; boundary=evil\"; boundary=b", Some("b")),
            ("x; boundary=b", Some("b")),
            ("boundary=\"a b\"", Some("a b")),
            ("boundary=\"\\a\\b\"", Some("ab")),
            ("boundary=first; boundary=second", Some("first")),
            ("boundary=\"a;b\"; x=y", None),
            ("boundary=\"a\\\"b\"", None),
            ("boundary=\"a", None),
            ("x=\"boundary=b\"", None),
            ("boundary", None),
            ("", None),
        ] {
            let found = delimiter(&format!("multipart/form-data; {parameters}"));
            let expected = boundary.ok_or(FormTypeError::NoBoundary);
            assert_eq!(found, expected.map(str::to_owned), "{parameters}");
        }
        for other in [
            "",
            "multipart/mixed; boundary=b",
            "\"multipart/form-data; boundary=b\"",
        ] {
            assert_eq!(delimiter(other), Err(FormTypeError::OtherType), "{other}");
        }
    }

    #[test]
    fn the_head_of_a_part_is_at_most_eight_kibibytes_long() {
        let front = "Content-Disposition: form-data; name=a\r\nX: ";
        for (length, is_accepted) in [
            (MAX_HEAD - 1, true),
            (MAX_HEAD, true),
            (MAX_HEAD + 1, false),
        ] {
            // With the empty line behind it.
            let value = "x".repeat(length - front.len() - 4);
            let body = format!("--b-1\r\n{front}{value}\r\n\r\n\r\n--b-1--");
            for size in [1000, body.len()] {
                let found = all(body.as_bytes(), size).map(|events| events.len());
                let expected = if is_accepted {
                    Ok(3)
                } else {
                    Err(MultipartError::HeadTooLong)
                };
                assert_eq!(found, expected, "{length} in pieces of {size}");
            }
        }
    }

    #[test]
    fn the_padding_behind_a_boundary_is_at_most_as_long_as_a_boundary() {
        for (length, is_accepted) in [
            (MAX_BOUNDARY - 1, true),
            (MAX_BOUNDARY, true),
            (MAX_BOUNDARY + 1, false),
        ] {
            let padding = " ".repeat(length);
            let body = format!(
                "--b-1{padding}\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b-1--"
            );
            let found = all(body.as_bytes(), 7);
            assert_eq!(found.is_ok(), is_accepted, "{length}: {found:?}");
        }
    }
}
