//! The representations of fields that do not refer to the dynamic table (RFC 7541 section 6).

use super::static_table;
use crate::field_compression::{encode_string, indexing_policy, integer, line_mark};

/// Appends a string (section 5.2).
pub(super) fn string(string: &[u8], out: &mut Vec<u8>) {
    encode_string(0, 7, string, out);
}

/// The part of a field's encoding that does not depend on the dynamic table.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldEncoding {
    /// The index of its name in the static table, or 0.
    pub(super) name_index: usize,
    pub(super) form: FieldForm,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FieldForm {
    /// The field is in the static table.
    Static { index: usize },
    /// The field belongs into the dynamic table, with this mark.
    Indexed { mark: u32 },
    /// The field rarely repeats.
    NotIndexed,
    /// The field must not be in any table.
    NeverIndexed,
}

impl FieldEncoding {
    #[inline]
    pub(super) fn of(name: &[u8], value: &[u8]) -> Self {
        let (name_index, policy) = indexing_policy(name);
        let name_index = usize::from(name_index);
        let form = if let Some(index) = static_table::find(name_index, value) {
            FieldForm::Static { index }
        } else {
            match policy.is_indexed(value) {
                Some(true) => FieldForm::Indexed {
                    mark: line_mark(name_index, name, value),
                },
                Some(false) => FieldForm::NotIndexed,
                None => FieldForm::NeverIndexed,
            }
        };
        Self { name_index, form }
    }

    /// Like [`Self::of`], for a line that may be marked as never indexed.
    #[inline]
    pub(super) fn of_line(name: &[u8], value: &[u8], never_indexed: bool) -> Self {
        let encoding = Self::of(name, value);
        if never_indexed {
            Self {
                form: FieldForm::NeverIndexed,
                ..encoding
            }
        } else {
            encoding
        }
    }

    /// Appends a field that is encoded without the dynamic table.
    pub(super) fn write(self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self.form {
            FieldForm::Static { index } => return integer::encode(0x80, 7, index, out),
            FieldForm::NeverIndexed => integer::encode(0x10, 4, self.name_index, out),
            FieldForm::NotIndexed | FieldForm::Indexed { .. } => {
                integer::encode(0, 4, self.name_index, out)
            }
        }
        if self.name_index == 0 {
            string(name, out);
        }
        string(value, out);
    }
}
