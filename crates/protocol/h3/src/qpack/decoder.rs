//! Decodes field sections and the encoder stream of the peer (RFC 9204 sections 2.2, 4.3 and 4.5).

use apus_codec::field_compression::{
    CodingError, DynamicTable, Field, FieldValidity, StringBuffer, TableEntry, decode_string,
    entry_size, integer,
};
use smallvec::SmallVec;

use super::instruction::InstructionReader;
use super::{QpackError, max_entries, static_table};

/// Decodes the field sections of one connection.
///
/// Its memory holds the dynamic table, at most two and a half times the table's size, and one instruction.
#[derive(Debug)]
pub struct QpackDecoder {
    table: DynamicTable,
    max_table_bytes: usize,
    /// How many entries were inserted.
    inserted: u64,
    /// How many inserts the peer knows to have arrived.
    acknowledged: u64,
    instructions: InstructionReader,
    /// Bytes for the decoder stream.
    output: Vec<u8>,
}

/// Whether a field section was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionProgress {
    /// All its fields were passed on.
    Decoded,
    /// It needs this many inserts, of which some were not received yet. No field was passed on.
    Blocked(u64),
}

/// The prefix of a field section (section 4.5.1).
#[derive(Clone, Copy)]
struct SectionPrefix {
    required: u64,
    base: u64,
}

impl QpackDecoder {
    /// A decoder that allows the peer a table of this many bytes.
    pub fn new(max_table_bytes: usize) -> Self {
        Self {
            // Its capacity is 0 until the peer sets it (RFC 9204 section 3.2.3).
            table: DynamicTable::new(0),
            max_table_bytes,
            inserted: 0,
            acknowledged: 0,
            instructions: InstructionReader::default(),
            output: Vec::new(),
        }
    }

    /// How many entries were inserted, which is what [`SectionProgress::Blocked`] waits for.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The bytes for the decoder stream, which the caller removes.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Handles bytes of the peer's encoder stream. Returns how many entries they inserted.
    ///
    /// # Errors
    /// An instruction is invalid.
    pub fn handle_encoder_stream(&mut self, input: &[u8]) -> Result<u64, QpackError> {
        let before = self.inserted;
        let mut instructions = std::mem::take(&mut self.instructions);
        let result = instructions.read(input, |input| self.instruction(input));
        self.instructions = instructions;
        result?;
        // Acknowledged at once, although sections do so as well: an encoder may refer to nothing that is not
        // acknowledged, as this crate's does, and would wait for ever.
        let increment = self.inserted.saturating_sub(self.acknowledged);
        if increment > 0 {
            // Section 4.4.3.
            integer::encode_long(0, 6, increment, &mut self.output);
            self.acknowledged = self.inserted;
        }
        Ok(self.inserted.saturating_sub(before))
    }

    /// Handles the instruction at the start of `input` (section 4.3).
    fn instruction(&mut self, input: &mut &[u8]) -> Result<(), QpackError> {
        let first = take_byte(input)?;
        let mut scratch = [StringBuffer::new(), StringBuffer::new()];
        let [name_buffer, value_buffer] = &mut scratch;
        match first {
            0x80.. => {
                let index = integer::decode(first, 6, input)?;
                let value = self.take_string(take_byte(input)?, 7, input)?;
                let copied: SmallVec<[u8; 64]>;
                let (name, validity) = if first & 0x40 != 0 {
                    let (name, _) = static_table::get(index).ok_or(QpackError::Index)?;
                    (name, FieldValidity::VALID)
                } else {
                    let entry = self.table.get(index).ok_or(QpackError::Index)?;
                    // Inserting this entry may evict the one that has the name.
                    copied = SmallVec::from_slice(entry.name);
                    (&copied[..], FieldValidity::of_mark(entry.mark))
                };
                let value = value.decode(value_buffer)?;
                self.insert(name, value, validity)
            }
            0x40.. => {
                let name = self.take_string(first, 5, input)?;
                let value = self.take_string(take_byte(input)?, 7, input)?;
                let (name, value) = (name.decode(name_buffer)?, value.decode(value_buffer)?);
                self.insert(name, value, FieldValidity::of_name(name))
            }
            0x20.. => {
                let capacity = integer::decode(first, 5, input)?;
                if capacity > self.max_table_bytes {
                    return Err(QpackError::Capacity);
                }
                self.table.set_max_size(capacity);
                Ok(())
            }
            _ => {
                let index = integer::decode(first, 5, input)?;
                let entry = self.table.get(index).ok_or(QpackError::Index)?;
                let name: SmallVec<[u8; 64]> = SmallVec::from_slice(entry.name);
                let value: SmallVec<[u8; 192]> = SmallVec::from_slice(entry.value);
                self.insert(&name, &value, FieldValidity::of_mark(entry.mark))
            }
        }
    }

    /// Takes a string whose length begins in `first`. One that is longer than the table can hold is an error even if
    /// it is incomplete, so that it is not waited for.
    fn take_string<'i>(
        &self,
        first: u8,
        bits: u32,
        input: &mut &'i [u8],
    ) -> Result<InstructionString<'i>, QpackError> {
        let len = integer::decode(first, bits, input)?;
        // The longest Huffman codes have 30 bits.
        if len > self.table.max_size().saturating_mul(4) {
            return Err(QpackError::EntryTooLarge);
        }
        let (bytes, rest) = input.split_at_checked(len).ok_or(CodingError::Truncated)?;
        *input = rest;
        let is_huffman = first & 1_u8.wrapping_shl(bits) != 0;
        Ok(InstructionString { bytes, is_huffman })
    }

    fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        name_validity: FieldValidity,
    ) -> Result<(), QpackError> {
        if entry_size(name.len(), value.len()) > self.table.max_size() {
            return Err(QpackError::EntryTooLarge);
        }
        let mark = name_validity.with_value(value).mark();
        self.table.insert(name, value, mark);
        self.inserted = self.inserted.saturating_add(1);
        Ok(())
    }

    /// Decodes the field section of a stream and passes its fields to `sink` in order, unless it is blocked.
    ///
    /// A section of some kilobytes can decompress to megabytes of fields. They are not copied here, and `sink` has to
    /// limit what it keeps.
    ///
    /// # Errors
    /// The section is invalid. The caller has to drop the fields that `sink` received, and close the connection.
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        mut sink: impl FnMut(Field<'_>),
    ) -> Result<SectionProgress, QpackError> {
        let mut input = section;
        let prefix = self.prefix(&mut input)?;
        // Before any field is passed on: the sink has no way to take one back.
        if prefix.required > self.inserted {
            return Ok(SectionProgress::Blocked(prefix.required));
        }
        let mut scratch = [StringBuffer::new(), StringBuffer::new()];
        let [name_buffer, value_buffer] = &mut scratch;
        while let Some((first, rest)) = input.split_first() {
            input = rest;
            let first = *first;
            let (entry, never_indexed) = match first {
                // Indexed field lines (sections 4.5.2 and 4.5.3).
                0xc0.. => {
                    let index = integer::decode(first, 6, &mut input)?;
                    let (name, value) = static_table::get(index).ok_or(QpackError::Index)?;
                    sink(Field {
                        name,
                        value,
                        is_valid: true,
                        never_indexed: false,
                    });
                    continue;
                }
                0x80.. | 0x10..=0x1f => {
                    let entry = match first {
                        0x80.. => {
                            let index = integer::decode_long(first, 6, &mut input)?;
                            self.relative(prefix, index)?
                        }
                        _ => {
                            let index = integer::decode_long(first, 4, &mut input)?;
                            self.post_base(prefix, index)?
                        }
                    };
                    sink(Field {
                        name: entry.name,
                        value: entry.value,
                        is_valid: FieldValidity::of_mark(entry.mark).is_valid(),
                        never_indexed: false,
                    });
                    continue;
                }
                // Literals with a name of a table (sections 4.5.4 and 4.5.5).
                0x40.. => {
                    let index = integer::decode_long(first, 4, &mut input)?;
                    let entry = match first & 0x10 {
                        0 => name_of(self.relative(prefix, index)?),
                        _ => {
                            let index = usize::try_from(index).map_err(|_| QpackError::Index)?;
                            let (name, _) = static_table::get(index).ok_or(QpackError::Index)?;
                            (name, FieldValidity::VALID)
                        }
                    };
                    (entry, first & 0x20 != 0)
                }
                // Literals with a literal name (section 4.5.6).
                0x20.. => {
                    let name = decode_string(first, 3, &mut input, name_buffer)?;
                    ((name, FieldValidity::of_name(name)), first & 0x10 != 0)
                }
                _ => {
                    let index = integer::decode_long(first, 3, &mut input)?;
                    let entry = name_of(self.post_base(prefix, index)?);
                    (entry, first & 0x08 != 0)
                }
            };
            let (name, validity) = entry;
            let first = take_byte(&mut input)?;
            let value = decode_string(first, 7, &mut input, value_buffer)?;
            sink(Field {
                name,
                value,
                is_valid: validity.with_value(value).is_valid(),
                never_indexed,
            });
        }
        // A section without references is not acknowledged (section 4.4.1).
        if prefix.required > 0 {
            // Section 4.4.1.
            integer::encode_long(0x80, 7, stream, &mut self.output);
        }
        Ok(SectionProgress::Decoded)
    }

    /// Tells the peer that the sections of a stream will not be decoded (section 4.4.2).
    pub fn cancel(&mut self, stream: u64) {
        // Without a table the peer's sections have no references, and a stream of the decoder nothing to say (section
        // 2.2.2.2).
        if self.max_table_bytes > 0 {
            integer::encode_long(0x40, 6, stream, &mut self.output);
        }
    }

    /// Takes the prefix of a section.
    #[inline]
    fn prefix(&self, input: &mut &[u8]) -> Result<SectionPrefix, QpackError> {
        let encoded = integer::decode_long(take_byte(input)?, 8, input)?;
        let sign = take_byte(input)?;
        let delta = integer::decode_long(sign, 7, input)?;
        let required = self.required(encoded)?;
        let base = match sign & 0x80 {
            0 => required.checked_add(delta),
            _ => required
                .checked_sub(delta)
                .and_then(|base| base.checked_sub(1)),
        };
        let base = base.ok_or(QpackError::Base)?;
        Ok(SectionPrefix { required, base })
    }

    /// The insert count that a section requires (section 4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, QpackError> {
        if encoded == 0 {
            return Ok(0);
        }
        // By the size that was announced, and not by the one that the peer has set (section 4.5.1.1).
        let max_entries = max_entries(u64::try_from(self.max_table_bytes).unwrap_or(0));
        let full_range = max_entries.saturating_mul(2);
        if encoded > full_range {
            return Err(QpackError::InsertCount);
        }
        let max_value = self.inserted.saturating_add(max_entries);
        let wrapped = max_value
            .checked_rem(full_range)
            .map_or(0, |rest| max_value.saturating_sub(rest));
        let required = wrapped.saturating_add(encoded).saturating_sub(1);
        let required = if required > max_value {
            required
                .checked_sub(full_range)
                .ok_or(QpackError::InsertCount)?
        } else {
            required
        };
        // Only a section without references may have 0, and it is encoded as 0.
        Some(required)
            .filter(|required| *required > 0)
            .ok_or(QpackError::InsertCount)
    }

    fn relative(&self, prefix: SectionPrefix, index: u64) -> Result<TableEntry<'_>, QpackError> {
        let position = prefix
            .base
            .checked_sub(index)
            .and_then(|after| after.checked_sub(1));
        self.entry(prefix, position)
    }

    fn post_base(&self, prefix: SectionPrefix, index: u64) -> Result<TableEntry<'_>, QpackError> {
        self.entry(prefix, prefix.base.checked_add(index))
    }

    /// The entry at an absolute index, which the prefix of the section has to cover.
    fn entry(
        &self,
        prefix: SectionPrefix,
        position: Option<u64>,
    ) -> Result<TableEntry<'_>, QpackError> {
        position
            // What is beyond may have been inserted in the meantime: whether the section is valid must not depend on
            // that (section 2.2.3).
            .filter(|position| *position < prefix.required)
            .and_then(|position| self.inserted.checked_sub(position)?.checked_sub(1))
            .and_then(|index| self.table.get(usize::try_from(index).ok()?))
            .ok_or(QpackError::Index)
    }
}

/// A string of an instruction.
#[derive(Clone, Copy)]
struct InstructionString<'i> {
    bytes: &'i [u8],
    is_huffman: bool,
}

impl<'i> InstructionString<'i> {
    fn decode<'a>(self, scratch: &'a mut StringBuffer) -> Result<&'a [u8], QpackError>
    where
        'i: 'a,
    {
        if self.is_huffman {
            Ok(scratch.decode(self.bytes)?)
        } else {
            Ok(self.bytes)
        }
    }
}

fn name_of(entry: TableEntry<'_>) -> (&[u8], FieldValidity) {
    (entry.name, FieldValidity::of_mark(entry.mark))
}

#[inline]
fn take_byte(input: &mut &[u8]) -> Result<u8, CodingError> {
    let (first, rest) = input.split_first().ok_or(CodingError::Truncated)?;
    *input = rest;
    Ok(*first)
}
