//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).

use super::CodingError;

/// The length in bits of each byte's code. The code is canonical: among codes of equal length, greater
/// bytes have greater codes, and longer codes are greater than shorter ones, so that the lengths define
/// the code. The EOS code, the greatest one, is not included.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The length in bits of the longest codes.
const MAX_LENGTH: usize = 30;

/// The codes, computed from their lengths.
struct CanonicalCode {
    /// The code of each byte.
    codes: [u32; 256],
    /// The bytes in the order of their codes.
    bytes: [u8; 256],
    /// For each length, the first code that is longer, as the high bits of 32.
    ends: [u32; MAX_LENGTH + 1],
    /// For each length, the difference between a code and its position in `bytes`.
    offsets: [u32; MAX_LENGTH + 1],
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const CANONICAL_CODE: CanonicalCode = {
    let mut canon = CanonicalCode {
        codes: [0; 256],
        bytes: [0; 256],
        ends: [0; MAX_LENGTH + 1],
        offsets: [0; MAX_LENGTH + 1],
    };
    let (mut code, mut place) = (0_u32, 0_u32);
    let mut length = 1;
    while length <= MAX_LENGTH {
        code <<= 1;
        canon.offsets[length] = code.wrapping_sub(place);
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                canon.codes[byte] = code;
                canon.bytes[place as usize] = byte as u8;
                code += 1;
                place += 1;
            }
            byte += 1;
        }
        canon.ends[length] = code << (32 - length);
        length += 1;
    }
    canon
};

static CODES: [u32; 256] = CANONICAL_CODE.codes;
static BYTES: [u8; 256] = CANONICAL_CODE.bytes;

/// Bits of a table lookup. The usual characters of fields have codes of at most this length.
// A table of 2 KB, which stays in the first-level cache. One of all 30 bits would take gigabytes, and with 8 bits `?`
// and parentheses would take the long way.
const LOOKUP_BITS: u32 = 10;

/// For the first bits of a code: the byte, and above it the length of its code, or 0 if the code is longer.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
static SHORT: [u16; 1 << LOOKUP_BITS] = {
    let mut short = [0; 1 << LOOKUP_BITS];
    let mut byte = 0;
    while byte < 256 {
        let length = LENGTHS[byte] as u32;
        if length <= LOOKUP_BITS {
            let first = CANONICAL_CODE.codes[byte] << (LOOKUP_BITS - length);
            let mut at = 0;
            while at < 1 << (LOOKUP_BITS - length) {
                short[(first + at) as usize] = (length << 8) as u16 | byte as u16;
                at += 1;
            }
        }
        byte += 1;
    }
    short
};

/// The bits of a string that are not decoded yet.
struct HuffmanBits {
    /// The bits are the highest ones; the others are zero.
    word: u64,
    count: u32,
}

impl HuffmanBits {
    /// The byte of the first code, and the length of the code. Needs 32 bits, or zeros in place of missing
    /// ones.
    #[inline]
    fn first(&self) -> Option<(u8, u32)> {
        let short = usize::try_from(self.word >> (u64::BITS.wrapping_sub(LOOKUP_BITS)))
            .ok()
            .and_then(|at| SHORT.get(at))?;
        let [length, byte] = short.to_be_bytes();
        if length != 0 {
            return Some((byte, u32::from(length)));
        }
        self.first_long()
    }

    #[cold]
    fn first_long(&self) -> Option<(u8, u32)> {
        let window = u32::try_from(self.word >> 32).ok()?;
        let longer = CANONICAL_CODE.ends.iter().skip(1);
        let length = longer.take_while(|end| window >= **end).count();
        let length = length.checked_add(1)?;
        let bits = u32::try_from(length).ok()?;
        let code = window.wrapping_shr(u32::BITS.wrapping_sub(bits));
        let place = code.wrapping_sub(*CANONICAL_CODE.offsets.get(length)?);
        let byte = *BYTES.get(usize::try_from(place).ok()?)?;
        Some((byte, bits))
    }

    #[inline]
    fn skip(&mut self, bits: u32) {
        self.word = self.word.wrapping_shl(bits);
        self.count = self.count.wrapping_sub(bits);
    }

    /// Appends the low `bits` of `word`, whose other bits are zero. They have to fit.
    #[inline]
    fn add(&mut self, word: u64, bits: u32) {
        let unused = u64::BITS.wrapping_sub(self.count).wrapping_sub(bits);
        self.word |= word.wrapping_shl(unused);
        self.count = self.count.wrapping_add(bits);
    }
}

/// The maximum length of the decoded string: the shortest codes have five bits.
pub fn max_decoded_len(coded: usize) -> usize {
    coded.saturating_mul(8) / 5
}

/// Decodes a string into `out`, which has [`max_decoded_len`] bytes. Returns the length of the decoded
/// string.
pub fn decode(coded: &[u8], out: &mut [u8]) -> Result<usize, CodingError> {
    let capacity = out.len();
    let mut places = out.iter_mut();
    let mut bits = HuffmanBits { word: 0, count: 0 };
    let (words, rest) = coded.as_chunks::<4>();
    for word in words {
        bits.add(u32::from_be_bytes(*word).into(), 32);
        while bits.count >= 32 {
            let (byte, length) = bits.first().ok_or(CodingError::HuffmanCode)?;
            *places.next().ok_or(CodingError::HuffmanCode)? = byte;
            bits.skip(length);
        }
    }
    for byte in rest {
        bits.add(u64::from(*byte), 8);
    }
    while bits.count > 0 {
        match bits.first() {
            Some((byte, length)) if length <= bits.count => {
                *places.next().ok_or(CodingError::HuffmanCode)? = byte;
                bits.skip(length);
            }
            None => return Err(CodingError::HuffmanCode),
            // The rest is padding, or an incomplete code.
            Some(_) => {
                let ones = u64::MAX.wrapping_shl(u64::BITS.wrapping_sub(bits.count));
                // RFC 7541 section 5.2: padding of eight bits or more, or with other bits than the EOS symbol,
                // is an error: one string would have several encodings.
                if bits.count >= 8 || bits.word != ones {
                    return Err(CodingError::HuffmanPadding);
                }
                break;
            }
        }
    }
    Ok(capacity.saturating_sub(places.len()))
}

/// The length of the encoded string.
pub fn encoded_len(string: &[u8]) -> usize {
    let bits = string.iter().fold(0_usize, |bits, byte| {
        bits.wrapping_add(length(*byte) as usize)
    });
    bits.div_ceil(8)
}

fn length(byte: u8) -> u32 {
    LENGTHS.get(usize::from(byte)).copied().unwrap_or(0).into()
}

/// Appends the encoded string.
pub fn encode(string: &[u8], out: &mut Vec<u8>) {
    // The last `count` bits of `word`, fewer than 32, are not written yet.
    let (mut word, mut count) = (0_u64, 0_u32);
    for byte in string {
        let length = length(*byte);
        let code = CODES.get(usize::from(*byte)).copied().unwrap_or(0);
        word = word.wrapping_shl(length) | u64::from(code);
        count = count.wrapping_add(length);
        if count >= 32 {
            count = count.wrapping_sub(32);
            let [.., a, b, c, d] = word.wrapping_shr(count).to_be_bytes();
            out.extend_from_slice(&[a, b, c, d]);
        }
    }
    // The EOS code starts with ones.
    let padding = count.wrapping_neg() % 8;
    word = word.wrapping_shl(padding) | !u64::MAX.wrapping_shl(padding);
    count = count.wrapping_add(padding);
    let bytes = word.to_be_bytes();
    let start = bytes.len().saturating_sub(count as usize / 8);
    out.extend_from_slice(bytes.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(string: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(string, &mut out);
        assert_eq!(out.len(), encoded_len(string));
        out
    }

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut out = vec![0; max_decoded_len(coded.len())];
        let len = decode(coded, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    /// Examples of RFC 7541 appendix C.4 and C.6.
    #[test]
    fn encodes_the_examples_of_the_rfc() {
        for (string, code) in [
            (&b"www.example.com"[..], "f1e3c2e5f23a6ba0ab90f4ff"),
            (b"no-cache", "a8eb10649cbf"),
            (b"custom-value", "25a849e95bb8e8b4bf"),
            (b"302", "6402"),
            (b"private", "aec3771a4b"),
            (
                b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
        ] {
            let hex: String = coded(string).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, code);
            assert_eq!(decoded(&coded(string)).unwrap(), string);
        }
    }

    #[test]
    fn decodes_every_encoded_pair_of_bytes() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let string = [first, second, first];
                assert_eq!(decoded(&coded(&string)).unwrap(), string);
            }
        }
    }

    #[test]
    fn decodes_long_strings_of_one_byte() {
        for byte in 0..=u8::MAX {
            for len in 0..40 {
                let string = vec![byte; len];
                assert_eq!(decoded(&coded(&string)).unwrap(), string);
            }
        }
    }

    /// RFC 7541 section 5.2: EOS must not be encoded, and the padding is shorter than a byte and the start of
    /// the EOS code.
    #[test]
    fn rejects_eos_and_invalid_padding() {
        assert_eq!(decoded(b""), Ok(vec![]));
        // "a" has the code 00011.
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), Err(CodingError::HuffmanPadding));
        assert_eq!(decoded(&[0b0001_1000]), Err(CodingError::HuffmanPadding));
        assert_eq!(
            decoded(&[0b0001_1111, 0xff]),
            Err(CodingError::HuffmanPadding)
        );
        // "aaaaaaaa" has 40 bits, and needs no padding.
        let whole = coded(b"aaaaaaaa");
        assert_eq!(whole.len(), 5);
        assert_eq!(
            decoded(&[&whole[..], &[0xff]].concat()),
            Err(CodingError::HuffmanPadding)
        );
        for end in [&[0xff; 4][..], &[0xff; 5], &[0xff, 0xff, 0xff, 0xfc, 0x1f]] {
            assert_eq!(decoded(end), Err(CodingError::HuffmanCode), "{end:x?}");
        }
        for padding in 1..4 {
            let only = vec![0xff; padding];
            assert_eq!(decoded(&only), Err(CodingError::HuffmanPadding));
        }
    }
}
