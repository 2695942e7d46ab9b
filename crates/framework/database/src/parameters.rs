//! The parameters of a statement, written `?`, in PostgreSQL's form `$1` (PostgreSQL manual section 4.1).

use std::fmt::Write;

/// The statement with numbers in place of question marks; `??` becomes `?`. Strings, quoted
/// identifiers and comments stay as they are.
pub(crate) fn numbered(statement: &str) -> String {
    let mut numbered = String::with_capacity(statement.len().saturating_add(8));
    let mut rest = statement;
    let mut number = 0u32;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("??") {
            numbered.push('?');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('?') {
            number = number.saturating_add(1);
            // Writing to a String does not fail.
            let _ = write!(numbered, "${number}");
            rest = after;
        } else {
            let (token, after) = rest.split_at(token_len(rest));
            numbered.push_str(token);
            rest = after;
        }
    }
    numbered
}

/// The length of the first token of a text that is not empty: a string, an identifier, a comment, or
/// one other character. A token that is not closed ends with the text.
pub(crate) fn token_len(text: &str) -> usize {
    let until = |start: usize, end: &str| {
        let found = text.get(start..).and_then(|inside| inside.find(end));
        found.map_or(text.len(), |at| start + at + end.len())
    };
    match text.as_bytes() {
        [b'E' | b'e', b'\'', ..] => escape_string_len(text),
        // A doubled quote is the end of one string and the start of the next.
        [b'\'', ..] => until(1, "'"),
        [b'"', ..] => until(1, "\""),
        [b'-', b'-', ..] => until(2, "\n"),
        [b'/', b'*', ..] => comment_len(text),
        [b'$', ..] => dollar_tag(text).map_or(1, |tag| until(tag.len(), tag)),
        // Neither an `e` nor a `$` within an identifier starts a string.
        _ => match text.find(|c: char| !is_in_identifier(c)) {
            Some(0) => text.chars().next().map_or(0, char::len_utf8),
            Some(end) => end,
            None => text.len(),
        },
    }
}

/// Whether a character can stand in an identifier or a number.
fn is_in_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// The length of `E'...'`, in which a backslash escapes the next character.
fn escape_string_len(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate().skip(2);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'\'' if text.as_bytes().get(at + 1) == Some(&b'\'') => {
                bytes.next();
            }
            b'\'' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a comment, in which other comments may stand.
fn comment_len(text: &str) -> usize {
    let mut depth = 0u32;
    let mut at = 0;
    loop {
        match text.as_bytes().get(at..) {
            Some([b'/', b'*', ..]) => depth = depth.saturating_add(1),
            Some([b'*', b'/', ..]) => depth = depth.saturating_sub(1),
            Some([_, ..]) => {
                at += 1;
                continue;
            }
            _ => return text.len(),
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
}

/// The start of a dollar quote: `$$` or `$tag$`.
fn dollar_tag(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('$')?;
    let len = inside.find('$')?;
    let tag = inside.get(..len)?;
    let is_tag =
        !tag.starts_with(|first: char| first.is_ascii_digit()) && tag.chars().all(is_in_identifier);
    is_tag.then(|| text.get(..len.saturating_add(2)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(statements: &[(&str, &str)]) {
        for (statement, expected) in statements {
            assert_eq!(numbered(statement), *expected, "{statement}");
        }
    }

    #[test]
    fn question_marks_become_numbers() {
        check(&[
            ("SELECT 1", "SELECT 1"),
            ("a = ? AND b = ?", "a = $1 AND b = $2"),
            ("f(?,?)", "f($1,$2)"),
            ("a ?? b = ?", "a ? b = $1"),
            ("é = ? → ?", "é = $1 → $2"),
            ("? - ? / ?", "$1 - $2 / $3"),
        ]);
    }

    #[test]
    fn strings_and_quoted_identifiers_stay() {
        check(&[
            ("a = '?' AND b = ?", "a = '?' AND b = $1"),
            (
                "a = 'it''s ?' AND \"?\" = ?",
                "a = 'it''s ?' AND \"?\" = $1",
            ),
            (r"a = '?\' AND b = ?", r"a = '?\' AND b = $1"),
            ("'?", "'?"),
        ]);
    }

    #[test]
    fn escape_strings_end_at_a_quote_without_backslash() {
        check(&[
            (r"E'it\'s ?' = ?", r"E'it\'s ?' = $1"),
            (r"e'\\' = ?", r"e'\\' = $1"),
            (r"(E'?''\'?')=?", r"(E'?''\'?')=$1"),
            // No escape string: the `e` belongs to a name.
            (r"name'\' = ?", r"name'\' = $1"),
            (r"E'é\'?", r"E'é\'?"),
        ]);
    }

    #[test]
    fn comments_stay_and_nest() {
        check(&[
            ("? -- ?\n ?", "$1 -- ?\n $2"),
            ("? /* ? */ ?", "$1 /* ? */ $2"),
            ("/* /* */ ? */ ?", "/* /* */ ? */ $1"),
            ("/*/ ? */ ?", "/*/ ? */ $1"),
            ("/* é ?", "/* é ?"),
        ]);
    }

    #[test]
    fn dollar_quotes_stay() {
        check(&[
            ("$$?$$ ? $x$ ? $$ ? $x$ ?", "$$?$$ $1 $x$ ? $$ ? $x$ $2"),
            ("$tag$it's ?$tag$ = ?", "$tag$it's ?$tag$ = $1"),
            // No dollar quote: the `$` belongs to a name.
            ("a$b$ = ? AND c$b$ = ?", "a$b$ = $1 AND c$b$ = $2"),
            ("$1$ ?", "$1$ $1"),
        ]);
    }
}
