//! Integers of variable length (RFC 9000 section 16).

/// The largest integer.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Bytes of the longest integer.
pub(crate) const MAX_BYTES: usize = 8;

/// Takes an integer from the start of `input`; `None` if it is incomplete.
#[inline]
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    // The two highest bits are the logarithm of the length (RFC 9000 section 16).
    let len = 1_usize.wrapping_shl(u32::from(first >> 6));
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    let value = bytes
        .iter()
        .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let bits = u32::try_from(len.wrapping_mul(8).wrapping_sub(2)).unwrap_or(0);
    Some(value & !u64::MAX.wrapping_shl(bits))
}

/// Appends an integer of at most [`MAX`] in its shortest form.
#[inline]
pub(crate) fn put(value: u64, out: &mut Vec<u8>) {
    let bytes = value.to_be_bytes();
    match value {
        0..=0x3f => out.extend(bytes.last()),
        0x40..=0x3fff => put_prefixed(0x40, bytes.last_chunk::<2>(), out),
        0x4000..=0x3fff_ffff => put_prefixed(0x80, bytes.last_chunk::<4>(), out),
        _ => put_prefixed(0xc0, Some(&bytes), out),
    }
}

fn put_prefixed<const N: usize>(prefix: u8, bytes: Option<&[u8; N]>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(bytes.map_or(&[], |bytes| &bytes[..]));
    if let Some(first) = out.get_mut(start) {
        *first |= prefix;
    }
}

/// An integer of at most 16,383 in two bytes.
pub(crate) fn two_bytes(value: usize) -> Option<[u8; 2]> {
    let value = u16::try_from(value).ok().filter(|value| *value < 0x4000)?;
    Some((value | 0x4000).to_be_bytes())
}

/// Bytes of the shortest form.
#[cfg(test)]
pub(crate) fn len(value: u64) -> usize {
    let mut out = Vec::new();
    put(value, &mut out);
    out.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 9000 appendix A.1.
    #[test]
    fn reads_the_examples_of_the_rfc() {
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out, bytes);
            let mut rest = bytes;
            assert_eq!((take(&mut rest), rest), (Some(value), &[][..]));
            let mut cut = &bytes[..bytes.len() - 1];
            assert_eq!(take(&mut cut), None);
        }
        assert_eq!(take(&mut &[0x40, 37][..]), Some(37));
        assert_eq!(two_bytes(37), Some([0x40, 37]));
        assert_eq!(two_bytes(0x3fff), Some([0x7f, 0xff]));
        assert_eq!(two_bytes(0x4000), None);
    }

    #[test]
    fn takes_as_few_bytes_as_possible() {
        for (value, bytes) in [
            (0x3f, 1),
            (0x40, 2),
            (0x3fff, 2),
            (0x4000, 4),
            (0x3fff_ffff, 4),
            (0x4000_0000, 8),
            (MAX, 8),
        ] {
            assert_eq!(len(value), bytes, "{value}");
        }
    }
}
