//! Encodes field sections, and handles the decoder stream of the peer (RFC 9204 sections 2.1, 4.4 and 4.5).

use std::collections::VecDeque;

use apus_codec::field_compression::{
    CodingError, DynamicTable, encode_string, entry_size, indexing_policy, integer, line_mark,
};
use apus_http::response_head::is_connection_field;
use apus_http::{FieldCompression, Headers};
use http::StatusCode;

use super::instruction::InstructionReader;
use super::preencoded::PreencodedLines;
use super::representation::write_literal;
use super::static_table::{self, StaticMatch};
use super::{QpackError, max_entries};

/// Encodes the field sections of one connection.
///
/// A section is [`begin`](Self::begin), its lines in order, then [`end`](Self::end). It refers only to entries that
/// the peer has acknowledged, so that no stream of the peer ever waits for inserts: a line that is new is sent as a
/// literal and inserted for the sections after it. Values that rarely repeat are not inserted, and credentials are
/// marked as never indexed (section 7.1).
#[derive(Debug)]
pub struct QpackEncoder {
    table: DynamicTable,
    /// Maximum bytes of the table.
    wanted_bytes: usize,
    /// The maximum that the peer allows, on which the form of insert counts depends.
    peer_bytes: u64,
    /// How many entries were inserted.
    inserted: u64,
    /// How many inserts the peer has acknowledged.
    acknowledged: u64,
    /// The sections with references that the peer has not acknowledged yet.
    sections: VecDeque<SentSection>,
    instructions: InstructionReader,
    /// Bytes for the encoder stream.
    output: Vec<u8>,
}

/// A section with references to the table. Entries from the first one on cannot be evicted.
#[derive(Clone, Copy, Debug)]
struct SentSection {
    stream: u64,
    required: u64,
    first: u64,
}

/// Maximum sections without acknowledgement. Beyond, sections use no references: the peer does not read.
const MAX_SECTIONS: usize = 256;

/// Maximum bytes of output to which an insert is added. The limit of the table is not enough: a peer can acknowledge
/// inserts that it does not let through.
const MAX_OUTPUT: usize = 16_384;

/// The references of a section that is being encoded.
#[derive(Debug)]
pub struct SectionReferences {
    /// Where the section begins in the output.
    start: usize,
    /// References count back from here; `None` if the section must have none.
    base: Option<u64>,
    /// The lowest reference, and one more than the highest.
    used: Option<(u64, u64)>,
}

impl QpackEncoder {
    /// An encoder with a table of at most this many bytes, once the peer allows one.
    pub fn new(wanted_bytes: usize) -> Self {
        Self {
            table: DynamicTable::new(0),
            wanted_bytes,
            peer_bytes: 0,
            inserted: 0,
            acknowledged: 0,
            sections: VecDeque::new(),
            instructions: InstructionReader::default(),
            output: Vec::new(),
        }
    }

    /// Sets the table size that the peer allows (SETTINGS_QPACK_MAX_TABLE_CAPACITY). To be called once.
    pub fn set_peer_table_bytes(&mut self, bytes: u64) {
        self.peer_bytes = bytes;
        let allowed = usize::try_from(bytes).unwrap_or(usize::MAX);
        let size = self.wanted_bytes.min(allowed);
        if size > 0 {
            self.table.set_max_size(size);
            // Section 4.3.1.
            integer::encode(0x20, 5, size, &mut self.output);
        }
    }

    /// The bytes for the encoder stream, which the caller removes.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Begins a field section.
    #[inline]
    pub fn begin(&self, out: &mut Vec<u8>) -> SectionReferences {
        let has_table = self.table.max_size() > 0 && self.sections.len() < MAX_SECTIONS;
        let start = out.len();
        // The prefix of a section without references. `end` replaces it if there are any.
        out.extend_from_slice(&[0, 0]);
        SectionReferences {
            start,
            // Only what the peer has acknowledged is referred to, so that the section can never be blocked there.
            base: has_table.then_some(self.acknowledged),
            used: None,
        }
    }

    /// Ends the field section of a stream, whose lines were appended to `out` since it began.
    #[inline]
    pub fn end(&mut self, stream: u64, references: SectionReferences, out: &mut Vec<u8>) {
        if let (Some(base), Some((first, required))) = (references.base, references.used) {
            self.sections.push_back(SentSection {
                stream,
                required,
                first,
            });
            // By the size that the peer allows, also if the table is smaller (section 4.5.1.1).
            let full_range = max_entries(self.peer_bytes).saturating_mul(2);
            let encoded = required.checked_rem(full_range).unwrap_or(0);
            let mut prefix = Vec::with_capacity(8);
            integer::encode_long(0, 8, encoded.saturating_add(1), &mut prefix);
            integer::encode_long(0, 7, base.saturating_sub(required), &mut prefix);
            let end = references.start.saturating_add(2);
            out.splice(references.start..end, prefix);
        }
    }

    /// Appends the status of a response.
    #[inline]
    pub fn status(
        &mut self,
        status: StatusCode,
        references: &mut SectionReferences,
        out: &mut Vec<u8>,
    ) {
        if status == StatusCode::OK {
            // Index 25 of the static table.
            out.push(0xc0 | 25);
        } else {
            let line = (&b":status"[..], status.as_str().as_bytes(), false);
            self.line(line, references, out);
        }
    }

    /// Appends a line: its name, which is in lower case or names a pseudo-header field, its value, and whether it
    /// must be in no table (section 4.5.4).
    pub fn line(
        &mut self,
        (name, value, never_indexed): (&[u8], &[u8], bool),
        references: &mut SectionReferences,
        out: &mut Vec<u8>,
    ) {
        let known = static_table::find(name, value);
        if let Some(base) = references.base
            && !never_indexed
            // A line of the static table takes a byte or two already.
            && !matches!(known, StaticMatch::Line(_))
            && indexing_policy(name).1.is_indexed(value) == Some(true)
        {
            let mark = line_mark(0, name, value);
            match self.table.find(mark, Some(name), value) {
                Some(index) => {
                    let index = u64::try_from(index).unwrap_or(u64::MAX);
                    let after = self.inserted.saturating_sub(index);
                    if let Some(position) = after.checked_sub(1)
                        && after <= base
                    {
                        integer::encode_long(0x80, 6, base.saturating_sub(after), out);
                        references.add(position);
                        return;
                    }
                }
                None => self.insert((name, value), known, mark, references),
            }
        }
        write_literal((name, value, never_indexed), known, out);
    }

    /// Appends the field lines in order, without connection-specific ones (RFC 9114 section 4.2), and without
    /// `Content-Length` unless `keeps_length`.
    pub fn headers(
        &mut self,
        headers: &Headers,
        keeps_length: bool,
        references: &mut SectionReferences,
        out: &mut Vec<u8>,
    ) {
        // Lines that are sent again and again, such as the fields of a file, are encoded once for all connections: that is
        // faster than to look them up in the table of each.
        if references.used.is_none()
            && let Some(preencoded) = headers.encoded(FieldCompression::Qpack, PreencodedLines::new)
        {
            references.base = None;
            return preencoded.write(keeps_length, out);
        }
        for line in headers.hpack_lines() {
            let is_left_out =
                is_connection_field(line.0) || (!keeps_length && line.0 == b"content-length");
            if !is_left_out {
                self.line(line, references, out);
            }
        }
    }

    /// Inserts a line, if there is room without entries that are in use.
    fn insert(
        &mut self,
        (name, value): (&[u8], &[u8]),
        known: StaticMatch,
        mark: u32,
        references: &SectionReferences,
    ) {
        let size = entry_size(name.len(), value.len());
        let max_size = self.table.max_size();
        // An entry that fills most of the table would evict all others.
        let is_too_large = size > max_size.saturating_sub(max_size / 4);
        if is_too_large || self.output.len() >= MAX_OUTPUT {
            return;
        }
        let Some(evictions) = self.table.evictions(size, max_size) else {
            return;
        };
        if evictions > 0 {
            let count = |entries: usize| u64::try_from(entries).unwrap_or(u64::MAX);
            let oldest = self.inserted.saturating_sub(count(self.table.len()));
            let kept = oldest.saturating_add(count(evictions));
            let in_use = self.sections.iter().map(|section| section.first);
            let in_use = in_use.chain(references.used.map(|(first, _)| first)).min();
            // Section 2.1.1.
            if kept > self.acknowledged || in_use.is_some_and(|first| first < kept) {
                return;
            }
        }
        match known {
            StaticMatch::Line(index) | StaticMatch::Name(index) => {
                integer::encode(0xc0, 6, index, &mut self.output);
            }
            StaticMatch::None => encode_string(0x40, 5, name, &mut self.output),
        }
        encode_string(0, 7, value, &mut self.output);
        self.table.insert(name, value, mark);
        self.inserted = self.inserted.saturating_add(1);
    }

    /// Handles bytes of the peer's decoder stream.
    ///
    /// # Errors
    /// An instruction is invalid.
    pub fn handle_decoder_stream(&mut self, input: &[u8]) -> Result<(), QpackError> {
        let mut instructions = std::mem::take(&mut self.instructions);
        let result = instructions.read(input, |input| self.instruction(input));
        self.instructions = instructions;
        result
    }

    /// Handles the instruction at the start of `input` (section 4.4).
    fn instruction(&mut self, input: &mut &[u8]) -> Result<(), QpackError> {
        let (first, rest) = input.split_first().ok_or(CodingError::Truncated)?;
        *input = rest;
        match first {
            0x80.. => {
                let stream = integer::decode_long(*first, 7, input)?;
                let mut sections = self.sections.iter();
                // The first one: sections of a stream are acknowledged in the order in which they were sent (section
                // 4.4.1).
                let at = sections.position(|section| section.stream == stream);
                let section = at.and_then(|at| self.sections.remove(at));
                let section = section.ok_or(QpackError::SectionAcknowledgment)?;
                // Who has decoded a section has received the inserts that it required (section 2.1.4).
                self.acknowledged = self.acknowledged.max(section.required);
            }
            0x40.. => {
                let stream = integer::decode_long(*first, 6, input)?;
                self.sections.retain(|section| section.stream != stream);
            }
            _ => {
                let increment = integer::decode_long(*first, 6, input)?;
                self.acknowledged = self
                    .acknowledged
                    .checked_add(increment)
                    .filter(|count| increment > 0 && *count <= self.inserted)
                    .ok_or(QpackError::InsertCountIncrement)?;
            }
        }
        Ok(())
    }
}

impl SectionReferences {
    fn add(&mut self, position: u64) {
        let after = position.saturating_add(1);
        self.used = Some(match self.used {
            Some((first, required)) => (first.min(position), required.max(after)),
            None => (position, after),
        });
    }
}
