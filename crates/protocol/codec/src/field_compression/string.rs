//! Strings (RFC 7541 section 5.2, RFC 9204 section 4.1.2).

use super::{CodingError, huffman, integer};

/// A buffer for a decoded Huffman string, which rarely needs an allocation.
pub struct StringBuffer {
    inline: [u8; 192],
    heap: Vec<u8>,
}

impl StringBuffer {
    /// An empty buffer.
    #[inline]
    pub fn new() -> Self {
        Self {
            inline: [0; 192],
            heap: Vec::new(),
        }
    }

    /// Decodes a Huffman string.
    ///
    /// # Errors
    /// Its code or its padding is invalid.
    #[inline]
    pub fn decode(&mut self, coded: &[u8]) -> Result<&[u8], CodingError> {
        let max_len = huffman::max_decoded_len(coded.len());
        let buffer = if let Some(inline) = self.inline.get_mut(..max_len) {
            inline
        } else {
            self.heap.resize(max_len, 0);
            &mut self.heap
        };
        let len = huffman::decode(coded, buffer)?;
        Ok(buffer.get(..len).unwrap_or_default())
    }
}

impl Default for StringBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes a string whose length has a prefix of the low `bits` of `first`, the byte before `input`, and whose
/// Huffman flag is the bit above. The result is in the input or, for a Huffman string, in `scratch`.
///
/// # Errors
/// The string is incomplete, or its code is invalid.
#[inline]
pub fn decode_string<'a, 'i: 'a>(
    first: u8,
    bits: u32,
    input: &mut &'i [u8],
    scratch: &'a mut StringBuffer,
) -> Result<&'a [u8], CodingError> {
    let len = integer::decode(first, bits, input)?;
    let (coded, rest) = input.split_at_checked(len).ok_or(CodingError::Truncated)?;
    *input = rest;
    if first & 1_u8.wrapping_shl(bits) == 0 {
        return Ok(coded);
    }
    scratch.decode(coded)
}

/// Appends a string, Huffman-coded if that makes it shorter. Its first byte has `flags` above the Huffman flag,
/// which is above the low `bits`.
#[inline]
pub fn encode_string(flags: u8, bits: u32, string: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(string);
    // Some strings become longer by the code, such as random tokens in upper case.
    if len < string.len() {
        integer::encode(flags | 1_u8.wrapping_shl(bits), bits, len, out);
        huffman::encode(string, out);
    } else {
        integer::encode(flags, bits, string.len(), out);
        out.extend_from_slice(string);
    }
}
