//! Integers with a prefix (RFC 7541 section 5.1).

use super::HpackError;

/// Maximum bytes after the prefix. They hold 35 bits, more than the length of any string in a block.
const MAX_CONTINUATION_BYTES: usize = 5;

/// Decodes an integer whose prefix is the low `bits` of `first`, the byte before `input`.
#[inline]
pub(super) fn decode(first: u8, bits: u32, input: &mut &[u8]) -> Result<usize, HpackError> {
    let limit = limit(bits);
    let prefix = first & limit;
    if prefix < limit {
        return Ok(usize::from(prefix));
    }
    continuation(limit, input)
}

fn continuation(limit: u8, input: &mut &[u8]) -> Result<usize, HpackError> {
    let mut rest = 0_u64;
    for (at, byte) in input.iter().take(MAX_CONTINUATION_BYTES).enumerate() {
        let shift = u32::try_from(at).unwrap_or(0).wrapping_mul(7);
        rest |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            *input = input.get(at.saturating_add(1)..).unwrap_or_default();
            return rest
                .checked_add(u64::from(limit))
                .and_then(|value| u32::try_from(value).ok())
                .and_then(|value| usize::try_from(value).ok())
                .ok_or(HpackError::IntegerTooLarge);
        }
    }
    if input.len() < MAX_CONTINUATION_BYTES {
        Err(HpackError::Truncated)
    } else {
        Err(HpackError::IntegerTooLarge)
    }
}

/// Appends an integer whose first byte has `flags` above its low `bits`.
#[inline]
pub(super) fn encode(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let limit = limit(bits);
    match u8::try_from(value) {
        Ok(value) if value < limit => out.push(flags | value),
        _ => {
            out.push(flags | limit);
            let mut rest = value.saturating_sub(usize::from(limit));
            while rest >= 0x80 {
                out.push(0x80 | low_bits(rest));
                rest >>= 7;
            }
            out.push(low_bits(rest));
        }
    }
}

fn low_bits(value: usize) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or(0)
}

/// The value of a prefix that continues in the following bytes.
fn limit(bits: u32) -> u8 {
    0xff_u8.wrapping_shr(8_u32.saturating_sub(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], bits: u32) -> Result<(usize, usize), HpackError> {
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
    fn refuses_integers_that_are_cut_off_or_too_large() {
        assert_eq!(read(&[0x7f], 7), Err(HpackError::Truncated));
        assert_eq!(read(&[0x7f, 0x80, 0x80], 7), Err(HpackError::Truncated));
        let too_many = [0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0];
        assert_eq!(read(&too_many, 7), Err(HpackError::IntegerTooLarge));
        let too_large = [0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(read(&too_large, 7), Err(HpackError::IntegerTooLarge));
        let largest = [0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(read(&largest, 7), Ok((u32::MAX as usize, 0)));
    }
}
