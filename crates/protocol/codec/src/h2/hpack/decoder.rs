//! Decodes field blocks (RFC 7541 sections 3 and 6).

use smallvec::SmallVec;

use super::{HpackError, static_table};
use crate::field_compression::{
    DynamicTable, Field, FieldValidity, StringBuffer, decode_string, integer,
};

/// Decodes the field blocks of one connection.
///
/// The dynamic table is all its memory. It grows with its entries to at most two and a half times its
/// size.
#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
    max_table_size: usize,
}

/// The indexing of a literal field (sections 6.2.1 to 6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LiteralIndexing {
    Incremental,
    Without,
    Never,
}

impl HpackDecoder {
    /// A decoder with this initial and maximum table size, which is
    /// [`DEFAULT_TABLE_SIZE`](super::DEFAULT_TABLE_SIZE) unless both ends have agreed on another one.
    pub fn new(max_table_size: usize) -> Self {
        Self {
            table: DynamicTable::new(max_table_size),
            max_table_size,
        }
    }

    /// Decodes a complete field block and passes its fields to `sink` in order.
    ///
    /// A block of some kilobytes can decompress to megabytes of fields (CVE-2016-6581). They are not copied
    /// here, and `sink` has to limit what it keeps.
    ///
    /// # Errors
    /// The block is invalid. The caller has to drop the fields that `sink` received, and close the
    /// connection.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut sink: impl FnMut(Field<'_>),
    ) -> Result<(), HpackError> {
        let mut input = block;
        // Buffers on the stack: a usual head decodes without an allocation for its strings.
        let mut scratch = [StringBuffer::new(), StringBuffer::new()];
        let mut is_start = true;
        while let Some((first, rest)) = input.split_first() {
            input = rest;
            match first {
                0x80.. => {
                    let index = integer::decode(*first, 7, &mut input)?;
                    let (name, value, valid) = self.entry(index)?;
                    sink(Field {
                        name,
                        value,
                        is_valid: valid.is_valid(),
                        never_indexed: false,
                    });
                }
                0x40.. => {
                    let index = integer::decode(*first, 6, &mut input)?;
                    self.literal(
                        index,
                        &mut input,
                        &mut scratch,
                        LiteralIndexing::Incremental,
                        &mut sink,
                    )?;
                }
                0x20.. => {
                    let size = integer::decode(*first, 5, &mut input)?;
                    self.resize(size, is_start)?;
                    continue;
                }
                _ => {
                    let index = integer::decode(*first, 4, &mut input)?;
                    let indexing = match first {
                        0x10.. => LiteralIndexing::Never,
                        _ => LiteralIndexing::Without,
                    };
                    self.literal(index, &mut input, &mut scratch, indexing, &mut sink)?;
                }
            }
            is_start = false;
        }
        Ok(())
    }

    /// Decodes a literal field (section 6.2), whose name is the entry at `index` or, if that is 0, in the
    /// block.
    fn literal(
        &mut self,
        index: usize,
        input: &mut &[u8],
        [name_buffer, value_buffer]: &mut [StringBuffer; 2],
        indexing: LiteralIndexing,
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), HpackError> {
        let copied: SmallVec<[u8; 64]>;
        let (name, valid_name) = if index == 0 {
            let name = string(input, name_buffer)?;
            (name, FieldValidity::of_name(name))
        } else if let Some((name, _)) = static_table::get(index) {
            (name, FieldValidity::VALID)
        } else {
            let (name, _, valid) = self.entry(index)?;
            // Inserting this field may evict the entry that holds the name.
            copied = SmallVec::from_slice(name);
            (&copied[..], valid)
        };
        let value = string(input, value_buffer)?;
        let valid = valid_name.with_value(value);
        sink(Field {
            name,
            value,
            is_valid: valid.is_valid(),
            never_indexed: indexing == LiteralIndexing::Never,
        });
        if indexing == LiteralIndexing::Incremental {
            self.table.insert(name, value, valid.mark());
        }
        Ok(())
    }

    /// The name and value at an index (section 2.3.3), and which of them are valid.
    #[inline]
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8], FieldValidity), HpackError> {
        if let Some((name, value)) = static_table::get(index) {
            return Ok((name, value, FieldValidity::VALID));
        }
        let entry = index
            .checked_sub(static_table::LEN)
            .and_then(|index| self.table.get(index.checked_sub(1)?))
            .ok_or(HpackError::Index)?;
        Ok((entry.name, entry.value, FieldValidity::of_mark(entry.mark)))
    }

    /// Changes the size of the table (section 6.3).
    fn resize(&mut self, size: usize, is_start: bool) -> Result<(), HpackError> {
        // RFC 7541 section 4.2: an update elsewhere in a block could change the meaning of the fields before it.
        if !is_start {
            return Err(HpackError::SizeUpdateMisplaced);
        }
        if size > self.max_table_size {
            return Err(HpackError::SizeUpdateTooLarge);
        }
        self.table.set_max_size(size);
        Ok(())
    }
}

/// Decodes a string (section 5.2). The result is in the input or, for a Huffman string, in `scratch`.
fn string<'a, 'i: 'a>(
    input: &mut &'i [u8],
    scratch: &'a mut StringBuffer,
) -> Result<&'a [u8], HpackError> {
    let (first, rest) = input.split_first().ok_or(HpackError::Truncated)?;
    *input = rest;
    Ok(decode_string(*first, 7, input, scratch)?)
}
