//! Field lines of a message (RFC 9110 section 5), in the form in which HTTP/1.1 writes them.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::encoded::FieldCompression;
use crate::field_section::{FieldLine, FieldSection};
use crate::field_summary::FieldSummary;
use crate::grammar::{is_field_content, is_token, trim};
use crate::known_field::{FieldSet, KnownField};
use crate::scan::{BLOCK, take_plain_line};

/// The field lines of a head or a trailer section, in order.
///
/// One buffer holds every line as `name: value CRLF` with the name in lower case, and an index
/// points into it. Writing a response over HTTP/1.1 is one copy of the buffer, and no line can ever hold a
/// CR, an LF or a NUL.
///
/// It is as large as a pointer, because messages and their heads are moved through many functions. Its memory
/// is used again by the next one of this thread.
#[derive(Default)]
pub struct Headers(Option<Box<FieldSection>>);

/// The capacity of the buffer in bytes when the first line is added.
const FIRST_ROOM: usize = 192;

/// The most bytes of input that are copied at once to receive lines: a body or other heads may follow.
const MAX_RECEIVED_AT_ONCE: usize = 1024;

impl Drop for Headers {
    fn drop(&mut self) {
        if let Some(section) = self.0.take() {
            section.give_back();
        }
    }
}

impl Clone for Headers {
    fn clone(&self) -> Self {
        let section = self.0.as_ref();
        Self(section.map(|section| section.copy(|| self.summarize())))
    }
}

impl Headers {
    /// An empty section.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty section with room for `bytes` of field lines.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut section = FieldSection::take();
        section.wire.reserve(bytes);
        Self(Some(section))
    }

    /// Parses the output of [`Headers::wire`].
    ///
    /// # Errors
    /// A line is not `name: value CRLF` with a token in lower case and a valid value.
    pub fn from_wire(wire: &[u8]) -> Result<Self, InvalidField> {
        let mut headers = Self::with_capacity(wire.len());
        let mut rest = wire;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).ok_or(InvalidField::Value)?;
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let line = line.strip_suffix(b"\r").ok_or(InvalidField::Value)?;
            let colon = memchr::memchr(b':', line).ok_or(InvalidField::Name)?;
            let (name, value) = line.split_at(colon);
            let value = value.strip_prefix(b": ").ok_or(InvalidField::Value)?;
            headers.try_append(name, value)?;
        }
        // A line that was trimmed or changed in case is no output of `wire`.
        if headers.wire() != wire {
            return Err(InvalidField::Value);
        }
        Ok(headers)
    }

    /// The number of field lines.
    pub fn len(&self) -> usize {
        self.lines().len()
    }

    /// Whether there is no field line.
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// All field lines in HTTP/1.1 wire form, each ended by CRLF, without the empty line.
    pub fn wire(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |section| &section.wire)
    }

    fn lines(&self) -> &[FieldLine] {
        self.0.as_ref().map_or(&[], |section| &section.lines)
    }

    fn section(&mut self) -> &mut FieldSection {
        self.0.get_or_insert_with(FieldSection::take)
    }

    /// Field lines in order, as name (lower case) and value.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        self.lines()
            .iter()
            .map(|line| (self.name(*line), self.value(*line)))
    }

    /// The names of the field lines in order, in lower case.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.lines().iter().map(|line| self.bytes(line.name()))
    }

    /// The value of the first line with this name.
    pub fn get(&self, name: impl AsRef<str>) -> Option<&[u8]> {
        self.get_all_inner(name.as_ref()).next()
    }

    /// The value of the first line with this name, if it is visible ASCII or UTF-8.
    pub fn get_str(&self, name: impl AsRef<str>) -> Option<&str> {
        self.get(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The values of all lines with this name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.get_all_inner(name)
    }

    fn get_all_inner<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lines()
            .iter()
            .filter(move |line| self.is_named(**line, name))
            .map(|line| self.value(*line))
    }

    /// Whether any line has one of these fields.
    pub fn has_any(&self, fields: FieldSet) -> bool {
        let section = self.0.as_ref();
        section.is_some_and(|section| section.fields.has_any(fields))
    }

    /// Whether any line has this field.
    pub fn has(&self, field: KnownField) -> bool {
        self.has_any(FieldSet::of(&[field]))
    }

    /// The values of all lines with this field, in order.
    pub fn values_of(&self, field: KnownField) -> impl Iterator<Item = &[u8]> {
        let lines = if self.has(field) { self.lines() } else { &[] };
        lines
            .iter()
            .filter(move |line| line.field == field)
            .map(|line| self.value(*line))
    }

    /// Whether any line has this name.
    pub fn contains(&self, name: impl AsRef<str>) -> bool {
        self.get(name).is_some()
    }

    /// Adds a line after the others. A sensitive value stays sensitive: HPACK puts it into no table
    /// (RFC 7541 section 7.1.3).
    pub fn append(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.push(name.as_str().as_bytes(), value.as_bytes());
        if value.is_sensitive() {
            self.never_index_last();
        }
    }

    /// Sets the only line with this name.
    pub fn insert(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.remove(name);
        self.append(name, value);
    }

    /// Adds a line after the others, from bytes that are checked here.
    ///
    /// # Errors
    /// The name is not a token (RFC 9110 section 5.6.2), or the value holds a CR, an LF, a NUL or
    /// another control byte than a tab (section 5.5). Nothing is added then.
    pub fn try_append(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), InvalidField> {
        let (name, value) = (name.as_ref(), trim(value.as_ref()));
        if name.is_empty()
            || name.len() > usize::from(u16::MAX)
            || !name.iter().all(|b| is_token(*b))
        {
            return Err(InvalidField::Name);
        }
        if u32::try_from(value.len()).is_err() || !is_field_content(value) {
            return Err(InvalidField::Value);
        }
        self.push(name, value);
        Ok(())
    }

    /// Adds the lines of `other` for which `keep` returns true after the others; `keep` gets the name
    /// in lower case and the value. The lines are valid, so they are copied unchecked.
    pub fn append_from(&mut self, other: &Self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        self.append_fields_from(other, |_, name, value| keep(name, value));
    }

    /// Removes the fields by which applications tell the server what to do ([`KnownField::Internal`]), which no client
    /// sees.
    pub fn remove_internal(&mut self) {
        if self.has(KnownField::Internal) {
            let mut others = Self::with_capacity(self.wire().len());
            others.append_fields_from(self, |field, _, _| field != KnownField::Internal);
            *self = others;
        }
    }

    /// Does the same as [`Self::append_from`]; `keep` gets the known field of the line, too.
    pub fn append_fields_from(
        &mut self,
        other: &Self,
        mut keep: impl FnMut(KnownField, &[u8], &[u8]) -> bool,
    ) {
        let section = self.section();
        if let Some(other) = &other.0 {
            section.lines_are_added(other.fields);
        }
        section.wire.reserve(other.wire().len());
        // Lines that follow each other are copied at once.
        let mut copied = 0..0;
        for line in other.lines() {
            let start = section.wire.len().saturating_add(copied.len());
            let Ok(start) = u32::try_from(start) else {
                // More than 4 GiB of field lines, which no limit allows.
                break;
            };
            let whole = line.whole();
            if keep(line.field, other.bytes(line.name()), other.value(*line)) {
                if copied.is_empty() {
                    copied.start = whole.start;
                }
                copied.end = whole.end;
                section.fields.add(line.field);
                section.lines.push(FieldLine { start, ..*line });
            } else {
                section.wire.extend_from_slice(other.bytes(copied));
                copied = 0..0;
            }
        }
        section.wire.extend_from_slice(other.bytes(copied));
    }

    /// Sets the only line with this name, from bytes that are checked here.
    ///
    /// # Errors
    /// As [`Headers::try_append`]; the lines that were there stay then.
    pub fn try_insert(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), InvalidField> {
        let before = self.len();
        self.try_append(name.as_ref(), value)?;
        let Some(added) = self.lines().get(before).copied() else {
            return Ok(());
        };
        let name = self.bytes(added.name()).to_owned();
        let mut at = 0_usize;
        self.retain(|other| {
            at = at.saturating_add(1);
            at > before || *other != *name
        });
        Ok(())
    }

    /// Removes all lines with this name, and returns whether there was one.
    pub fn remove(&mut self, name: impl AsRef<str>) -> bool {
        let name = name.as_ref();
        let is_there = self.contains(name);
        if is_there {
            self.retain(|other| !other.eq_ignore_ascii_case(name.as_bytes()));
        }
        is_there
    }

    /// Keeps the lines for which `keep` returns true; it gets their names in lower case.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.retain_fields(|_, name, _| keep(name));
    }

    /// Keeps the lines for which `keep` returns true; it gets the known field, the name in lower case, and
    /// the value.
    pub fn retain_fields(&mut self, mut keep: impl FnMut(KnownField, &[u8], &[u8]) -> bool) {
        let Some(section) = &mut self.0 else {
            return;
        };
        let FieldSection {
            wire,
            lines,
            fields,
            encoded,
        } = &mut **section;
        let mut kept_fields = FieldSet::default();
        let (mut removed, mut end) = (0_u32, 0);
        lines.retain(|line| {
            let part = |range: Range<usize>| wire.get(range).unwrap_or_default();
            let whole = line.whole();
            if !keep(line.field, part(line.name()), part(line.value())) {
                removed = removed.saturating_add(u32::try_from(whole.len()).unwrap_or(u32::MAX));
                return false;
            }
            if removed > 0 {
                line.start = line.start.saturating_sub(removed);
                wire.copy_within(whole, line.start as usize);
            }
            end = line.whole().end;
            kept_fields.add(line.field);
            true
        });
        if removed > 0 {
            wire.truncate(end);
            *fields = kept_fields;
            encoded.clear();
        }
    }

    /// Appends the lines in wire form to `out`, except those with these fields.
    pub fn write_without(&self, fields: FieldSet, out: &mut Vec<u8>) {
        let mut run = 0..0;
        for line in self.lines() {
            let whole = line.whole();
            if fields.has(line.field) {
                out.extend_from_slice(self.bytes(run));
                run = whole.end..whole.end;
            } else {
                run.end = whole.end;
            }
        }
        out.extend_from_slice(self.bytes(run));
    }

    /// Removes all lines and keeps the capacity.
    pub fn clear(&mut self) {
        if let Some(section) = &mut self.0 {
            section.clear();
        }
    }

    /// Gives the memory back that further lines would use, for lines that are kept for long.
    pub fn shrink_to_fit(&mut self) {
        if let Some(section) = &mut self.0 {
            section.wire.shrink_to_fit();
        }
    }

    /// A copy in the form of the `http` crate.
    pub fn to_header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.len());
        for (name, value, never_indexed) in self.hpack_lines() {
            if let (Ok(name), Ok(mut value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                value.set_sensitive(never_indexed);
                map.append(name, value);
            }
        }
        map
    }

    /// Field lines in order, as name (lower case), value, and the line in wire form. For codecs,
    /// which compare names as bytes.
    pub fn wire_lines(&self) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
        let wire = self.wire();
        self.lines().iter().map(move |line| {
            let part = |range| wire.get(range).unwrap_or_default();
            (part(line.name()), part(line.value()), part(line.whole()))
        })
    }

    /// Field lines in order, as name, value, and whether HPACK must put them into no table.
    pub fn hpack_lines(&self) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
        let wire = self.wire();
        self.lines().iter().map(move |line| {
            let part = |range| wire.get(range).unwrap_or_default();
            (part(line.name()), part(line.value()), line.never_indexed)
        })
    }

    /// Marks the last line as never indexed, as its sender did (RFC 7541 section 6.2.3).
    pub fn never_index_last(&mut self) {
        if let Some(section) = &mut self.0
            && let Some(line) = section.lines.last_mut()
        {
            section.encoded.clear();
            line.never_indexed = true;
        }
    }

    /// The facts about the lines that a codec needs before it writes them.
    pub fn summary(&self) -> FieldSummary {
        match &self.0 {
            Some(section) => section.encoded.summary(|| self.summarize()),
            None => self.summarize(),
        }
    }

    fn summarize(&self) -> FieldSummary {
        let section = self.0.as_ref();
        let fields = section.map_or_else(FieldSet::default, |section| section.fields);
        FieldSummary::of(fields, self.values_of(KnownField::ContentLength))
    }

    /// The lines in the form of a codec, of which one is kept for each format. `encode` makes it when the lines are encoded for the second time,
    /// because lines that are encoded only once gain nothing from it; it is kept until the lines change.
    #[inline]
    pub fn encoded<T: Any + Send + Sync>(
        &self,
        format: FieldCompression,
        encode: impl FnOnce(&Self) -> T,
    ) -> Option<&T> {
        let section = self.0.as_ref()?;
        section
            .encoded
            .get_or_encode(format, || self.summarize(), || encode(self))
    }

    fn is_named(&self, line: FieldLine, name: &str) -> bool {
        // Most names differ in length.
        usize::from(line.name) == name.len()
            && self
                .bytes(line.name())
                .eq_ignore_ascii_case(name.as_bytes())
    }

    fn name(&self, line: FieldLine) -> &str {
        // Names are tokens, which are ASCII.
        std::str::from_utf8(self.bytes(line.name())).unwrap_or("")
    }

    fn value(&self, line: FieldLine) -> &[u8] {
        self.bytes(line.value())
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.wire().get(range).unwrap_or_default()
    }

    /// Adds a line whose name and value are valid.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_with(name, value.len(), |wire| wire.extend_from_slice(value));
    }

    /// Adds a line whose value a function writes at the end of the buffer, of about this length. The name and the value have to be
    /// valid.
    pub fn push_with(&mut self, name: &[u8], length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let section = self.section();
        let wire = &mut section.wire;
        let len = name
            .len()
            .saturating_add(length)
            .saturating_add(FieldLine::SEPARATOR)
            .saturating_add(FieldLine::END);
        // More lines usually follow the first one.
        wire.reserve(match wire.capacity() {
            0 => len.max(FIRST_ROOM),
            _ => len,
        });
        let start = wire.len();
        wire.extend_from_slice(name);
        wire.extend_from_slice(b": ");
        let value = wire.len();
        write(wire);
        let length = wire.len().saturating_sub(value);
        wire.extend_from_slice(b"\r\n");
        match FieldLine::new(start, name.len(), length) {
            Some(line) => section.add_line(line),
            None => wire.truncate(start),
        }
    }

    /// Adds all lines of `other` after the others. What is known of them is copied, too, which costs less than [`Headers::push`] of
    /// each.
    pub fn append_all(&mut self, other: &Self) {
        let Some(other) = &other.0 else {
            return;
        };
        let section = self.section();
        let Ok(start) = u32::try_from(section.wire.len()) else {
            // More than 4 GiB of field lines, which no limit allows.
            return;
        };
        section.lines_are_added(other.fields);
        section.wire.extend_from_slice(&other.wire);
        section.fields = section.fields.and(other.fields);
        section
            .lines
            .extend(other.lines.iter().map(|line| FieldLine {
                start: line.start.saturating_add(start),
                ..*line
            }));
    }

    /// Adds to the value of the last line what a function writes at the end of the buffer, which has to be valid in a value. Does
    /// nothing if there is no line.
    pub fn extend_last(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(section) = &mut self.0 else {
            return;
        };
        let FieldSection {
            wire,
            lines,
            encoded,
            ..
        } = &mut **section;
        let Some(line) = lines.last_mut() else {
            return;
        };
        if FieldSummary::FIELDS.has(line.field) {
            encoded.clear();
        } else {
            encoded.clear_forms();
        }
        wire.truncate(line.value().end);
        write(wire);
        let length = wire.len().saturating_sub(line.value().start);
        // More than 4 GiB of field lines, which no limit allows, end here.
        line.value = u32::try_from(length).unwrap_or(line.value);
        wire.truncate(line.value().end);
        wire.extend_from_slice(b"\r\n");
    }

    /// Reads the lines at the start of `input` that have the form in which they are sent (a token, a colon, one
    /// space, a value without white space around it, CRLF), at most `lines_left`, from which they are subtracted.
    /// Returns the bytes of the lines that were read, which are 0 if the first one is incomplete, empty, or has
    /// another form.
    ///
    /// `inspect` gets the values of the fields in `inspected` and says whether a line is kept.
    ///
    /// # Errors
    /// The errors of `inspect`. The lines before that one are kept.
    pub fn receive<E>(
        &mut self,
        input: &[u8],
        lines_left: &mut usize,
        inspected: FieldSet,
        mut inspect: impl FnMut(KnownField, &[u8]) -> Result<bool, E>,
    ) -> Result<usize, E> {
        let FieldSection {
            wire,
            lines,
            fields,
            encoded,
        } = self.section();
        encoded.clear();
        let input = input.get(..MAX_RECEIVED_AT_ONCE).unwrap_or(input);
        let start = wire.len();
        wire.reserve(input.len().saturating_add(BLOCK));
        wire.extend_from_slice(input);
        wire.extend_from_slice(&[0; BLOCK]);
        let (mut read, mut kept) = (start, start);
        let mut result = Ok(());
        while *lines_left > 0
            && let Some(found) = wire.get_mut(read..).and_then(take_plain_line)
            && let Some(mut line) = FieldLine::new(read, found.name, found.value)
        {
            let whole = line.whole();
            let name = wire.get(line.name()).unwrap_or_default();
            line.field = if found.is_of_letters {
                KnownField::of_letters(name)
            } else {
                KnownField::of(name)
            };
            read = whole.end;
            *lines_left = lines_left.saturating_sub(1);
            if inspected.has(line.field) {
                match inspect(line.field, wire.get(line.value()).unwrap_or_default()) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            if whole.start != kept {
                line.start = u32::try_from(kept).unwrap_or(line.start);
                wire.copy_within(whole, kept);
            }
            kept = line.whole().end;
            fields.add(line.field);
            lines.push(line);
        }
        wire.truncate(kept);
        result.map(|()| read.saturating_sub(start))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(name, value)| (name, String::from_utf8_lossy(value))),
            )
            .finish()
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.wire() == other.wire()
    }
}

impl Eq for Headers {}

impl From<&HeaderMap> for Headers {
    fn from(map: &HeaderMap) -> Self {
        let mut headers = Self::with_capacity(map.len().saturating_mul(32));
        for (name, value) in map {
            headers.append(name, value);
        }
        headers
    }
}

/// Why a field line is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidField {
    /// The name is empty or holds a byte that is not a token character (RFC 9110 section 5.6.2).
    Name,
    /// The value holds a control byte (RFC 9110 section 5.5).
    Value,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "a field name must be a token: letters, digits and !#$%&'*+-.^_`|~",
            Self::Value => "a field value must not hold control characters",
        })
    }
}

impl std::error::Error for InvalidField {}

#[cfg(test)]
mod tests {
    use http::header;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keeps_lines_in_wire_form_with_lower_case_names() {
        let mut headers = Headers::new();
        headers.try_append("Content-Type", " text/html ").unwrap();
        headers.append(&header::ETAG, &HeaderValue::from_static("\"x\""));
        assert_eq!(
            headers.wire(),
            b"content-type: text/html\r\netag: \"x\"\r\n"
        );
        assert_eq!(headers.get_str("CONTENT-TYPE"), Some("text/html"));
        assert_eq!(headers.get(header::ETAG), Some(&b"\"x\""[..]));
    }

    #[test]
    fn lines_that_are_added_together_are_those_that_are_added_one_by_one() {
        let mut template = Headers::new();
        template.push(b"content-length", b"7");
        template.push(b"ratelimit", b"\"a\";r=");
        let mut added = Headers::new();
        added.append_all(&Headers::new());
        added.extend_last(|value| value.extend_from_slice(b"lost"));
        assert!(added.is_empty());
        added.push(b"etag", b"x");
        assert_eq!(added.summary().content_length, None);
        added.append_all(&template);
        added.extend_last(|value| value.extend_from_slice(b"12"));
        added.push(b"vary", b"accept");
        let mut pushed = Headers::new();
        for (name, value) in [
            ("etag", "x"),
            ("content-length", "7"),
            ("ratelimit", "\"a\";r=12"),
            ("vary", "accept"),
        ] {
            pushed.push(name.as_bytes(), value.as_bytes());
        }
        assert_eq!(added.wire(), pushed.wire());
        assert!(added.iter().eq(pushed.iter()));
        assert_eq!(
            added.values_of(KnownField::Vary).next(),
            Some(&b"accept"[..])
        );
        assert_eq!(added.summary().content_length, Some(7));
    }

    #[test]
    fn the_summary_of_a_copy_is_that_of_its_own_lines() {
        let mut first = Headers::new();
        first.push(b"content-length", b"7");
        // It is kept from the second time on.
        for _ in 0..3 {
            assert_eq!(first.summary().content_length, Some(7));
        }
        let mut copy = first.clone().clone();
        copy.push(b"x-other", b"1");
        copy.extend_last(|value| value.push(b'2'));
        assert_eq!(copy.clone().summary().content_length, Some(7));
        assert_eq!([(); 3].map(|()| copy.summary().has_date), [false; 3]);
        copy.push(b"date", b"today");
        assert!(copy.summary().has_date);
        let mut longer = first.clone();
        longer.extend_last(|value| value.push(b'1'));
        assert_eq!(longer.summary().content_length, Some(71));
        let mut without = first.clone();
        without.remove("content-length");
        assert_eq!(without.summary().content_length, None);
        let mut two = first.clone();
        two.append_from(&first, |_, _| true);
        assert_eq!(two.summary().content_length, None);
        let mut cleared = first.clone();
        cleared.clear();
        assert!(!cleared.summary().has_content_length);
    }

    #[test]
    fn lines_with_the_memory_of_dropped_ones_are_independent() {
        let mut first = Headers::with_capacity(512);
        first.push(b"set-cookie", b"secret");
        first.never_index_last();
        first.summary();
        drop(first);
        let mut second = Headers::new();
        assert_eq!((second.len(), second.wire()), (0, &b""[..]));
        second.push(b"etag", b"x");
        let copy = second.clone();
        drop(second);
        let mut third = Headers::new();
        third.push(b"content-length", b"7");
        assert_eq!(third.summary().content_length, Some(7));
        assert_eq!(
            third.hpack_lines().collect::<Vec<_>>(),
            [(&b"content-length"[..], &b"7"[..], false)]
        );
        assert_eq!(copy.wire(), b"etag: x\r\n");
    }

    #[test]
    fn keeps_a_form_for_each_format_until_the_lines_change() {
        use FieldCompression::{Hpack, Qpack};
        let mut headers = Headers::new();
        headers.push(b"etag", b"x");
        let lines = |headers: &Headers| headers.wire().to_vec();
        assert_eq!(headers.encoded(Hpack, lines), None, "it is sent once");
        let unexpected = |_: &Headers| -> Vec<u8> { panic!("it was encoded already") };
        assert_eq!(
            headers.encoded(Hpack, lines),
            Some(&b"etag: x\r\n".to_vec())
        );
        assert_eq!(headers.encoded(Qpack, |_| vec![7_u8]), Some(&vec![7]));
        assert_eq!(headers.encoded(Qpack, unexpected), Some(&vec![7]));
        assert_eq!(
            headers.encoded(Hpack, unexpected),
            Some(&headers.wire().to_vec())
        );
        headers.push(b"age", b"1");
        assert_eq!(headers.encoded(Qpack, unexpected), None);
        assert_eq!(
            headers.encoded(Qpack, lines),
            Some(&headers.wire().to_vec())
        );
    }

    /// Lines in the form in which they are sent, as input.
    fn sent(lines: &[(&str, &str)]) -> Vec<u8> {
        let lines = lines
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        lines.collect::<String>().into()
    }

    fn received(input: &[u8], mut max_lines: usize) -> (usize, Headers) {
        let mut headers = Headers::new();
        headers.push(b"first", b"1");
        let result = headers.receive(input, &mut max_lines, FieldSet::default(), |_, _| {
            Ok::<_, std::convert::Infallible>(true)
        });
        (result.unwrap(), headers)
    }

    #[test]
    fn lines_are_received_as_if_they_were_built() {
        let long = "v".repeat(700);
        let lines = [
            ("Host", "A.example:80"),
            ("ACCEPT-encoding", "GZIP, Br"),
            ("X-B3-TraceId", "80F1"),
            ("x_under", ""),
            ("Long", &long),
            ("a", "\u{fc} \t:"),
        ];
        let input = sent(&lines);
        for rest in [
            "",
            "\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: b\r\n",
            "no-line",
            "Folded:\r\n",
        ] {
            let (bytes, headers) = received(&[&input, rest.as_bytes()].concat(), 100);
            let mut built = Headers::new();
            built.push(b"first", b"1");
            for (name, value) in lines {
                built.try_append(name.to_lowercase(), value).unwrap();
            }
            assert_eq!(
                (bytes, headers.wire()),
                (input.len(), built.wire()),
                "{rest}"
            );
            assert_eq!(
                headers.iter().collect::<Vec<_>>(),
                built.iter().collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn receives_the_lines_that_are_complete_and_no_more_than_allowed() {
        let lines = [("Host", "a"), ("Accept", "*/*"), ("User-Agent", "b")];
        let input = sent(&lines);
        let ends = [0, 9, 22, 37];
        for length in 0..=input.len() {
            let complete = ends.iter().filter(|end| **end <= length).count() - 1;
            for max_lines in 0..=4 {
                let (bytes, headers) = received(&input[..length], max_lines);
                let lines = complete.min(max_lines);
                assert_eq!(
                    (bytes, headers.len()),
                    (ends[lines], lines + 1),
                    "{length} {max_lines}"
                );
                assert_eq!(headers.wire().len(), 10 + bytes);
            }
        }
    }

    /// One byte less than is copied at once, as much, and one more.
    #[test]
    fn a_line_that_ends_where_the_copied_input_ends_is_received() {
        for length in MAX_RECEIVED_AT_ONCE - 1..=MAX_RECEIVED_AT_ONCE + 1 {
            let value = "v".repeat(length - "Name: \r\n".len());
            let (bytes, headers) = received(&sent(&[("Name", &value)]), 100);
            let fits = length <= MAX_RECEIVED_AT_ONCE;
            assert_eq!(
                (bytes, headers.len()),
                if fits { (length, 2) } else { (0, 1) }
            );
        }
    }

    #[test]
    fn lines_that_are_inspected_may_be_left_out_and_end_the_section() {
        let input = sent(&[
            ("Host", "a"),
            ("Connection", "keep-alive"),
            ("Accept", "*/*"),
            ("TE", "trailers"),
            ("TE", "bad"),
            ("Last", "1"),
        ]);
        let mut headers = Headers::new();
        let mut seen = Vec::new();
        let mut lines_left = 100;
        let result = headers.receive(
            &input,
            &mut lines_left,
            FieldSet::HOP_BY_HOP,
            |field, value| {
                seen.push((field, value.to_vec()));
                if value == b"bad" { Err(()) } else { Ok(false) }
            },
        );
        assert_eq!((result, lines_left), (Err(()), 95));
        assert_eq!(headers.wire(), b"host: a\r\naccept: */*\r\n");
        assert_eq!(
            seen,
            [
                (KnownField::Connection, b"keep-alive".to_vec()),
                (KnownField::Te, b"trailers".to_vec()),
                (KnownField::Te, b"bad".to_vec()),
            ]
        );
        headers.push(b"last", b"2");
        assert_eq!(headers.get("last"), Some(&b"2"[..]));
        assert!(!headers.has(KnownField::Connection) && headers.has(KnownField::Host));
    }

    proptest! {
        /// What is found by number is what is found by name, whatever was done to the lines.
        #[test]
        fn known_fields_are_found_as_by_their_names(steps in proptest::collection::vec((0..5_u8, 0..6_usize, 0..4_u8), 0..40)) {
            const NAMES: [(&str, KnownField); 6] = [
                ("Host", KnownField::Host),
                ("content-length", KnownField::ContentLength),
                ("Set-Cookie", KnownField::SetCookie),
                ("x-accel-redirect", KnownField::Internal),
                ("x-other", KnownField::Other),
                ("via", KnownField::Via),
            ];
            let mut headers = Headers::new();
            let mut lines: Vec<(String, Vec<u8>)> = Vec::new();
            for (step, name, value) in steps {
                let (name, _) = NAMES[name];
                let lower = name.to_ascii_lowercase();
                let value = vec![b'a' + value; usize::from(value) + 1];
                match step {
                    0 => headers.try_append(name, &value).unwrap(),
                    1 => {
                        let line = [name.as_bytes(), b": ", &value, b"\r\n"].concat();
                        let read = headers.receive(&line, &mut 1, FieldSet::default(), |_, _| Ok::<_, ()>(true));
                        prop_assert_eq!(read, Ok(line.len()));
                    }
                    2 => {
                        lines.retain(|(other, _)| *other != lower);
                        headers.try_insert(name, &value).unwrap();
                    }
                    3 => {
                        let removed = headers.remove(name);
                        prop_assert_eq!(removed, lines.iter().any(|(other, _)| *other == lower));
                        lines.retain(|(other, _)| *other != lower);
                    }
                    _ => {
                        headers.retain_fields(|_, _, other| *other != value);
                        lines.retain(|(_, other)| *other != value);
                        let mut copy = Headers::new();
                        copy.append_from(&headers, |_, _| true);
                        headers = copy;
                    }
                }
                if step < 3 {
                    lines.push((lower, value));
                }
                let found: Vec<_> = headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
                prop_assert_eq!(&found, &lines);
                for (name, field) in NAMES {
                    let by_name: Vec<_> = headers.get_all(name).collect();
                    prop_assert_eq!(headers.values_of(field).collect::<Vec<_>>(), by_name.clone());
                    prop_assert_eq!(headers.has(field), !by_name.is_empty());
                    let mut written = Vec::new();
                    headers.write_without(FieldSet::of(&[field]), &mut written);
                    let mut others = headers.clone();
                    others.remove(name);
                    prop_assert_eq!(written, others.wire());
                }
            }
        }
    }

    #[test]
    fn reads_its_wire_form_and_nothing_else() {
        let wire = b"content-type: text/html\r\nx: \r\n";
        let headers = Headers::from_wire(wire).unwrap();
        assert_eq!(headers.wire(), wire);
        assert_eq!(headers.get_str("x"), Some(""));
        for broken in [
            "a: b",
            "a: b\n",
            "a:b\r\n",
            "a: b \r\n",
            "A: b\r\n",
            "a\r\n",
            "\r\n",
            ": b\r\n",
            "a: b\0\r\n",
            "a: b\rc\r\n",
            "a b: c\r\n",
        ] {
            assert!(Headers::from_wire(broken.as_bytes()).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn finds_every_name_however_the_line_was_added() {
        let names: Vec<_> = (0..200)
            .map(|index| format!("X-{}{index}", "ab-_9".repeat(index % 7)))
            .collect();
        let (mut pushed, mut received, mut appended) =
            (Headers::new(), Headers::new(), Headers::new());
        for name in &names {
            pushed.try_append(name, "1").unwrap();
            let line = format!("{name}: 1\r\n");
            received
                .receive(line.as_bytes(), &mut 1, FieldSet::default(), |_, _| {
                    Ok::<_, ()>(true)
                })
                .unwrap();
            let mut one = Headers::new();
            one.try_append(name, "1").unwrap();
            appended.append_from(&one, |_, _| true);
        }
        let mut copied = Headers::new();
        copied.append_from(&pushed, |_, _| true);
        for mut headers in [pushed, received, appended, copied] {
            for name in &names {
                assert!(headers.contains(name), "{name}");
                assert!(headers.contains(name.to_ascii_lowercase()), "{name}");
                assert!(!headers.contains(format!("{name}x")), "{name}");
                assert!(headers.remove(name.to_ascii_uppercase()), "{name}");
                assert!(!headers.contains(name), "{name}");
            }
        }
    }

    #[test]
    fn removes_and_replaces_every_line_of_a_name() {
        let mut headers = Headers::new();
        for (name, value) in [("a", "1"), ("b", "2"), ("A", "3"), ("c", "4")] {
            headers.try_append(name, value).unwrap();
        }
        headers.try_insert("a", "5").unwrap();
        assert_eq!(headers.wire(), b"b: 2\r\nc: 4\r\na: 5\r\n");
        assert!(headers.remove("B"));
        assert!(!headers.remove("B"));
        let lines: Vec<_> = headers.iter().collect();
        assert_eq!(lines, [("c", &b"4"[..]), ("a", &b"5"[..])]);
    }

    #[test]
    fn appends_the_wanted_lines_of_another_section() {
        let mut from = Headers::new();
        for (name, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
            from.try_append(name, value).unwrap();
        }
        let mut to = Headers::new();
        to.try_append("x", "0").unwrap();
        to.append_from(&from, |name, value| name != b"b" && value != b"0");
        assert_eq!(to.wire(), b"x: 0\r\na: 1\r\nc: 3\r\n");
        assert!(to.remove("a"));
        assert_eq!(to.get_str("c"), Some("3"));
    }

    #[test]
    fn refuses_what_would_split_a_message() {
        let mut headers = Headers::new();
        for name in ["", "a b", "a:", "a\r", "é"] {
            assert_eq!(
                headers.try_append(name, "x"),
                Err(InvalidField::Name),
                "{name:?}"
            );
        }
        for value in ["a\rb", "a\nb", "a\0b", "\x7f"] {
            assert_eq!(
                headers.try_append("x", value),
                Err(InvalidField::Value),
                "{value:?}"
            );
        }
        assert!(headers.is_empty());
    }
}
