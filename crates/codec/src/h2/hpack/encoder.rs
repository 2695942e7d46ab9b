//! Writes field blocks (RFC 7541 sections 4.2 and 6).

use http::StatusCode;

use super::prepared::{PieceKind, Prepared};
use super::table::{Table, size_of_entry};
use super::{DEFAULT_TABLE_SIZE, huffman, integer, static_table};
use apus_http::Headers;
use apus_http::response_head::is_connection_field;

/// Writes the field blocks of one connection.
///
/// A block is [`begin`](Self::begin), then its fields in order. Values that are likely to come again
/// go into the dynamic table, those that hardly ever do stay out of it, so that they do not push
/// out the others, and credentials are marked so that nobody on the way puts them into a table
/// (section 7.1). The table takes memory as it fills, for 4096 bytes at the most.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    update: Option<SizeUpdate>,
}

/// A change of the table's size that the peer was not told about yet.
#[derive(Clone, Copy, Debug)]
struct SizeUpdate {
    /// The smallest size since it was told last.
    smallest: usize,
    /// What it was told last.
    told: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// For a connection whose peer has the table that it has without settings.
    pub fn new() -> Self {
        Self {
            table: Table::new(DEFAULT_TABLE_SIZE),
            update: None,
        }
    }

    /// Takes the size of the table that the peer allows (`SETTINGS_HEADER_TABLE_SIZE`); more than
    /// 4096 bytes are not used. The next block tells the peer. To be called between blocks.
    pub fn set_max_table_size(&mut self, bytes: usize) {
        let size = bytes.min(DEFAULT_TABLE_SIZE);
        let update = self.update.get_or_insert(SizeUpdate {
            smallest: usize::MAX,
            told: self.table.max_size(),
        });
        update.smallest = update.smallest.min(size);
        self.table.set_max_size(size);
    }

    /// Begins a field block: appends what has to stand before its first field.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(update) = self.update.take() {
            let size = self.table.max_size();
            if update.smallest < size.min(update.told) {
                integer::encode(0x20, 5, update.smallest, out);
                integer::encode(0x20, 5, size, out);
            } else if size != update.told {
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
        out.push(0x80 | index);
    }

    /// Appends a field, whose name is in lower case, or a pseudo-header field.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.planned(Plan::of(name, value), name, value, out);
    }

    /// Appends a line of a section. What its sender wanted in no table stays out of them (section
    /// 7.1.3).
    pub(crate) fn line(
        &mut self,
        (name, value, never_indexed): (&[u8], &[u8], bool),
        out: &mut Vec<u8>,
    ) {
        self.planned(Plan::of_line(name, value, never_indexed), name, value, out);
    }

    #[inline]
    fn planned(&mut self, plan: Plan, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if let Form::Indexed { mark } = plan.form {
            let line = Line {
                known: plan.known,
                mark,
                name,
                value,
            };
            self.indexed(line, Strings::Raw, out);
        } else {
            plan.verbatim(name, value, out);
        }
    }

    /// Appends a `Date`, which comes with most responses.
    pub fn date(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.repeated(33, b"date", value, out);
    }

    /// Appends a `Server`, which comes with most responses.
    pub fn server(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.repeated(54, b"server", value, out);
    }

    /// Appends a field that is of no entry of the static table, but its name is.
    fn repeated(&mut self, known: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let line = Line {
            known,
            mark: mark(known, name, value),
            name,
            value,
        };
        self.indexed(line, Strings::Raw, out);
    }

    /// Appends the field lines in order. Connection-specific ones are left out (RFC 9113 section
    /// 8.2.2), and `Content-Length` unless `keeps_length`.
    pub fn headers(&mut self, headers: &Headers, keeps_length: bool, out: &mut Vec<u8>) {
        let Some(prepared) = headers.encoded(Prepared::new) else {
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
        for (kind, range) in prepared.pieces() {
            match kind {
                PieceKind::Length if !keeps_length => {}
                PieceKind::Verbatim | PieceKind::Length => {
                    out.extend_from_slice(prepared.bytes(range));
                }
                PieceKind::Indexed {
                    known,
                    mark,
                    name,
                    value,
                    value_at,
                } => {
                    let line = Line {
                        known: *known,
                        mark: *mark,
                        name: wire(name).unwrap_or_default(),
                        value: wire(value).unwrap_or_default(),
                    };
                    let strings = Strings::Ready {
                        name: prepared.bytes(range.start..*value_at),
                        value: prepared.bytes(*value_at..range.end),
                    };
                    self.indexed(line, strings, out);
                }
            }
        }
    }

    /// Appends a line that is in the table, or goes into it now.
    #[inline]
    fn indexed(&mut self, line: Line<'_>, strings: Strings<'_>, out: &mut Vec<u8>) {
        // The mark tells a known name already.
        let name = if line.known == 0 {
            Some(line.name)
        } else {
            None
        };
        match self.table.find(line.mark, name, line.value) {
            Some(index) => integer::encode(0x80, 7, dynamic(index), out),
            None => self.insert(line, strings, out),
        }
    }

    fn insert(&mut self, line: Line<'_>, strings: Strings<'_>, out: &mut Vec<u8>) {
        let Line {
            known,
            mark,
            name,
            value,
        } = line;
        let index = match known {
            0 => self.table.find_name(name).map_or(0, dynamic),
            known => known,
        };
        let size = size_of_entry(name.len(), value.len());
        // What fills most of the table would push out everything else.
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
            Strings::Raw => {
                if index == 0 {
                    string(name, out);
                }
                string(value, out);
            }
            Strings::Ready { name, value } => {
                if index == 0 {
                    out.extend_from_slice(name);
                }
                out.extend_from_slice(value);
            }
        }
    }
}

/// A line that can be in the dynamic table.
#[derive(Clone, Copy)]
struct Line<'a> {
    /// The static index of its name, or 0.
    known: usize,
    mark: u32,
    name: &'a [u8],
    value: &'a [u8],
}

/// How the strings of a literal get into a block.
enum Strings<'a> {
    /// From the line itself.
    Raw,
    /// As they are here.
    Ready { name: &'a [u8], value: &'a [u8] },
}

/// The index of an entry of the dynamic table, behind the static one (section 2.3.3).
fn dynamic(index: usize) -> usize {
    index.saturating_add(static_table::LEN).saturating_add(1)
}

/// Appends a string, Huffman-coded if that makes it shorter (section 5.2).
pub(super) fn string(string: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(string);
    if len < string.len() {
        integer::encode(0x80, 7, len, out);
        huffman::encode(string, out);
    } else {
        integer::encode(0, 7, string.len(), out);
        out.extend_from_slice(string);
    }
}

/// How a field is to be encoded, as far as that does not depend on the dynamic table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The static index of its name, or 0.
    pub(super) known: usize,
    pub(super) form: Form,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// It is in the static table.
    Static { index: usize },
    /// It goes into the dynamic table, where this is its mark.
    Indexed { mark: u32 },
    /// It is not worth that.
    NotIndexed,
    /// It must not go into any table.
    NeverIndexed,
}

impl Plan {
    #[inline]
    pub(super) fn of(name: &[u8], value: &[u8]) -> Self {
        let (known, policy) = manner(name);
        let known = usize::from(known);
        let form = if let Some(index) = static_table::find(known, value) {
            Form::Static { index }
        } else {
            match policy {
                Policy::Index => Form::Indexed {
                    mark: mark(known, name, value),
                },
                Policy::Skip => Form::NotIndexed,
                Policy::Never => Form::NeverIndexed,
                // A short one could be guessed, byte by byte, by who sees lengths (section 7.1.3).
                Policy::NeverIfShort if value.len() < 20 => Form::NeverIndexed,
                Policy::NeverIfShort => Form::Indexed {
                    mark: mark(known, name, value),
                },
            }
        };
        Self { known, form }
    }

    /// As [`Self::of`], for a line that perhaps must not be in any table.
    #[inline]
    pub(super) fn of_line(name: &[u8], value: &[u8], never_indexed: bool) -> Self {
        let plan = Self::of(name, value);
        match never_indexed {
            true => Self {
                form: Form::NeverIndexed,
                ..plan
            },
            false => plan,
        }
    }

    /// Appends a field that is encoded without the dynamic table.
    pub(super) fn verbatim(self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self.form {
            Form::Static { index } => return integer::encode(0x80, 7, index, out),
            Form::NeverIndexed => integer::encode(0x10, 4, self.known, out),
            Form::NotIndexed | Form::Indexed { .. } => integer::encode(0, 4, self.known, out),
        }
        if self.known == 0 {
            string(name, out);
        }
        string(value, out);
    }
}

/// What the name of a field says of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// They come again.
    Index,
    /// They hardly ever come again.
    Skip,
    /// They are credentials.
    Never,
    /// They may be credentials.
    NeverIfShort,
}

/// The first index of a name in the static table, or 0, and what to do with values.
fn manner(name: &[u8]) -> (u8, Policy) {
    use Policy::{Index, Never, NeverIfShort, Skip};
    match name {
        b":authority" => (1, Index),
        b":method" => (2, Index),
        b":path" => (4, Skip),
        b":scheme" => (6, Index),
        b":status" => (8, Index),
        b"accept-charset" => (15, Index),
        b"accept-encoding" => (16, Index),
        b"accept-language" => (17, Index),
        b"accept-ranges" => (18, Index),
        b"accept" => (19, Index),
        b"access-control-allow-origin" => (20, Index),
        b"age" => (21, Skip),
        b"allow" => (22, Index),
        b"authorization" => (23, Never),
        b"cache-control" => (24, Index),
        b"content-disposition" => (25, Skip),
        b"content-encoding" => (26, Index),
        b"content-language" => (27, Index),
        b"content-length" => (28, Skip),
        b"content-location" => (29, Skip),
        b"content-range" => (30, Skip),
        b"content-type" => (31, Index),
        b"cookie" => (32, NeverIfShort),
        b"date" => (33, Index),
        b"etag" => (34, Skip),
        b"expect" => (35, Index),
        b"expires" => (36, Skip),
        b"from" => (37, Index),
        b"host" => (38, Index),
        b"if-match" => (39, Skip),
        b"if-modified-since" => (40, Skip),
        b"if-none-match" => (41, Skip),
        b"if-range" => (42, Skip),
        b"if-unmodified-since" => (43, Skip),
        b"last-modified" => (44, Skip),
        b"link" => (45, Index),
        b"location" => (46, Skip),
        b"max-forwards" => (47, Index),
        b"proxy-authenticate" => (48, Index),
        b"proxy-authorization" => (49, Never),
        b"range" => (50, Skip),
        b"referer" => (51, Index),
        b"refresh" => (52, Index),
        b"retry-after" => (53, Skip),
        b"server" => (54, Index),
        b"set-cookie" => (55, Never),
        b"strict-transport-security" => (56, Index),
        b"transfer-encoding" => (57, Index),
        b"user-agent" => (58, Index),
        b"vary" => (59, Index),
        b"via" => (60, Index),
        b"www-authenticate" => (61, Index),
        b"content-digest" | b"repr-digest" | b"server-timing" | b"traceparent"
        | b"x-request-id" => (0, Skip),
        _ => (0, Index),
    }
}

/// Bits of a mark that tell the static index of the name.
const KNOWN_BITS: u32 = 6;

/// A number by which a line is found in the table. It tells names of the static table for certain;
/// lines that share one otherwise cost a comparison.
fn mark(known: usize, name: &[u8], value: &[u8]) -> u32 {
    let start = if known == 0 { mix(0, name) } else { 0 };
    let hash = u32::try_from(mix(start, value) >> 32).unwrap_or(0);
    hash.wrapping_shl(KNOWN_BITS) | u32::try_from(known).unwrap_or(0)
}

fn mix(start: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let add = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(add(start, bytes.len() as u64), |sum, word| {
            add(sum, u64::from_le_bytes(*word))
        });
    let last = rest
        .iter()
        .fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
    add(sum, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_a_door_of_their_own_are_the_same_as_by_the_common_one() {
        let (mut own, mut common) = (Encoder::new(), Encoder::new());
        for _ in 0..2 {
            let (mut by_own, mut by_common) = (Vec::new(), Vec::new());
            own.date(b"Sat, 21 Nov 2026 10:00:00 GMT", &mut by_own);
            own.server(b"apus", &mut by_own);
            common.field(b"date", b"Sat, 21 Nov 2026 10:00:00 GMT", &mut by_common);
            common.field(b"server", b"apus", &mut by_common);
            assert_eq!(by_own, by_common);
        }
    }

    #[test]
    fn knows_every_name_of_the_static_table() {
        let mut first = 0;
        let mut before: &[u8] = b"";
        for index in 1..=static_table::LEN {
            let (name, value) = static_table::get(index).unwrap();
            if name != before {
                (first, before) = (index, name);
            }
            assert_eq!(usize::from(manner(name).0), first);
            assert_eq!(static_table::find(first, value), Some(index));
        }
        assert_eq!(manner(b"x-custom"), (0, Policy::Index));
        const { assert!(static_table::LEN < 1 << KNOWN_BITS) };
    }
}
