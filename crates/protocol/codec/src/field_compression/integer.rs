//! Integers with a prefix (RFC 7541 section 5.1, RFC 9204 section 4.1.1).

use super::CodingError;

/// Maximum bytes after the prefix of a short integer. They hold 35 bits, more than the length of any string in a
/// block.
const MAX_CONTINUATION_BYTES: usize = 5;

/// Maximum bytes after the prefix of a long integer. They hold 63 bits (RFC 9204 section 4.1.1).
const MAX_LONG_CONTINUATION_BYTES: usize = 9;

/// The largest long integer.
const MAX_LONG: u64 = (1 << 62) - 1;

/// Decodes an integer whose prefix is the low `bits` of `first`, the byte before `input`.
///
/// # Errors
/// It is incomplete, or does not fit 32 bits.
#[inline]
pub fn decode(first: u8, bits: u32, input: &mut &[u8]) -> Result<usize, CodingError> {
    let limit = limit(bits);
    let prefix = first & limit;
    if prefix < limit {
        return Ok(usize::from(prefix));
    }
    let value = continuation::<MAX_CONTINUATION_BYTES>(limit, input)?;
    u32::try_from(value)
        .ok()
        .and_then(|value| usize::try_from(value).ok())
        .ok_or(CodingError::IntegerTooLarge)
}

/// Like [`decode`], for integers of up to 62 bits.
///
/// # Errors
/// It is incomplete, or does not fit 62 bits.
#[inline]
pub fn decode_long(first: u8, bits: u32, input: &mut &[u8]) -> Result<u64, CodingError> {
    let limit = limit(bits);
    let prefix = first & limit;
    if prefix < limit {
        return Ok(u64::from(prefix));
    }
    let value = continuation::<MAX_LONG_CONTINUATION_BYTES>(limit, input)?;
    Some(value)
        .filter(|value| *value <= MAX_LONG)
        .ok_or(CodingError::IntegerTooLarge)
}

fn continuation<const MAX_BYTES: usize>(limit: u8, input: &mut &[u8]) -> Result<u64, CodingError> {
    let mut rest = 0_u64;
    for (at, byte) in input.iter().take(MAX_BYTES).enumerate() {
        let shift = u32::try_from(at).unwrap_or(0).wrapping_mul(7);
        rest |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            *input = input.get(at.saturating_add(1)..).unwrap_or_default();
            return rest
                .checked_add(u64::from(limit))
                .ok_or(CodingError::IntegerTooLarge);
        }
    }
    // Zeros may pad an integer without an end (RFC 7541 section 5.1 warns of it): the bytes are bounded, not only the
    // value.
    if input.len() < MAX_BYTES {
        Err(CodingError::Truncated)
    } else {
        Err(CodingError::IntegerTooLarge)
    }
}

/// Appends an integer whose first byte has `flags` above its low `bits`.
#[inline]
pub fn encode(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    encode_long(flags, bits, u64::try_from(value).unwrap_or(u64::MAX), out);
}

/// Like [`encode`], for integers of up to 62 bits.
#[inline]
pub fn encode_long(flags: u8, bits: u32, value: u64, out: &mut Vec<u8>) {
    let limit = limit(bits);
    match u8::try_from(value) {
        Ok(value) if value < limit => out.push(flags | value),
        _ => {
            out.push(flags | limit);
            let mut rest = value.saturating_sub(u64::from(limit));
            while rest >= 0x80 {
                out.push(0x80 | low_bits(rest));
                rest >>= 7;
            }
            out.push(low_bits(rest));
        }
    }
}

fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or(0)
}

/// The value of a prefix that continues in the following bytes.
fn limit(bits: u32) -> u8 {
    0xff_u8.wrapping_shr(8_u32.saturating_sub(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], bits: u32) -> Result<(usize, usize), CodingError> {
        let (first, mut rest) = bytes.split_first().unwrap();
        decode(*first, bits, &mut rest).map(|value| (value, rest.len()))
    }

    /// The examples of RFC 7541 appendix C.1.
    #[test]
    fn reads_and_writes_the_examples_of_the_rfc() {
        for (value, bits, bytes) in [
            (10, 5, &[0b0000_1010][..]),
            (1337, 5, &[0b0001_1111, 0b1001_1010, 0b0000_1010]),
            (42, 8, &[0b0010_1010]),
        ] {
            let mut out = Vec::new();
            encode(0, bits, value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read(bytes, bits), Ok((value, 0)));
        }
    }

    #[test]
    fn reads_what_it_writes_for_every_prefix() {
        for bits in 4..=7 {
            for value in (0..70_000).chain([u32::MAX as usize]) {
                let mut out = Vec::new();
                let flags = !limit(bits);
                encode(flags, bits, value, &mut out);
                assert_eq!(out[0] & flags, flags);
                out.push(0x55);
                assert_eq!(read(&out, bits), Ok((value, 1)));
            }
        }
    }

    #[test]
    fn long_integers_have_up_to_62_bits() {
        for value in [0, 254, 255, 1 << 32, MAX_LONG - 1, MAX_LONG] {
            let mut out = Vec::new();
            encode_long(0, 8, value, &mut out);
            assert_eq!(decode_long(out[0], 8, &mut &out[1..]), Ok(value));
        }
        let mut out = Vec::new();
        encode_long(0, 8, MAX_LONG + 1, &mut out);
        let too_large = Err(CodingError::IntegerTooLarge);
        assert_eq!(decode_long(out[0], 8, &mut &out[1..]), too_large);
        assert_eq!(decode_long(0xff, 8, &mut &[0x80; 9][..]), too_large);
        assert_eq!(
            decode_long(0xff, 8, &mut &[0x80; 8][..]),
            Err(CodingError::Truncated)
        );
    }

    #[test]
    fn refuses_integers_that_are_cut_off_or_too_large() {
        assert_eq!(read(&[0x7f], 7), Err(CodingError::Truncated));
        assert_eq!(read(&[0x7f, 0x80, 0x80], 7), Err(CodingError::Truncated));
        let too_many = [0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0];
        assert_eq!(read(&too_many, 7), Err(CodingError::IntegerTooLarge));
        let too_large = [0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(read(&too_large, 7), Err(CodingError::IntegerTooLarge));
        let largest = [0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(read(&largest, 7), Ok((u32::MAX as usize, 0)));
    }
}
