//! Comma-separated lists in field values and the parameters of their members (RFC 9110 sections 5.6.1 and 5.6.6).

use crate::grammar::trim;

/// The members of a list whose grammar has no quoted strings. Empty members are left out.
pub fn members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(trim)
        .filter(|member| !member.is_empty())
}

/// Whether a list without quoted strings has this member, in any case.
pub fn has_member(value: &[u8], member: impl AsRef<[u8]>) -> bool {
    members(value).any(|found| found.eq_ignore_ascii_case(member.as_ref()))
}

/// The members of a list whose grammar has quoted strings: a comma in one does not end a member. Empty
/// members are left out.
///
/// A quotation mark that is never closed begins no string, so that it hides no member.
pub fn quoted_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    QuotedSplit::new(value, b',').filter(|member| !member.is_empty())
}

/// The part of a member before the first `;`, and its parameters, which may hold quoted strings. Empty
/// parameters are left out.
pub fn parameters(member: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let mut parts = QuotedSplit::new(member, b';');
    let name = parts.next().unwrap_or_default();
    (name, parts.filter(|parameter| !parameter.is_empty()))
}

/// The parts between separators outside of quoted strings, without white space around them.
struct QuotedSplit<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
    /// Whether a quotation mark was never closed. No string begins after it.
    is_unclosed: bool,
}

impl<'a> QuotedSplit<'a> {
    fn new(value: &'a [u8], separator: u8) -> Self {
        Self {
            rest: Some(value),
            separator,
            is_unclosed: false,
        }
    }

    /// Where the first part of the rest ends.
    fn end(&mut self, rest: &[u8]) -> Option<usize> {
        let (mut is_quoted, mut is_escaped) = (false, false);
        let mut quoted_separator = None;
        for (at, byte) in rest.iter().enumerate() {
            if *byte == self.separator {
                if !is_quoted {
                    return Some(at);
                }
                quoted_separator = quoted_separator.or(Some(at));
            }
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_quoted => is_escaped = true,
                b'"' if !self.is_unclosed => {
                    is_quoted = !is_quoted;
                    quoted_separator = None;
                }
                _ => {}
            }
        }
        self.is_unclosed |= is_quoted;
        quoted_separator
    }
}

impl<'a> Iterator for QuotedSplit<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let part = match self.end(rest).and_then(|end| rest.split_at_checked(end)) {
            Some((part, after)) => {
                self.rest = after.get(1..);
                part
            }
            None => {
                self.rest = None;
                rest
            }
        };
        Some(trim(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<&'a str> {
        parts
            .map(|part| std::str::from_utf8(part).unwrap())
            .collect()
    }

    #[test]
    fn leaves_out_white_space_and_empty_members() {
        for value in ["a,b c", " a ,\tb c\t", ",a,, b c , ,"] {
            assert_eq!(texts(members(value.as_bytes())), ["a", "b c"], "{value}");
            assert_eq!(texts(quoted_members(value.as_bytes())), ["a", "b c"]);
        }
        assert_eq!(texts(members(b"\"a,b\"")), ["\"a", "b\""]);
        for value in ["", " ", ",", " , ,"] {
            assert_eq!(members(value.as_bytes()).count(), 0, "{value:?}");
            assert_eq!(quoted_members(value.as_bytes()).count(), 0, "{value:?}");
        }
        assert!(has_member(b"a, Bc", "bC"));
        assert!(!has_member(b"a, Bc", "b"));
    }

    #[test]
    fn does_not_split_quoted_strings() {
        for (value, expected) in [
            ("a=\"x, y\", b", &["a=\"x, y\"", "b"][..]),
            (r#""\",", a"#, &[r#""\",""#, "a"]),
            (r#""\\",a"#, &[r#""\\""#, "a"]),
            (r"a\,b", &[r"a\", "b"]),
        ] {
            assert_eq!(texts(quoted_members(value.as_bytes())), expected, "{value}");
        }
    }

    #[test]
    fn an_unclosed_quotation_mark_hides_no_member() {
        for (value, expected) in [
            ("a=\"x, b, c", &["a=\"x", "b", "c"][..]),
            ("\"a\", \"b, c", &["\"a\"", "\"b", "c"]),
            (r#""\",\",b"#, &[r#""\""#, r#"\""#, "b"]),
            ("a, \"", &["a", "\""]),
        ] {
            assert_eq!(texts(quoted_members(value.as_bytes())), expected, "{value}");
        }
    }

    #[test]
    fn splits_a_member_into_its_name_and_parameters() {
        for (member, name, expected) in [
            ("text/html", "text/html", &[][..]),
            ("a ; b=1;; c=\"x;y\" ;", "a", &["b=1", "c=\"x;y\""]),
            (";q=1", "", &["q=1"]),
        ] {
            let (found, parameters) = parameters(member.as_bytes());
            assert_eq!(found, name.as_bytes());
            assert_eq!(texts(parameters), expected, "{member}");
        }
    }
}
