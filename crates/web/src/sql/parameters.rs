//! Parameters of statements, written `?`, as PostgreSQL wants them: `$1`, `$2` and so on.

use std::fmt::Write;

/// The statement with numbers in place of question marks; `??` becomes `?`. What stands in quotes,
/// in dollar quotes or in comments stays as it is.
pub(super) fn numbered(statement: &str) -> String {
    let mut numbered = String::with_capacity(statement.len().saturating_add(8));
    let mut rest = statement;
    let mut number = 0u32;
    while let Some(at) = rest.find(['?', '\'', '"', '-', '/', '$']) {
        let (before, from) = rest.split_at(at);
        numbered.push_str(before);
        let opaque = opaque(from);
        if opaque > 0 {
            let (text, after) = from.split_at(opaque);
            numbered.push_str(text);
            rest = after;
        } else if let Some(after) = from.strip_prefix("??") {
            numbered.push('?');
            rest = after;
        } else if let Some(after) = from.strip_prefix('?') {
            number = number.saturating_add(1);
            // Writing to a String does not fail.
            let _ = write!(numbered, "${number}");
            rest = after;
        } else {
            let (one, after) = from.split_at(1);
            numbered.push_str(one);
            rest = after;
        }
    }
    numbered.push_str(rest);
    numbered
}

/// How much of a text, from its start, holds no parameters whatever it says.
fn opaque(text: &str) -> usize {
    let until = |start: usize, end: &str| {
        let inside = text.get(start..).unwrap_or("");
        let found = inside.find(end).map(|at| at.saturating_add(end.len()));
        start.saturating_add(found.unwrap_or(inside.len()))
    };
    if text.starts_with('\'') {
        until(1, "'")
    } else if text.starts_with('"') {
        until(1, "\"")
    } else if text.starts_with("--") {
        until(2, "\n")
    } else if text.starts_with("/*") {
        until(2, "*/")
    } else if let Some(tag) = dollar_tag(text) {
        until(tag.len(), tag)
    } else {
        0
    }
}

/// What opens a dollar quote: `$$` or `$tag$`.
fn dollar_tag(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('$')?;
    let len = inside.find('$')?;
    let tag = inside.get(..len)?;
    let is_tag = !tag.starts_with(|first: char| first.is_ascii_digit())
        && tag.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_tag.then(|| text.get(..len.saturating_add(2)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_become_numbers_but_in_text_and_comments() {
        for (statement, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("a = ? AND b = ?", "a = $1 AND b = $2"),
            ("a = '?' AND b = ?", "a = '?' AND b = $1"),
            (
                "a = 'it''s ?' AND \"?\" = ?",
                "a = 'it''s ?' AND \"?\" = $1",
            ),
            ("a ?? b = ?", "a ? b = $1"),
            ("? -- ?\n ?", "$1 -- ?\n $2"),
            ("? /* ? */ ? - ? / ?", "$1 /* ? */ $2 - $3 / $4"),
            ("$$?$$ ? $x$ ? $$ ? $x$ ?", "$$?$$ $1 $x$ ? $$ ? $x$ $2"),
            ("'?", "'?"),
            ("é = ?", "é = $1"),
        ] {
            assert_eq!(numbered(statement), expected);
        }
    }
}
