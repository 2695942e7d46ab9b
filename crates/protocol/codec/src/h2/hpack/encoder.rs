//! Encodes field blocks (RFC 7541 sections 4.2 and 6).

use http::StatusCode;

use super::preencoded::{EncodedSegmentKind, PreencodedHeaders};
use super::representation::{FieldEncoding, FieldForm, string};
use super::{DEFAULT_TABLE_SIZE, static_table};
use crate::field_compression::{DynamicTable, entry_size, integer, line_mark};
use apus_http::response_head::is_connection_field;
use apus_http::{FieldCompression, Headers};

/// Encodes the field blocks of one connection.
///
/// A block is [`begin`](Self::begin), then its fields in order. Values that are likely to repeat are added
/// to the dynamic table. Values that rarely repeat are not, as they would evict the others. Credentials
/// are marked as never indexed, so that intermediaries do not index them either (section 7.1). The table
/// allocates memory as it fills, for at most 4096 bytes.
#[derive(Debug)]
pub struct HpackEncoder {
    table: DynamicTable,
    update: Option<SizeUpdate>,
}

/// A change of the table size that was not signaled to the peer yet.
#[derive(Clone, Copy, Debug)]
struct SizeUpdate {
    /// The smallest size since the last signal.
    smallest: usize,
    /// The last signaled size.
    signaled: usize,
}

impl Default for HpackEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl HpackEncoder {
    /// An encoder for a peer with the default table size.
    pub fn new() -> Self {
        Self {
            table: DynamicTable::new(DEFAULT_TABLE_SIZE),
            update: None,
        }
    }

    /// Sets the table size that the peer allows (`SETTINGS_HEADER_TABLE_SIZE`), of which at most 4096
    /// bytes are used. The next block signals the change. Must be called between blocks.
    pub fn set_max_table_size(&mut self, bytes: usize) {
        // A peer may allow gigabytes. What a larger table saves is little, and its memory is this end's.
        let size = bytes.min(DEFAULT_TABLE_SIZE);
        let update = self.update.get_or_insert(SizeUpdate {
            smallest: usize::MAX,
            signaled: self.table.max_size(),
        });
        update.smallest = update.smallest.min(size);
        self.table.set_max_size(size);
    }

    /// Begins a field block. Appends the size updates that precede its first field.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(update) = self.update.take() {
            let size = self.table.max_size();
            // RFC 7541 section 4.2: of several changes between blocks, the smallest has to be signaled, as the peer
            // may have evicted entries for it.
            if update.smallest < size.min(update.signaled) {
                integer::encode(0x20, 5, update.smallest, out);
                integer::encode(0x20, 5, size, out);
            } else if size != update.signaled {
                integer::encode(0x20, 5, size, out);
            }
        }
    }

    /// Appends the status of a response.
    #[inline]
    pub fn status(&mut self, status: StatusCode, out: &mut Vec<u8>) {
        let index: u8 = match status.as_u16() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => return self.field(b":status", status.as_str().as_bytes(), out),
        };
        // A status of the static table is one byte.
        out.push(0x80 | index);
    }

    /// Appends a field, whose name is in lower case, or a pseudo-header field.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.write_encoding(FieldEncoding::of(name, value), name, value, out);
    }

    /// Appends a line of a field section. A line that its sender marked as never indexed stays so (section
    /// 7.1.3).
    pub(crate) fn line(
        &mut self,
        (name, value, never_indexed): (&[u8], &[u8], bool),
        out: &mut Vec<u8>,
    ) {
        self.write_encoding(
            FieldEncoding::of_line(name, value, never_indexed),
            name,
            value,
            out,
        );
    }

    #[inline]
    fn write_encoding(
        &mut self,
        encoding: FieldEncoding,
        name: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        if let FieldForm::Indexed { mark } = encoding.form {
            let line = IndexableField {
                name_index: encoding.name_index,
                mark,
                name,
                value,
            };
            self.write_indexed(line, LiteralStrings::Raw, out);
        } else {
            encoding.write(name, value, out);
        }
    }

    /// Appends a `Date` field.
    pub fn date(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.write_indexable(33, b"date", value, out);
    }

    /// Appends a `Server` field.
    pub fn server(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.write_indexable(54, b"server", value, out);
    }

    /// Appends a field whose name, but not its value, is in the static table.
    fn write_indexable(&mut self, name_index: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let line = IndexableField {
            name_index,
            mark: line_mark(name_index, name, value),
            name,
            value,
        };
        self.write_indexed(line, LiteralStrings::Raw, out);
    }

    /// Appends the field lines in order, without connection-specific ones (RFC 9113 section 8.2.2), and
    /// without `Content-Length` unless `keeps_length`.
    pub fn headers(&mut self, headers: &Headers, keeps_length: bool, out: &mut Vec<u8>) {
        // The fields of a response from memory are encoded once for all clients; only what depends on the table of the
        // connection is written for each.
        let Some(preencoded) = headers.encoded(FieldCompression::Hpack, PreencodedHeaders::new)
        else {
            for line in headers.hpack_lines() {
                let is_left_out =
                    is_connection_field(line.0) || (!keeps_length && line.0 == b"content-length");
                if !is_left_out {
                    self.line(line, out);
                }
            }
            return;
        };
        let wire = |range: &std::ops::Range<usize>| headers.wire().get(range.clone());
        for (kind, range) in preencoded.segments() {
            match kind {
                EncodedSegmentKind::Length if !keeps_length => {}
                EncodedSegmentKind::Verbatim | EncodedSegmentKind::Length => {
                    out.extend_from_slice(preencoded.bytes(range));
                }
                EncodedSegmentKind::Indexed {
                    name_index,
                    mark,
                    name,
                    value,
                    value_at,
                } => {
                    let line = IndexableField {
                        name_index: *name_index,
                        mark: *mark,
                        name: wire(name).unwrap_or_default(),
                        value: wire(value).unwrap_or_default(),
                    };
                    let strings = LiteralStrings::Encoded {
                        name: preencoded.bytes(range.start..*value_at),
                        value: preencoded.bytes(*value_at..range.end),
                    };
                    self.write_indexed(line, strings, out);
                }
            }
        }
    }

    /// Appends a line that is in the dynamic table, or adds it to the table.
    #[inline]
    fn write_indexed(
        &mut self,
        line: IndexableField<'_>,
        strings: LiteralStrings<'_>,
        out: &mut Vec<u8>,
    ) {
        // The mark already includes the index of a static name.
        let name = if line.name_index == 0 {
            Some(line.name)
        } else {
            None
        };
        match self.table.find(line.mark, name, line.value) {
            Some(index) => integer::encode(0x80, 7, dynamic_index(index), out),
            None => self.write_literal(line, strings, out),
        }
    }

    fn write_literal(
        &mut self,
        line: IndexableField<'_>,
        strings: LiteralStrings<'_>,
        out: &mut Vec<u8>,
    ) {
        let IndexableField {
            name_index,
            mark,
            name,
            value,
        } = line;
        let index = match name_index {
            0 => self.table.find_name(name).map_or(0, dynamic_index),
            name_index => name_index,
        };
        let size = entry_size(name.len(), value.len());
        // An entry that fills most of the table would evict all others.
        if size
            > self
                .table
                .max_size()
                .saturating_sub(self.table.max_size() / 4)
        {
            integer::encode(0, 4, index, out);
        } else {
            integer::encode(0x40, 6, index, out);
            self.table.insert(name, value, mark);
        }
        match strings {
            LiteralStrings::Raw => {
                if index == 0 {
                    string(name, out);
                }
                string(value, out);
            }
            LiteralStrings::Encoded { name, value } => {
                if index == 0 {
                    out.extend_from_slice(name);
                }
                out.extend_from_slice(value);
            }
        }
    }
}

/// A field line that may be in the dynamic table.
#[derive(Clone, Copy)]
struct IndexableField<'a> {
    /// The index of its name in the static table, or 0.
    name_index: usize,
    mark: u32,
    name: &'a [u8],
    value: &'a [u8],
}

/// The strings of a literal field.
enum LiteralStrings<'a> {
    /// The strings of the line, which have to be encoded.
    Raw,
    /// Encoded strings.
    Encoded { name: &'a [u8], value: &'a [u8] },
}

/// The index of an entry of the dynamic table, which follows the static table (section 2.3.3).
fn dynamic_index(index: usize) -> usize {
    index.saturating_add(static_table::LEN).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_compression::{IndexingPolicy, TABLE_NAME_BITS, indexing_policy};

    #[test]
    fn special_functions_encode_like_the_general_one() {
        let (mut special, mut general) = (HpackEncoder::new(), HpackEncoder::new());
        for _ in 0..2 {
            let (mut by_special, mut by_general) = (Vec::new(), Vec::new());
            special.date(b"Sat, 21 Nov 2026 10:00:00 GMT", &mut by_special);
            special.server(b"apus", &mut by_special);
            general.field(b"date", b"Sat, 21 Nov 2026 10:00:00 GMT", &mut by_general);
            general.field(b"server", b"apus", &mut by_general);
            assert_eq!(by_special, by_general);
        }
    }

    #[test]
    fn has_a_policy_for_every_name_of_the_static_table() {
        let mut first = 0;
        let mut before: &[u8] = b"";
        for index in 1..=static_table::LEN {
            let (name, value) = static_table::get(index).unwrap();
            if name != before {
                (first, before) = (index, name);
            }
            assert_eq!(usize::from(indexing_policy(name).0), first);
            assert_eq!(static_table::find(first, value), Some(index));
        }
        assert_eq!(indexing_policy(b"x-custom"), (0, IndexingPolicy::Index));
        const { assert!(static_table::LEN < 1 << TABLE_NAME_BITS) };
    }
}
