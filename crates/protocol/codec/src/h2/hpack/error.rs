//! The errors of field blocks (RFC 7541).

use std::fmt;

use crate::field_compression::CodingError;

/// Why a field block cannot be decoded. The dynamic tables of both ends may differ afterwards, so the
/// connection has to be closed with `COMPRESSION_ERROR` (RFC 9113 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends in the middle of a field: a faulty peer, or lost frames.
    Truncated,
    /// An integer has more digits or a larger value than any valid one (section 5.1).
    IntegerTooLarge,
    /// An index is zero or beyond the end of the tables (section 2.3.3): the peer's table
    /// and ours differ.
    Index,
    /// A string contains the EOS code, or an incomplete code (section 5.2).
    HuffmanCode,
    /// The padding of a string is longer than 7 bits, or not the start of the EOS code (section 5.2).
    HuffmanPadding,
    /// A size update follows the first field of a block (section 4.2).
    SizeUpdateMisplaced,
    /// A size update exceeds the allowed table size (section 6.3).
    SizeUpdateTooLarge,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a field block ends in the middle of a field",
            Self::IntegerTooLarge => "an integer in a field block is too large",
            Self::Index => "a field block refers to an entry that is not in the tables",
            Self::HuffmanCode => "a field block contains an invalid Huffman code",
            Self::HuffmanPadding => "a Huffman string has invalid padding",
            Self::SizeUpdateMisplaced => "the table size is changed in the middle of a field block",
            Self::SizeUpdateTooLarge => "the table size is set to more than was allowed",
        })
    }
}

impl std::error::Error for HpackError {}

impl From<CodingError> for HpackError {
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::Truncated => Self::Truncated,
            CodingError::IntegerTooLarge => Self::IntegerTooLarge,
            CodingError::HuffmanCode => Self::HuffmanCode,
            CodingError::HuffmanPadding => Self::HuffmanPadding,
        }
    }
}
