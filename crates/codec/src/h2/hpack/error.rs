//! What is wrong with a field block (RFC 7541).

use std::fmt;

/// Why a field block could not be decoded. What the tables hold is not known any more then: the
/// connection has to end with `COMPRESSION_ERROR` (RFC 9113 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The block ends inside of a field: a faulty peer, or frames that were lost.
    Truncated,
    /// An integer has more digits, or is larger, than anything it could count (section 5.1).
    IntegerTooLarge,
    /// An index is zero or points behind the end of the tables (section 2.3.3): the peer's table
    /// and ours differ.
    Index,
    /// A string holds the code of its end, or a code that was cut off (section 5.2).
    HuffmanCode,
    /// A string is not padded by the first bits of the code of its end, fewer than eight (section
    /// 5.2).
    HuffmanPadding,
    /// The table's size is changed behind the first field of a block (section 4.2).
    SizeUpdateMisplaced,
    /// The table is made larger than was allowed (section 6.3).
    SizeUpdateTooLarge,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a field block ends inside of a field",
            Self::IntegerTooLarge => "an integer in a field block is too large",
            Self::Index => "a field block refers to an entry that is not in the table",
            Self::HuffmanCode => "a field block holds an invalid Huffman code",
            Self::HuffmanPadding => "a Huffman-coded string is padded wrongly",
            Self::SizeUpdateMisplaced => "the table size is changed in the middle of a field block",
            Self::SizeUpdateTooLarge => "the table size is set to more than was allowed",
        })
    }
}

impl std::error::Error for DecodeError {}
