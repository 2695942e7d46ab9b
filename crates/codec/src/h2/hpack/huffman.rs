//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).

use super::DecodeError;

/// Bits of the code of each byte. The code is canonical: of codes of one length, greater bytes have
/// greater codes, and longer codes are greater than shorter ones, so that the lengths tell
/// everything. The code of the end of a string, the greatest, is left out.
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

/// Bits of the longest codes.
const LONGEST: usize = 30;

/// The codes as one looks at them bit by bit, made from the lengths.
struct Canon {
    /// The code of each byte.
    codes: [u32; 256],
    /// The bytes in the order of their codes.
    bytes: [u8; 256],
    /// For each length, the first code that is longer, as the high bits of 32.
    ends: [u32; LONGEST + 1],
    /// For each length, what to subtract from a code of it to get its place in `bytes`.
    offsets: [u32; LONGEST + 1],
}

#[expect(clippy::indexing_slicing, reason = "worked out by the compiler")]
const CANON: Canon = {
    let mut canon = Canon {
        codes: [0; 256],
        bytes: [0; 256],
        ends: [0; LONGEST + 1],
        offsets: [0; LONGEST + 1],
    };
    let (mut code, mut place) = (0_u32, 0_u32);
    let mut length = 1;
    while length <= LONGEST {
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

static CODES: [u32; 256] = CANON.codes;
static BYTES: [u8; 256] = CANON.bytes;

/// Bits that are looked up at once. Whatever is usual in fields has a shorter code.
const LOOKED_UP: u32 = 10;

/// For the first bits of a code, the byte, and above it the bits of its code: 0 if that is longer.
#[expect(clippy::indexing_slicing, reason = "worked out by the compiler")]
static SHORT: [u16; 1 << LOOKED_UP] = {
    let mut short = [0; 1 << LOOKED_UP];
    let mut byte = 0;
    while byte < 256 {
        let length = LENGTHS[byte] as u32;
        if length <= LOOKED_UP {
            let first = CANON.codes[byte] << (LOOKED_UP - length);
            let mut at = 0;
            while at < 1 << (LOOKED_UP - length) {
                short[(first + at) as usize] = (length << 8) as u16 | byte as u16;
                at += 1;
            }
        }
        byte += 1;
    }
    short
};

/// The bits of a string that were not decoded yet.
struct Bits {
    /// They are the highest of these; those below are zero.
    word: u64,
    count: u32,
}

impl Bits {
    /// The byte whose code comes first, and how many bits that has. Needs 32 bits, or zeros for what
    /// is missing of them.
    #[inline]
    fn first(&self) -> Option<(u8, u32)> {
        let short = usize::try_from(self.word >> (u64::BITS.wrapping_sub(LOOKED_UP)))
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
        let longer = CANON.ends.iter().skip(1);
        let length = longer.take_while(|end| window >= **end).count();
        let length = length.checked_add(1)?;
        let bits = u32::try_from(length).ok()?;
        let code = window.wrapping_shr(u32::BITS.wrapping_sub(bits));
        let place = code.wrapping_sub(*CANON.offsets.get(length)?);
        let byte = *BYTES.get(usize::try_from(place).ok()?)?;
        Some((byte, bits))
    }

    #[inline]
    fn skip(&mut self, bits: u32) {
        self.word = self.word.wrapping_shl(bits);
        self.count = self.count.wrapping_sub(bits);
    }

    /// Adds the low `bits` of `word`, which has no others. There has to be room for them.
    #[inline]
    fn add(&mut self, word: u64, bits: u32) {
        let unused = u64::BITS.wrapping_sub(self.count).wrapping_sub(bits);
        self.word |= word.wrapping_shl(unused);
        self.count = self.count.wrapping_add(bits);
    }
}

/// The most bytes that a coded string of so many stands for: the shortest codes have five bits.
pub(super) fn max_decoded_len(coded: usize) -> usize {
    coded.saturating_mul(8) / 5
}

/// Writes what a coded string stands for to `out`, which has room for
/// [`max_decoded_len`] bytes, and tells how many they are.
pub(super) fn decode(coded: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let room = out.len();
    let mut places = out.iter_mut();
    let mut bits = Bits { word: 0, count: 0 };
    let (words, rest) = coded.as_chunks::<4>();
    for word in words {
        bits.add(u32::from_be_bytes(*word).into(), 32);
        while bits.count >= 32 {
            let (byte, length) = bits.first().ok_or(DecodeError::HuffmanCode)?;
            *places.next().ok_or(DecodeError::HuffmanCode)? = byte;
            bits.skip(length);
        }
    }
    for byte in rest {
        bits.add(u64::from(*byte), 8);
    }
    while bits.count > 0 {
        match bits.first() {
            Some((byte, length)) if length <= bits.count => {
                *places.next().ok_or(DecodeError::HuffmanCode)? = byte;
                bits.skip(length);
            }
            None => return Err(DecodeError::HuffmanCode),
            // The rest is padding, or a code that was cut off.
            Some(_) => {
                let ones = u64::MAX.wrapping_shl(u64::BITS.wrapping_sub(bits.count));
                if bits.count >= 8 || bits.word != ones {
                    return Err(DecodeError::HuffmanPadding);
                }
                break;
            }
        }
    }
    Ok(room.saturating_sub(places.len()))
}

/// Bytes of a string once it is coded.
pub(super) fn encoded_len(string: &[u8]) -> usize {
    let bits = string.iter().fold(0_usize, |bits, byte| {
        bits.wrapping_add(length(*byte) as usize)
    });
    bits.div_ceil(8)
}

fn length(byte: u8) -> u32 {
    LENGTHS.get(usize::from(byte)).copied().unwrap_or(0).into()
}

/// Appends a string in coded form.
pub(super) fn encode(string: &[u8], out: &mut Vec<u8>) {
    // The last bits of `word`, so many that were not written yet: fewer than 32.
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
    // The code of the end begins with ones.
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

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = vec![0; max_decoded_len(coded.len())];
        let len = decode(coded, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    /// Examples of RFC 7541 appendix C.4 and C.6.
    #[test]
    fn codes_the_examples_of_the_rfc() {
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
    fn reads_every_pair_of_bytes_that_it_writes() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let string = [first, second, first];
                assert_eq!(decoded(&coded(&string)).unwrap(), string);
            }
        }
    }

    #[test]
    fn reads_long_strings_of_one_byte() {
        for byte in 0..=u8::MAX {
            for len in 0..40 {
                let string = vec![byte; len];
                assert_eq!(decoded(&coded(&string)).unwrap(), string);
            }
        }
    }

    /// RFC 7541 section 5.2: the end must not be coded, padding is shorter than a byte and made of
    /// the first bits of its code.
    #[test]
    fn refuses_the_end_and_wrong_padding() {
        assert_eq!(decoded(b""), Ok(vec![]));
        // "a" has the code 00011.
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), Err(DecodeError::HuffmanPadding));
        assert_eq!(decoded(&[0b0001_1000]), Err(DecodeError::HuffmanPadding));
        assert_eq!(
            decoded(&[0b0001_1111, 0xff]),
            Err(DecodeError::HuffmanPadding)
        );
        // "aaaaaaaa" has 40 bits, and needs no padding.
        let whole = coded(b"aaaaaaaa");
        assert_eq!(whole.len(), 5);
        assert_eq!(
            decoded(&[&whole[..], &[0xff]].concat()),
            Err(DecodeError::HuffmanPadding)
        );
        for end in [&[0xff; 4][..], &[0xff; 5], &[0xff, 0xff, 0xff, 0xfc, 0x1f]] {
            assert_eq!(decoded(end), Err(DecodeError::HuffmanCode), "{end:x?}");
        }
        for padding in 1..4 {
            let only = vec![0xff; padding];
            assert_eq!(decoded(&only), Err(DecodeError::HuffmanPadding));
        }
    }
}
