//! The errors of integers and strings in compressed fields (RFC 7541 section 5, RFC 9204 section 4.1).

use std::fmt;

/// Why an integer or a string cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodingError {
    /// The input ends in the middle of it.
    Truncated,
    /// An integer has more digits or a larger value than any valid one.
    IntegerTooLarge,
    /// A string contains the EOS code, or an incomplete code.
    HuffmanCode,
    /// The padding of a string is longer than 7 bits, or not the start of the EOS code.
    HuffmanPadding,
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a compressed field is incomplete",
            Self::IntegerTooLarge => "an integer in a compressed field is too large",
            Self::HuffmanCode => "a compressed field contains an invalid Huffman code",
            Self::HuffmanPadding => "a Huffman string has invalid padding",
        })
    }
}

impl std::error::Error for CodingError {}
