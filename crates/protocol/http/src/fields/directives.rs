//! Lists of directives with an optional argument (RFC 9111 section 5.2).

use crate::grammar::is_token;
use crate::list;

/// A directive as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Directive<'a> {
    /// Its name, in any case.
    pub(super) name: &'a [u8],
    /// What follows the name.
    pub(super) argument: DirectiveArgument<'a>,
}

/// What follows the name of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectiveArgument<'a> {
    /// Nothing.
    None,
    /// `=` and a token.
    Token(&'a [u8]),
    /// `=` and a quoted string: the text between the quotation marks, with its backslashes.
    Quoted(&'a [u8]),
    /// Anything else.
    Malformed,
}

impl<'a> DirectiveArgument<'a> {
    /// The text of the argument; `None` if it is absent or malformed.
    pub(super) fn text(self) -> Option<&'a [u8]> {
        match self {
            Self::Token(text) | Self::Quoted(text) => Some(text),
            Self::None | Self::Malformed => None,
        }
    }
}

/// The directives of one line. Members without a name are left out.
pub(super) fn directives(line: &[u8]) -> impl Iterator<Item = Directive<'_>> {
    list::quoted_members(line).filter_map(directive)
}

fn directive(member: &[u8]) -> Option<Directive<'_>> {
    let end = member.iter().position(|byte| !is_token(*byte));
    let (name, rest) = member.split_at(end.unwrap_or(member.len()));
    let argument = match rest {
        [] => DirectiveArgument::None,
        [b'=', b'"', quoted @ .., b'"'] if is_closed(quoted) => DirectiveArgument::Quoted(quoted),
        [b'=', token @ ..] if !token.is_empty() && token.iter().all(|byte| is_token(*byte)) => {
            DirectiveArgument::Token(token)
        }
        _ => DirectiveArgument::Malformed,
    };
    (!name.is_empty()).then_some(Directive { name, argument })
}

/// Whether the text between the quotation marks has no unescaped one.
fn is_closed(quoted: &[u8]) -> bool {
    let mut is_escaped = false;
    for byte in quoted {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return false,
            _ => {}
        }
    }
    !is_escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<(&str, DirectiveArgument<'_>)> {
        directives(line.as_bytes())
            .map(|directive| {
                let name = std::str::from_utf8(directive.name).unwrap();
                (name, directive.argument)
            })
            .collect()
    }

    #[test]
    fn splits_at_commas_outside_of_quoted_strings() {
        use DirectiveArgument::{Malformed, None, Quoted, Token};
        assert_eq!(
            read(" a ,,b=1, c=\"x, \\\"y\",d=\"\", e"),
            [
                ("a", None),
                ("b", Token(b"1")),
                ("c", Quoted(b"x, \\\"y")),
                ("d", Quoted(b"")),
                ("e", None)
            ]
        );
        assert_eq!(
            read("a=, b =1, c= 1, =d, \"e\", f=\"g\"h, i=\"j, k"),
            [
                ("a", Malformed),
                ("b", Malformed),
                ("c", Malformed),
                ("f", Malformed),
                ("i", Malformed),
                ("k", None),
            ]
        );
        assert_eq!(read(""), []);
    }
}
