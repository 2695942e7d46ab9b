//! The facts about the fields of a response that a codec needs before it writes them.

use crate::grammar::parse_decimal;
use crate::known_field::{FieldSet, KnownField};

/// The facts about the fields of a response that a codec needs before it writes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldSummary {
    /// The value of `Content-Length`; `None` if there is none, more than one, or no number.
    pub content_length: Option<u64>,
    /// Whether there is `Content-Length`, valid or not.
    pub has_content_length: bool,
    /// Whether its line can be sent unchanged if the value is the right one.
    pub is_length_line_kept: bool,
    /// Whether there is `Date`.
    pub has_date: bool,
    /// Whether there is `Server`.
    pub has_server: bool,
    /// Whether there is `Alt-Svc`.
    pub has_alt_svc: bool,
    /// Whether there are hop-by-hop fields.
    pub has_connection_fields: bool,
}

impl FieldSummary {
    /// The fields that it is about.
    pub(crate) const FIELDS: FieldSet = FieldSet::CONNECTION.and(FieldSet::of(&[
        KnownField::ContentLength,
        KnownField::Date,
        KnownField::Server,
        KnownField::AltSvc,
    ]));

    /// The facts about a section with these fields, and with these values of `Content-Length`.
    pub(crate) fn of<'a>(fields: FieldSet, lengths: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut summary = Self {
            has_date: fields.has(KnownField::Date),
            has_server: fields.has(KnownField::Server),
            has_alt_svc: fields.has(KnownField::AltSvc),
            has_connection_fields: fields.has_any(FieldSet::CONNECTION),
            ..Self::default()
        };
        for value in lengths {
            let is_repeated = std::mem::replace(&mut summary.has_content_length, true);
            summary.content_length = parse_decimal(value).filter(|_| !is_repeated);
            // Leading zeros are allowed, but some recipients read them as octal.
            summary.is_length_line_kept =
                summary.content_length.is_some() && !matches!(value, [b'0', _, ..]);
        }
        summary
    }
}
