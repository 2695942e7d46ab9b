//! The lines of a map in a file: a key and its value.

use std::borrow::Cow;
use std::fmt;

/// An entry of a map in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapLine<'a> {
    /// The number of the line, from 1.
    pub number: usize,
    /// The key.
    pub key: Cow<'a, str>,
    /// The value.
    pub value: Cow<'a, str>,
}

/// A line that is no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMapLine {
    /// The number of the line, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub message: &'static str,
}

impl fmt::Display for InvalidMapLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.message)
    }
}

impl std::error::Error for InvalidMapLine {}

/// The entries of a file: a key and a value on each line, with white space between them. `#` at the beginning of a line or behind white
/// space begins a comment. A `;` at the end is left out, as files for nginx have it. A key or a value may stand in quotes,
/// within which `\` stands before a quote and before another `\`; a value without quotes ends with its line.
pub fn map_lines(text: &str) -> impl Iterator<Item = Result<MapLine<'_>, InvalidMapLine>> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    lines.filter_map(|(index, line)| {
        let number = index.saturating_add(1);
        match entry(line.trim()) {
            Ok(None) => None,
            Ok(Some((key, value))) => Some(Ok(MapLine { number, key, value })),
            Err(message) => Some(Err(InvalidMapLine { number, message })),
        }
    })
}

type Entry<'a> = (Cow<'a, str>, Cow<'a, str>);

fn entry(line: &str) -> Result<Option<Entry<'_>>, &'static str> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (key, rest) = match line.chars().next() {
        Some(quote @ ('"' | '\'')) => quoted(line, quote)?,
        _ => {
            let end = line.find(char::is_whitespace).unwrap_or(line.len());
            let (key, rest) = line.split_at_checked(end).unwrap_or((line, ""));
            if key == "default" {
                return Err(
                    "the map has the key `default` for values that are not there; quotes make it a key",
                );
            }
            (Cow::Borrowed(key), rest)
        }
    };
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return Err("expected white space behind the key");
    }
    let rest = rest.trim_start();
    let value = match rest.chars().next() {
        None | Some('#' | ';') => return Err("expected a value behind the key"),
        Some(quote @ ('"' | '\'')) => {
            let (value, rest) = quoted(rest, quote)?;
            let rest = rest.trim_start();
            let rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err("expected nothing behind the value");
            }
            value
        }
        Some(_) => {
            let value = without_comment(rest).trim_end();
            let value = value.strip_suffix(';').unwrap_or(value).trim_end();
            if value.is_empty() {
                return Err("expected a value behind the key");
            }
            Cow::Borrowed(value)
        }
    };
    Ok(Some((key, value)))
}

/// A text without what is behind `#`, where white space stands before it.
fn without_comment(text: &str) -> &str {
    let comment = text.match_indices('#').find(|(at, _)| {
        let before = text.get(..*at).unwrap_or_default();
        before.ends_with(char::is_whitespace)
    });
    match comment {
        Some((at, _)) => text.get(..at).unwrap_or_default(),
        None => text,
    }
}

/// A text in quotes at the beginning, and the rest.
fn quoted(text: &str, quote: char) -> Result<(Cow<'_, str>, &str), &'static str> {
    let inner = text.strip_prefix(quote).unwrap_or(text);
    let mut unescaped = String::new();
    // Where the part begins that is not copied yet.
    let mut from = 0;
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        let part = || inner.get(from..at).unwrap_or_default();
        if character == quote {
            let rest = inner.get(at.saturating_add(1)..).unwrap_or_default();
            let whole = if unescaped.is_empty() {
                Cow::Borrowed(part())
            } else {
                unescaped.push_str(part());
                Cow::Owned(unescaped)
            };
            return Ok((whole, rest));
        }
        if character == '\\'
            && inner
                .get(at.saturating_add(1)..)
                .is_some_and(|rest| rest.starts_with([quote, '\\']))
        {
            unescaped.push_str(part());
            from = at.saturating_add(1);
            characters.next();
        }
    }
    Err("the quote is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Result<Option<(&str, &str)>, &str>) {
        let found: Vec<_> = map_lines(line).collect();
        let expected: Vec<_> = match expected {
            Ok(None) => Vec::new(),
            Ok(Some((key, value))) => vec![Ok(MapLine {
                number: 1,
                key: key.into(),
                value: value.into(),
            })],
            Err(message) => {
                let found = found.first().unwrap().as_ref().unwrap_err();
                assert!(found.message.contains(message), "{line}: {found}");
                return;
            }
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn a_line_has_a_key_and_a_value() {
        for (line, expected) in [
            ("", Ok(None)),
            ("  # only a comment", Ok(None)),
            ("\u{feff}a b", Ok(Some(("a", "b")))),
            ("a\tb c  ", Ok(Some(("a", "b c")))),
            ("a b; # as in nginx", Ok(Some(("a", "b")))),
            ("a b#c ;", Ok(Some(("a", "b#c")))),
            ("~^/a;b$ c", Ok(Some(("~^/a;b$", "c")))),
            (
                "10.0.0.0/8 inside # ours",
                Ok(Some(("10.0.0.0/8", "inside"))),
            ),
            (r#""a b" "c # d;";"#, Ok(Some(("a b", "c # d;")))),
            (r#"'it' "\"\\\d""#, Ok(Some(("it", r#""\\d"#)))),
            (r#""\\" x"#, Ok(Some(("\\", "x")))),
            (r#""" none"#, Ok(Some(("", "none")))),
            (r#"a """#, Ok(Some(("a", "")))),
            ("\"default\" x", Ok(Some(("default", "x")))),
            ("default x;", Err("the map has the key")),
            ("a", Err("expected a value")),
            ("hostnames;", Err("expected a value")),
            ("a ;", Err("expected a value")),
            ("a # b", Err("expected a value")),
            ("\"a b", Err("not closed")),
            ("\"a\"b c", Err("expected white space")),
            ("a \"b\" c", Err("expected nothing")),
        ] {
            check(line, expected);
        }
    }

    #[test]
    fn lines_have_their_numbers() {
        let numbers: Vec<_> = map_lines("# a\r\n\r\na b\r\nc\n\nd e")
            .map(|line| line.map(|line| line.number).map_err(|line| line.number))
            .collect();
        assert_eq!(numbers, [Ok(3), Err(4), Ok(6)]);
    }
}
