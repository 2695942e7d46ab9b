//! Dictionaries of structured fields (RFC 9651) with inner lists and parameters, which message signatures write anew in one form.
//!
//! Decimals, dates and display strings are of no use here, and invalid. So is what a dictionary has twice: two readers would
//! take different values.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The most members, items of a list, and parameters.
const MAX_MEMBERS: usize = 16;
/// The most bytes of a field.
pub(super) const MAX_BYTES: usize = 8192;

/// A dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldDictionary<'a>(Vec<(&'a str, FieldMember<'a>)>);

/// A value of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldMember<'a> {
    Item(FieldItem<'a>),
    List(FieldList<'a>),
}

/// A list in parentheses, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldList<'a> {
    pub(super) items: Vec<FieldItem<'a>>,
    pub(super) parameters: FieldParameters<'a>,
}

/// A value with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldItem<'a> {
    pub(super) value: FieldValue<'a>,
    pub(super) parameters: FieldParameters<'a>,
}

/// FieldParameters, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldParameters<'a>(Vec<(&'a str, FieldValue<'a>)>);

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Integer(i64),
    Text(Cow<'a, str>),
    Token(&'a str),
    Bytes(Vec<u8>),
    Flag(bool),
}

impl<'a> FieldDictionary<'a> {
    /// Reads the value of a field, whose lines were joined.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let mut reader = StructuredFieldReader(text.trim_matches(' '));
        let mut members: Vec<(&str, FieldMember<'_>)> = Vec::new();
        while !reader.0.is_empty() {
            let name = reader.key()?;
            if members.len() == MAX_MEMBERS || members.iter().any(|(known, _)| *known == name) {
                return None;
            }
            members.push((name, reader.member()?));
            reader.skip_whitespace();
            if reader.0.is_empty() {
                return Some(Self(members));
            }
            reader.expect(b',')?;
            reader.skip_whitespace();
            if reader.0.is_empty() {
                return None;
            }
        }
        Some(Self(members))
    }

    /// The member of this name.
    pub(super) fn get(&self, name: &str) -> Option<&FieldMember<'a>> {
        let mut members = self.0.iter();
        members
            .find(|(known, _)| *known == name)
            .map(|(_, member)| member)
    }

    /// The one value of a field that is no dictionary.
    pub(super) fn parse_item(text: &'a str) -> Option<FieldItem<'a>> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let mut reader = StructuredFieldReader(text.trim_matches(' '));
        let item = reader.item()?;
        reader.0.is_empty().then_some(item)
    }

    /// The members, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, &FieldMember<'a>)> {
        self.0.iter().map(|(name, member)| (*name, member))
    }
}

impl<'a> FieldParameters<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&FieldValue<'a>> {
        let mut values = self.0.iter();
        values
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, &FieldValue<'a>)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            FieldValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            FieldValue::Integer(number) => Some(*number),
            _ => None,
        }
    }

    fn write(&self, out: &mut String) {
        for (name, value) in &self.0 {
            out.push(';');
            out.push_str(name);
            if *value != FieldValue::Flag(true) {
                out.push('=');
                value.write(out);
            }
        }
    }
}

// RFC 9651 section 4.1: each value has one form, whatever the sender has written.
impl FieldMember<'_> {
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Item(item) => item.write(out),
            Self::List(list) => list.write(out),
        }
    }
}

impl FieldList<'_> {
    pub(super) fn write(&self, out: &mut String) {
        out.push('(');
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                out.push(' ');
            }
            item.write(out);
        }
        out.push(')');
        self.parameters.write(out);
    }
}

impl FieldItem<'_> {
    pub(super) fn write(&self, out: &mut String) {
        self.value.write(out);
        self.parameters.write(out);
    }
}

impl FieldValue<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Integer(number) => {
                // Writing to a `String` never fails.
                let _ = write!(out, "{number}");
            }
            Self::Text(text) => {
                out.push('"');
                for character in text.chars() {
                    if matches!(character, '"' | '\\') {
                        out.push('\\');
                    }
                    out.push(character);
                }
                out.push('"');
            }
            Self::Token(token) => out.push_str(token),
            Self::Bytes(bytes) => {
                out.push(':');
                STANDARD.encode_string(bytes, out);
                out.push(':');
            }
            Self::Flag(flag) => out.push_str(if *flag { "?1" } else { "?0" }),
        }
    }
}

/// What is left of a field.
struct StructuredFieldReader<'a>(&'a str);

impl<'a> StructuredFieldReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.as_bytes().first().copied()
    }

    fn take_if(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(char::from(byte));
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take_if(byte).then_some(())
    }

    /// What comes before the first byte that does not fit.
    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a str {
        let end = self.0.bytes().position(|byte| !fits(byte));
        let (taken, rest) = self
            .0
            .split_at_checked(end.unwrap_or(self.0.len()))
            .unwrap_or(("", self.0));
        self.0 = rest;
        taken
    }

    /// Whitespace between the members of a dictionary.
    fn skip_whitespace(&mut self) {
        self.take_while(|byte| matches!(byte, b' ' | b'\t'));
    }

    fn key(&mut self) -> Option<&'a str> {
        if !self
            .peek()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'*')
        {
            return None;
        }
        Some(self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        ))
    }

    fn member(&mut self) -> Option<FieldMember<'a>> {
        if !self.take_if(b'=') {
            return Some(FieldMember::Item(FieldItem {
                value: FieldValue::Flag(true),
                parameters: self.parameters()?,
            }));
        }
        if !self.take_if(b'(') {
            return self.item().map(FieldMember::Item);
        }
        let mut items = Vec::new();
        loop {
            self.take_while(|byte| byte == b' ');
            if self.take_if(b')') {
                break;
            }
            if items.len() == MAX_MEMBERS {
                return None;
            }
            items.push(self.item()?);
            if !matches!(self.peek(), Some(b' ' | b')')) {
                return None;
            }
        }
        Some(FieldMember::List(FieldList {
            items,
            parameters: self.parameters()?,
        }))
    }

    fn item(&mut self) -> Option<FieldItem<'a>> {
        Some(FieldItem {
            value: self.bare()?,
            parameters: self.parameters()?,
        })
    }

    fn parameters(&mut self) -> Option<FieldParameters<'a>> {
        let mut parameters: Vec<(&str, FieldValue<'_>)> = Vec::new();
        while self.take_if(b';') {
            self.take_while(|byte| byte == b' ');
            let name = self.key()?;
            let is_known = parameters.iter().any(|(known, _)| *known == name);
            if is_known || parameters.len() == MAX_MEMBERS {
                return None;
            }
            let value = if self.take_if(b'=') {
                self.bare()?
            } else {
                FieldValue::Flag(true)
            };
            parameters.push((name, value));
        }
        Some(FieldParameters(parameters))
    }

    fn bare(&mut self) -> Option<FieldValue<'a>> {
        match self.peek()? {
            b'"' => self.text().map(FieldValue::Text),
            b':' => {
                self.expect(b':')?;
                let encoded = self.take_while(|byte| byte != b':');
                self.expect(b':')?;
                STANDARD.decode(encoded).ok().map(FieldValue::Bytes)
            }
            b'?' => {
                self.expect(b'?')?;
                let flag = self.take_if(b'1');
                (flag || self.take_if(b'0')).then_some(FieldValue::Flag(flag))
            }
            b'-' | b'0'..=b'9' => self.integer().map(FieldValue::Integer),
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => Some(FieldValue::Token(self.take_while(|byte| {
                byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
            }))),
            _ => None,
        }
    }

    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.take_if(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 || self.peek() == Some(b'.') {
            return None;
        }
        let number: i64 = digits.parse().ok()?;
        Some(if is_negative {
            number.saturating_neg()
        } else {
            number
        })
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let is_plain = |byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        let plain = self.take_while(is_plain);
        if self.take_if(b'"') {
            return Some(Cow::Borrowed(plain));
        }
        let mut text = plain.to_owned();
        loop {
            if self.take_if(b'"') {
                return Some(Cow::Owned(text));
            }
            self.expect(b'\\')?;
            let escaped = self.peek().filter(|byte| matches!(byte, b'"' | b'\\'))?;
            self.expect(escaped)?;
            text.push(char::from(escaped));
            text.push_str(self.take_while(is_plain));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Option<String> {
        let dictionary = FieldDictionary::parse(text)?;
        let mut out = String::new();
        for (at, (name, member)) in dictionary.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            out.push_str(name);
            out.push('=');
            member.write(&mut out);
        }
        Some(out)
    }

    #[test]
    fn values_have_one_form() {
        for (text, expected) in [
            ("", ""),
            ("a=1", "a=1"),
            (" a=007 ,\tb=-0 ", "a=7, b=0"),
            ("a", "a=?1"),
            ("a;x;y=?0", "a=?1;x;y=?0"),
            ("a=?1;x=?1", "a=?1;x"),
            (r#"a="b \"c\" \\ d""#, r#"a="b \"c\" \\ d""#),
            ("a=tok/en:*", "a=tok/en:*"),
            ("*a.b-c_=:aGk=:", "*a.b-c_=:aGk=:"),
            ("a=()", "a=()"),
            ("a=(  \"x\";k=\"y\"   b );c=1", "a=(\"x\";k=\"y\" b);c=1"),
            ("a=(1 2);  b;c", "a=(1 2);b;c"),
        ] {
            assert_eq!(written(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_has_two_readings_is_invalid() {
        let many: String = (0..17).map(|at| format!("a{at},")).collect();
        let long = format!("a=\"{}\"", "x".repeat(MAX_BYTES));
        for text in [
            "a=1,",
            ",a=1",
            "a=1 b=2",
            "a=1,,b",
            "a=1, a=2",
            "a;x=1;x=2",
            "A=1",
            "1=1",
            "a=",
            "a= 1",
            "a=1.5",
            "a=1.",
            "a=1234567890123456",
            "a=@1",
            "a=%\"x\"",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{e4}\"",
            "a=\"\t\"",
            "a=:aGk:",
            "a=:aG k=:",
            "a=:a",
            "a=?2",
            "a=(1",
            "a=(1\t2)",
            "a=(1,2)",
            "a=(\"x\"\"y\")",
            "a=((1))",
            "a=(1) ;b",
            "a=1;",
            "a=1;=2",
            "a\u{0}",
            many.trim_end_matches(','),
            &long,
        ] {
            assert_eq!(FieldDictionary::parse(text), None, "{text}");
        }
    }
}
