//! Dictionaries of structured fields (RFC 9651 section 4.2.2), the part that cache directives need.

use crate::grammar::is_token;

/// A dictionary, in the order of its members. Parameters are checked and left out.
pub(super) struct Dictionary<'a>(Vec<(&'a [u8], DictionaryItem<'a>)>);

/// The value of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DictionaryItem<'a> {
    /// An integer with its sign and at most 15 digits.
    Integer(&'a [u8]),
    /// A string: the text between the quotation marks, with its backslashes.
    String(&'a [u8]),
    /// A token.
    Token(&'a [u8]),
    /// `?0`, `?1`, or no value at all, which means true.
    Boolean(bool),
    /// A decimal, a byte sequence, a date, a display string, an inner list.
    Other,
}

impl<'a> Dictionary<'a> {
    /// Reads a dictionary; `None` if it is empty or anything in it is malformed.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut reader = DictionaryReader(text);
        let mut members: Vec<(&[u8], DictionaryItem<'_>)> = Vec::new();
        reader.spaces();
        loop {
            let key = reader.key()?;
            let item = if reader.take(b'=') {
                reader.item_or_list()?
            } else {
                DictionaryItem::Boolean(true)
            };
            reader.parameters()?;
            members.retain(|(known, _)| *known != key);
            members.push((key, item));
            reader.white_space();
            if reader.0.is_empty() {
                return Some(Self(members));
            }
            if !reader.take(b',') {
                return None;
            }
            reader.white_space();
        }
    }

    /// The members, each name once.
    pub(super) fn members(&self) -> impl Iterator<Item = (&'a [u8], DictionaryItem<'a>)> {
        self.0.iter().copied()
    }
}

/// The rest of the text.
struct DictionaryReader<'a>(&'a [u8]);

impl<'a> DictionaryReader<'a> {
    fn take(&mut self, expected: u8) -> bool {
        match self.0.split_first() {
            Some((byte, rest)) if *byte == expected => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|byte| !wanted(*byte));
        let (taken, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    fn spaces(&mut self) {
        self.take_while(|byte| byte == b' ');
    }

    fn white_space(&mut self) {
        self.take_while(|byte| matches!(byte, b' ' | b'\t'));
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.0.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        ))
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.spaces();
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<DictionaryItem<'a>> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        loop {
            self.spaces();
            if self.take(b')') {
                return Some(DictionaryItem::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn bare_item(&mut self) -> Option<DictionaryItem<'a>> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(DictionaryItem::String),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                Some(DictionaryItem::Token(self.take_while(|byte| {
                    is_token(byte) || matches!(byte, b':' | b'/')
                })))
            }
            b'?' => {
                self.take(b'?');
                if self.take(b'1') {
                    return Some(DictionaryItem::Boolean(true));
                }
                self.take(b'0').then_some(DictionaryItem::Boolean(false))
            }
            b':' => {
                self.take(b':');
                self.take_while(
                    |byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' | b'='),
                );
                self.take(b':').then_some(DictionaryItem::Other)
            }
            b'@' => {
                self.take(b'@');
                let date = self.number()?;
                matches!(date, DictionaryItem::Integer(_)).then_some(DictionaryItem::Other)
            }
            b'%' => {
                self.take(b'%');
                self.string().map(|_| DictionaryItem::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<DictionaryItem<'a>> {
        let text = self.0;
        let sign = usize::from(self.take(b'-'));
        let whole = self.take_while(|byte| byte.is_ascii_digit()).len();
        if self.take(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit()).len();
            return (matches!(whole, 1..=12) && matches!(fraction, 1..=3))
                .then_some(DictionaryItem::Other);
        }
        let number = text.get(..sign.saturating_add(whole))?;
        matches!(whole, 1..=15).then_some(DictionaryItem::Integer(number))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        if !self.take(b'"') {
            return None;
        }
        let text = self.0;
        let mut len = 0_usize;
        loop {
            len = len.saturating_add(
                self.take_while(|byte| {
                    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
                })
                .len(),
            );
            if self.take(b'"') {
                return text.get(..len);
            }
            if !self.take(b'\\') || !(self.take(b'"') || self.take(b'\\')) {
                return None;
            }
            len = len.saturating_add(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_type() {
        let text = b"  a=1, b=-15;x;y=1.5 ,\tc=\"q\\\"\", d=t/x, e, f=?0, g=(1 \"a\";b  c), \
                     h=:YQ==:, i=@1, j=%\"z\", k=1.25, a=2";
        let members: Vec<_> = Dictionary::parse(text).unwrap().members().collect();
        assert_eq!(
            members,
            [
                (&b"b"[..], DictionaryItem::Integer(b"-15")),
                (b"c", DictionaryItem::String(b"q\\\"")),
                (b"d", DictionaryItem::Token(b"t/x")),
                (b"e", DictionaryItem::Boolean(true)),
                (b"f", DictionaryItem::Boolean(false)),
                (b"g", DictionaryItem::Other),
                (b"h", DictionaryItem::Other),
                (b"i", DictionaryItem::Other),
                (b"j", DictionaryItem::Other),
                (b"k", DictionaryItem::Other),
                (b"a", DictionaryItem::Integer(b"2")),
            ]
        );
    }

    #[test]
    fn one_fault_makes_a_dictionary_invalid() {
        for text in [
            "",
            " ",
            "a,",
            "a,,b",
            "A=1",
            "a =1",
            "a= 1",
            "a=1 b",
            "a=1234567890123456",
            "a=1.",
            "a=1.2345",
            "a=-",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{e9}\"",
            "a=?2",
            "a=(1",
            "a=(1,2)",
            "a=:x",
            "a=@1.5",
            "a;=1",
            "a=;b",
        ] {
            assert!(Dictionary::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
