//! The representations of field lines that do not refer to the dynamic table (RFC 9204 section 4.5).

use apus_codec::field_compression::{encode_string, indexing_policy, integer};

use super::static_table::StaticMatch;

/// Appends a line without references to the dynamic table.
pub(super) fn write_literal(
    (name, value, never_indexed): (&[u8], &[u8], bool),
    known: StaticMatch,
    out: &mut Vec<u8>,
) {
    let is_secret = || never_indexed || indexing_policy(name).1.is_indexed(value).is_none();
    match known {
        StaticMatch::Line(index) if !never_indexed => {
            return integer::encode(0xc0, 6, index, out);
        }
        StaticMatch::Line(index) | StaticMatch::Name(index) => {
            let never = if is_secret() { 0x20 } else { 0 };
            integer::encode(0x50 | never, 4, index, out);
        }
        StaticMatch::None => {
            let never = if is_secret() { 0x10 } else { 0 };
            encode_string(0x20 | never, 3, name, out);
        }
    }
    encode_string(0, 7, value, out);
}
