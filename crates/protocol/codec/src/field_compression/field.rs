//! A decoded field line, and which of its parts are valid (RFC 9113 section 8.2.1, RFC 9114 section 4.2).

use apus_http::grammar::{is_field_content, is_token};

/// A decoded field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, which begins with a colon if this is a pseudo-header field.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether name and value have only allowed bytes (RFC 9113 section 8.2.1): the name is a token without
    /// upper case, after a colon if it is a pseudo-header field; the value has no control characters
    /// except tabs, and no white space around it. Table entries are checked once, when they are added.
    pub is_valid: bool,
    /// Whether the sender marked it as never indexed. An intermediary has to forward it in the same way
    /// (RFC 7541 section 6.2.3, RFC 9204 section 4.5.4).
    pub never_indexed: bool,
}

/// Which parts of a field line are valid, in the form of a mark of its table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldValidity(u32);

impl FieldValidity {
    /// A valid name and a valid value.
    pub const VALID: Self = Self(3);
    const NAME: u32 = 1;
    const VALUE: u32 = 2;

    /// The validity of a table entry with this mark.
    #[inline]
    pub fn of_mark(mark: u32) -> Self {
        Self(mark)
    }

    /// The mark of a table entry.
    #[inline]
    pub fn mark(self) -> u32 {
        self.0
    }

    /// The validity of a name, without a value.
    pub fn of_name(name: &[u8]) -> Self {
        Self(if is_name(name) { Self::NAME } else { 0 })
    }

    /// The validity of the same name with another value.
    #[must_use]
    pub fn with_value(self, value: &[u8]) -> Self {
        let value = if is_value(value) { Self::VALUE } else { 0 };
        Self(self.0 & Self::NAME | value)
    }

    /// Whether both parts are valid.
    #[inline]
    pub fn is_valid(self) -> bool {
        self == Self::VALID
    }
}

/// Whether this is a valid name of a field or a pseudo-header field.
fn is_name(name: &[u8]) -> bool {
    let token = name.strip_prefix(b":").unwrap_or(name);
    !token.is_empty()
        && token
            .iter()
            .all(|byte| is_token(*byte) && !byte.is_ascii_uppercase())
}

/// Whether this is a valid field value.
fn is_value(value: &[u8]) -> bool {
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) && is_field_content(value)
}
