//! The parts of `multipart/form-data` (RFC 7578, RFC 2046 section 5.1), without I/O.
//!
//! Feed it with [`Parser::push`] and ask [`Parser::next`] until it has no more to say. Content is given
//! in slices of what was pushed: only where a delimiter may lie across two pieces, a few bytes are
//! copied. What it keeps is bounded by the head of a part.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// The longest head of a part, in bytes.
const MAX_HEAD: usize = 8 * 1024;

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// What is read of a head at a time, where it lies across pieces.
const STEP: usize = 1024;

/// Reads parts.
pub(super) struct Parser {
    /// CR LF, two dashes, and the boundary.
    delimiter: Box<[u8]>,
    finder: memmem::Finder<'static>,
    stage: Stage,
    /// What is looked at.
    window: Bytes,
    /// What follows it.
    rest: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What stands before the first delimiter means nothing.
    Preamble,
    /// What follows a delimiter tells whether it was the last.
    Delimiter,
    Head,
    Content,
    End,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Part(Head),
    Content(Bytes),
    PartEnd,
    End,
}

/// The head of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    pub(super) content_type: Option<String>,
}

/// Why content is not what its type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    Delimiter,
    Head,
    HeadTooLong,
    NoName,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delimiter => "a boundary is followed by neither the end of its line nor dashes",
            Self::Head => "the head of a part is not valid",
            Self::HeadTooLong => "the head of a part is too long",
            Self::NoName => "a part has no name",
        })
    }
}

impl Parser {
    /// For content whose parts are separated by this boundary; `None` if it cannot be one.
    pub(super) fn new(boundary: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        if !(1..=MAX_BOUNDARY).contains(&boundary.len()) || !boundary.bytes().all(is_valid) {
            return None;
        }
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        Some(Self {
            finder: memmem::Finder::new(&delimiter).into_owned(),
            delimiter: delimiter.into(),
            stage: Stage::Preamble,
            // The first delimiter may stand at the very start.
            window: Bytes::from_static(b"\r\n"),
            rest: Bytes::new(),
        })
    }

    /// Takes content that [`Parser::next`] had none left for.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.rest = piece;
    }

    /// What comes next; `None` if more content is needed to tell.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Malformed> {
        loop {
            let step = match self.stage {
                Stage::Preamble | Stage::Content => self.content(),
                Stage::Delimiter => self.delimiter()?,
                Stage::Head => self.head()?,
                Stage::End => Step::Event(Event::End),
            };
            match step {
                Step::Event(event) => return Ok(Some(event)),
                Step::Again => {}
                Step::More if self.refill() => {}
                Step::More => return Ok(None),
            }
        }
    }

    /// Puts more into the window: all that there is, or, behind what is in it already, some.
    fn refill(&mut self) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        if self.window.is_empty() {
            self.window = std::mem::take(&mut self.rest);
            return true;
        }
        let more = match self.stage {
            Stage::Preamble | Stage::Content => self.delimiter.len(),
            _ => STEP,
        };
        let more = self.rest.split_to(more.min(self.rest.len()));
        let mut joined = BytesMut::with_capacity(self.window.len().saturating_add(more.len()));
        joined.extend_from_slice(&self.window);
        joined.extend_from_slice(&more);
        self.window = joined.freeze();
        true
    }

    /// Content up to the next delimiter.
    fn content(&mut self) -> Step {
        let found = self.finder.find(&self.window);
        let end = found.unwrap_or_else(|| self.window.len().saturating_sub(self.partial()));
        let content = self.window.split_to(end);
        if self.stage == Stage::Content && !content.is_empty() {
            return Step::Event(Event::Content(content));
        }
        if found.is_none() {
            return Step::More;
        }
        self.window.advance(self.delimiter.len());
        match std::mem::replace(&mut self.stage, Stage::Delimiter) {
            Stage::Content => Step::Event(Event::PartEnd),
            _ => Step::Again,
        }
    }

    /// How many bytes at the end of the window may be the front of a delimiter.
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

    /// What stands behind a boundary: two dashes, or the end of its line.
    fn delimiter(&mut self) -> Result<Step, Malformed> {
        if self.window.starts_with(b"--") {
            self.stage = Stage::End;
            self.window.clear();
            self.rest.clear();
            return Ok(Step::Again);
        }
        let is_padding = |byte: &&u8| matches!(byte, b' ' | b'\t');
        let padding = self.window.iter().take_while(is_padding).count();
        match self.window.get(padding..).unwrap_or_default() {
            _ if padding > MAX_BOUNDARY => Err(Malformed::Delimiter),
            [b'\r', b'\n', ..] => {
                self.window.advance(padding.saturating_add(2));
                self.stage = Stage::Head;
                Ok(Step::Again)
            }
            [] | [b'\r'] => Ok(Step::More),
            [b'-'] if padding == 0 => Ok(Step::More),
            _ => Err(Malformed::Delimiter),
        }
    }

    fn head(&mut self) -> Result<Step, Malformed> {
        let looked_at = self.window.get(..MAX_HEAD).unwrap_or(&self.window);
        if looked_at.starts_with(b"\r\n") {
            return Err(Malformed::NoName);
        }
        let Some(end) = memmem::find(looked_at, b"\r\n\r\n") else {
            return match looked_at.len() < MAX_HEAD {
                true => Ok(Step::More),
                false => Err(Malformed::HeadTooLong),
            };
        };
        let head = self.window.split_to(end);
        self.window.advance(4);
        self.stage = Stage::Content;
        Head::parse(&head).map(|head| Step::Event(Event::Part(head)))
    }
}

/// How far a look at the window got.
enum Step {
    Event(Event),
    /// At another stage.
    Again,
    /// Not further without more content.
    More,
}

impl Head {
    /// Reads field lines without the last line's end.
    fn parse(lines: &[u8]) -> Result<Self, Malformed> {
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
            let colon = memchr::memchr(b':', line).ok_or(Malformed::Head)?;
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            let is_token =
                |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
            let is_text = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
            if name.is_empty() || !name.iter().all(is_token) || !value.iter().all(is_text) {
                return Err(Malformed::Head);
            }
            if name.eq_ignore_ascii_case(b"content-disposition") {
                if is_named {
                    return Err(Malformed::Head);
                }
                let name = parameter(value, b"name").ok_or(Malformed::NoName)?;
                head.name = String::from_utf8(name).map_err(|_| Malformed::Head)?;
                head.file_name = parameter(value, b"filename")
                    .map(|name| last_segment(&String::from_utf8_lossy(&name)));
                is_named = true;
            } else if name.eq_ignore_ascii_case(b"content-type") {
                let text = std::str::from_utf8(value).map_err(|_| Malformed::Head)?;
                head.content_type = Some(text.to_owned());
            }
        }
        is_named.then_some(head).ok_or(Malformed::NoName)
    }
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

/// The text up to a closing quote, and what follows that.
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

    fn all(content: &[u8], size: usize) -> Result<Vec<Event>, Malformed> {
        let mut parser = Parser::new("b-1").unwrap();
        let mut events: Vec<Event> = Vec::new();
        for piece in content.chunks(size) {
            parser.push(Bytes::copy_from_slice(piece));
            while let Some(event) = parser.next()? {
                if event == Event::End {
                    events.push(event);
                    return Ok(events);
                }
                match (events.last_mut(), event) {
                    (Some(Event::Content(before)), Event::Content(more)) => {
                        *before = Bytes::from([&before[..], &more].concat());
                    }
                    (_, event) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    fn part(name: &str, file_name: Option<&str>, content_type: Option<&str>) -> Event {
        Event::Part(Head {
            name: name.to_owned(),
            file_name: file_name.map(str::to_owned),
            content_type: content_type.map(str::to_owned),
        })
    }

    #[test]
    fn reads_parts_however_they_are_split() {
        let content = b"preamble\r\n--b-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\
            one\r\n--b-\r\n--b-1 \t\r\ncontent-disposition:form-data;filename=x.txt;name=b\r\n\
            Content-Type: text/plain\r\nX-Other: y\r\n\r\n\r\n--b-1\r\n\
            Content-Disposition: form-data; name=c\r\n\r\n\r\r\n-\r\n--b-1--\r\nepilogue";
        let expected = [
            part("a", None, None),
            Event::Content(Bytes::from_static(b"one\r\n--b-")),
            Event::PartEnd,
            part("b", Some("x.txt"), Some("text/plain")),
            Event::PartEnd,
            part("c", None, None),
            Event::Content(Bytes::from_static(b"\r\r\n-")),
            Event::PartEnd,
            Event::End,
        ];
        for size in 1..=content.len() {
            assert_eq!(all(content, size).unwrap(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn content_is_a_slice_of_what_was_pushed() {
        let front = b"\r\n--b-1\r\nContent-Disposition: form-data; name=a\r\n\r\n";
        let content = Bytes::from([b"\r", &front[..], &[b'x'; 5000], b"\r\n--b-1--"].concat());
        let mut parser = Parser::new("b-1").unwrap();
        parser.push(content.clone());
        let (mut copied, mut shared) = (0, 0);
        while let Some(event) = parser.next().unwrap() {
            match event {
                Event::Content(bytes) if content.as_ptr_range().contains(&bytes.as_ptr()) => {
                    shared += bytes.len();
                }
                Event::Content(bytes) => copied += bytes.len(),
                Event::End => break,
                _ => {}
            }
        }
        assert_eq!(copied + shared, 5000);
        assert!(copied < STEP, "{copied}");
    }

    #[test]
    fn names_are_unescaped_and_folders_left_out() {
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
            let head = Head::parse(lines.as_bytes()).unwrap();
            assert_eq!((&*head.name, head.file_name.as_deref()), (name, file_name));
        }
    }

    #[test]
    fn refuses_what_is_no_head() {
        for (lines, why) in [
            ("Content-Type: text/plain", Malformed::NoName),
            ("Content-Disposition: form-data", Malformed::NoName),
            ("Content-Disposition: attachment; name=a", Malformed::NoName),
            (
                "Content-Disposition: form-data; name=\"a",
                Malformed::NoName,
            ),
            (
                "Content-Disposition: form-data; filename=a",
                Malformed::NoName,
            ),
            ("no colon", Malformed::Head),
            (": no name", Malformed::Head),
            ("two words: a", Malformed::Head),
            (
                "Content-Disposition: form-data; name=a\r\n folded",
                Malformed::Head,
            ),
            (
                "Content-Disposition: form-data; name=a\r\nX: a\nb",
                Malformed::Head,
            ),
            (
                "Content-Disposition: form-data; name=\"a\rb\"",
                Malformed::Head,
            ),
            (
                "Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b",
                Malformed::Head,
            ),
        ] {
            assert_eq!(Head::parse(lines.as_bytes()), Err(why), "{lines}");
        }
        assert_eq!(all(b"--b-1x", 1), Err(Malformed::Delimiter));
        assert_eq!(all(b"--b-1-x", 1), Err(Malformed::Delimiter));
        assert_eq!(all(b"--b-1 --", 1), Err(Malformed::Delimiter));
        assert_eq!(all(b"--b-1\r\n\r\n", 1), Err(Malformed::NoName));
        let padded = [b"--b-1", &[b' '; 100][..]].concat();
        assert_eq!(all(&padded, 7), Err(Malformed::Delimiter));
        let long = [b"--b-1\r\n", &[b'a'; MAX_HEAD][..]].concat();
        for size in [1000, long.len()] {
            assert_eq!(all(&long, size), Err(Malformed::HeadTooLong));
        }
    }

    #[test]
    fn what_does_not_end_needs_more() {
        let whole = b"--b-1\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--b-1--";
        for end in 0..whole.len() {
            let events = all(&whole[..end], 3).unwrap();
            assert!(!events.contains(&Event::End), "{end}");
        }
    }

    #[test]
    fn boundaries_are_those_of_rfc_2046() {
        assert!(Parser::new("----WebKitFormBoundaryAbC0").is_some());
        assert!(Parser::new(&"a".repeat(70)).is_some());
        for boundary in ["", "a\"b", "a\r\n", &"a".repeat(71)] {
            assert!(Parser::new(boundary).is_none(), "{boundary:?}");
        }
    }
}
