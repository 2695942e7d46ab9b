//! The words of a condition.

use std::ops::Range;

use crate::mistake::Mistake;

/// A word of a condition, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionToken {
    pub(crate) kind: TokenKind,
    pub(crate) place: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// `path`, `header.accept`, `and`; and values without quotes: `10kb`, `10.0.0.0/8`, `08:30`.
    Word(String),
    /// `"text"`.
    Text(String),
    /// `@name`: a list of the configuration.
    List(String),
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`, `~`, `!~`.
    Sign(&'static str),
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
}

/// The longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 8] = ["==", "!=", "<=", ">=", "!~", "<", ">", "~"];

/// What is often written, and what it is here.
const OTHER_SIGNS: [(&str, &str); 5] = [
    ("&&", "and"),
    ("||", "or"),
    ("!", "not"),
    ("=", "=="),
    ("'", "\""),
];

/// Splits a condition into its words.
pub(crate) fn tokens(text: &str) -> Result<Vec<ConditionToken>, Mistake> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (kind, len) = token(rest, at)?;
        found.push(ConditionToken {
            kind,
            place: at..at + len,
        });
        at += len;
    }
    Ok(found)
}

fn token(rest: &str, at: usize) -> Result<(TokenKind, usize), Mistake> {
    if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        return Ok((TokenKind::Sign(sign), sign.len()));
    }
    let first = rest.chars().next().unwrap_or_default();
    let single = match first {
        '(' => Some(TokenKind::Open),
        ')' => Some(TokenKind::Close),
        '[' => Some(TokenKind::OpenList),
        ']' => Some(TokenKind::CloseList),
        ',' => Some(TokenKind::Comma),
        _ => None,
    };
    if let Some(kind) = single {
        return Ok((kind, 1));
    }
    if first == '"' {
        return quoted(rest, at);
    }
    let is_list = first == '@';
    let word = rest.get(usize::from(is_list)..).unwrap_or_default();
    let len = word
        .find(|character| !is_of_word(character))
        .unwrap_or(word.len());
    let word = word.get(..len).unwrap_or_default().to_owned();
    match (is_list, len) {
        (true, 0) => Err(Mistake::new(
            at..at + 1,
            "expected the name of a list after `@`",
        )),
        (true, _) => Ok((TokenKind::List(word), len + 1)),
        (false, 0) => Err(unexpected(rest, at)),
        (false, _) => Ok((TokenKind::Word(word), len)),
    }
}

fn unexpected(rest: &str, at: usize) -> Mistake {
    let other = OTHER_SIGNS
        .iter()
        .find(|(other, _)| rest.starts_with(other));
    let first = rest.chars().next().unwrap_or_default();
    match other {
        Some((other, own)) => Mistake::new(
            at..at + other.len(),
            format!("write `{own}` instead of `{other}`"),
        ),
        None => Mistake::new(
            at..at + first.len_utf8(),
            format!("unexpected `{first}`; text stands in double quotes"),
        ),
    }
}

/// Characters of names, numbers with units, addresses, networks and times.
fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '_' | '-' | '.' | '/' | ':' | '%' | '*')
}

/// A text in double quotes. `\"` and `\\` stand for `"` and `\`; before other characters a backslash is itself, so that regular
/// expressions are written as they are.
fn quoted(rest: &str, at: usize) -> Result<(TokenKind, usize), Mistake> {
    let mut text = String::new();
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((offset, character)) = characters.next() {
        match character {
            '"' => return Ok((TokenKind::Text(text), offset + 1)),
            '\\' => match characters.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                Some((_, escaped)) => text.push(escaped),
                None => text.push('\\'),
            },
            other => text.push(other),
        }
    }
    Err(Mistake::new(
        at..at + rest.len(),
        "the text has no closing `\"`",
    ))
}
