//! Reads field blocks (RFC 7541 sections 3 and 6).

use smallvec::SmallVec;

use super::table::Table;
use super::{DecodeError, huffman, integer, static_table};
use apus_http::grammar::{is_field_content, is_token};

/// Reads the field blocks of one connection.
///
/// What it holds is the dynamic table, which grows with what the peer puts into it, to two and a half
/// times its size at the very most.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    max_table_size: usize,
}

/// A field line out of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, which begins with a colon if this is a pseudo-header field.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether name and value have only bytes that they may have (RFC 9113 section 8.2.1): the name
    /// is a token without upper case, perhaps behind a colon; the value has no control byte but
    /// tabs, and no white space around it. Looked at once for each entry of a table, so that what
    /// is repeated costs nothing.
    pub is_valid: bool,
    /// Whether its sender wants it in no table. Who sends it on has to do so in the same way
    /// (section 6.2.3).
    pub never_indexed: bool,
}

/// Whether a literal goes into the table (sections 6.2.1 to 6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Indexed,
    NotNow,
    Never,
}

/// Which part of an entry is valid, as the table remembers it.
const VALID_NAME: u32 = 1;
const VALID_VALUE: u32 = 2;
const VALID: u32 = VALID_NAME | VALID_VALUE;

/// Room for what a Huffman-coded string stands for: mostly without an allocation.
struct Scratch {
    near: [u8; 192],
    far: Vec<u8>,
}

impl Scratch {
    fn new() -> Self {
        Self {
            near: [0; 192],
            far: Vec::new(),
        }
    }

    fn decode(&mut self, coded: &[u8]) -> Result<&[u8], DecodeError> {
        let most = huffman::max_decoded_len(coded.len());
        let room = if let Some(near) = self.near.get_mut(..most) {
            near
        } else {
            self.far.resize(most, 0);
            &mut self.far
        };
        let len = huffman::decode(coded, room)?;
        Ok(room.get(..len).unwrap_or_default())
    }
}

impl Decoder {
    /// For a connection whose peer may use a table of this size, which is also what it starts with:
    /// [`DEFAULT_TABLE_SIZE`](super::DEFAULT_TABLE_SIZE), unless both ends know better from the
    /// start.
    pub fn new(max_table_size: usize) -> Self {
        Self {
            table: Table::new(max_table_size),
            max_table_size,
        }
    }

    /// Reads a whole field block, and hands its fields to `sink` in order.
    ///
    /// A block of some kilobytes can stand for megabytes of fields (CVE-2016-6581); they are not
    /// copied here, and `sink` has to count what it keeps.
    ///
    /// # Errors
    /// The block is not valid. What went to `sink` before is to be forgotten, and so is the
    /// connection.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut sink: impl FnMut(Field<'_>),
    ) -> Result<(), DecodeError> {
        let mut input = block;
        let mut scratch = [Scratch::new(), Scratch::new()];
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
                        is_valid: valid == VALID,
                        never_indexed: false,
                    });
                }
                0x40.. => {
                    let index = integer::decode(*first, 6, &mut input)?;
                    self.literal(index, &mut input, &mut scratch, Kept::Indexed, &mut sink)?;
                }
                0x20.. => {
                    let size = integer::decode(*first, 5, &mut input)?;
                    self.resize(size, is_start)?;
                    continue;
                }
                _ => {
                    let index = integer::decode(*first, 4, &mut input)?;
                    let kept = match first {
                        0x10.. => Kept::Never,
                        _ => Kept::NotNow,
                    };
                    self.literal(index, &mut input, &mut scratch, kept, &mut sink)?;
                }
            }
            is_start = false;
        }
        Ok(())
    }

    /// A literal field (section 6.2), whose name is at `index` or, if that is 0, in the block.
    fn literal(
        &mut self,
        index: usize,
        input: &mut &[u8],
        [scratch, scratch_of_value]: &mut [Scratch; 2],
        kept: Kept,
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), DecodeError> {
        let copied: SmallVec<[u8; 64]>;
        let (name, valid_name) = if index == 0 {
            let name = string(input, scratch)?;
            (name, if is_name(name) { VALID_NAME } else { 0 })
        } else if let Some((name, _)) = static_table::get(index) {
            (name, VALID_NAME)
        } else {
            let (name, _, valid) = self.entry(index)?;
            // The entry that has it may be evicted to make room for this one.
            copied = SmallVec::from_slice(name);
            (&copied[..], valid & VALID_NAME)
        };
        let value = string(input, scratch_of_value)?;
        let valid_value = if is_value(value) { VALID_VALUE } else { 0 };
        let valid = valid_name | valid_value;
        sink(Field {
            name,
            value,
            is_valid: valid == VALID,
            never_indexed: kept == Kept::Never,
        });
        if kept == Kept::Indexed {
            self.table.insert(name, value, valid);
        }
        Ok(())
    }

    /// The name and value at an index (section 2.3.3), and what is valid of them.
    #[inline]
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8], u32), DecodeError> {
        if let Some((name, value)) = static_table::get(index) {
            return Ok((name, value, VALID));
        }
        let entry = index
            .checked_sub(static_table::LEN)
            .and_then(|index| self.table.get(index.checked_sub(1)?))
            .ok_or(DecodeError::Index)?;
        Ok((entry.name, entry.value, entry.mark))
    }

    /// A change of the table's size (section 6.3).
    fn resize(&mut self, size: usize, is_start: bool) -> Result<(), DecodeError> {
        if !is_start {
            return Err(DecodeError::SizeUpdateMisplaced);
        }
        if size > self.max_table_size {
            return Err(DecodeError::SizeUpdateTooLarge);
        }
        self.table.set_max_size(size);
        Ok(())
    }
}

/// Reads a string (section 5.2), which is in the input or, if it was Huffman-coded, in `scratch`.
fn string<'a, 'i: 'a>(
    input: &mut &'i [u8],
    scratch: &'a mut Scratch,
) -> Result<&'a [u8], DecodeError> {
    let (first, rest) = input.split_first().ok_or(DecodeError::Truncated)?;
    *input = rest;
    let len = integer::decode(*first, 7, input)?;
    let (coded, rest) = input.split_at_checked(len).ok_or(DecodeError::Truncated)?;
    *input = rest;
    if first & 0x80 == 0 {
        return Ok(coded);
    }
    scratch.decode(coded)
}

/// Whether this can be the name of a field or a pseudo-header field (RFC 9113 section 8.2.1).
fn is_name(name: &[u8]) -> bool {
    let token = name.strip_prefix(b":").unwrap_or(name);
    !token.is_empty()
        && token
            .iter()
            .all(|byte| is_token(*byte) && !byte.is_ascii_uppercase())
}

/// Whether this can be the value of a field (RFC 9113 section 8.2.1).
fn is_value(value: &[u8]) -> bool {
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) && is_field_content(value)
}
