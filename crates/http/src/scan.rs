//! Looks at the bytes of names and values 16 at a time, by vector instructions, and at what is left by words.

use crate::grammar::{is_field_value, is_token};

/// How many bytes at the start are of a token. It is fast for letters and hyphens, of which most names
/// consist.
pub fn token_len(bytes: &[u8]) -> usize {
    let plain = prefix_len(bytes, blocks::letters_and_hyphens, letters_and_hyphens);
    let rest = bytes.get(plain..).unwrap_or_default();
    let token = rest.iter().take_while(|byte| is_token(**byte));
    plain.saturating_add(token.count())
}

/// How many bytes at the start can be a field value (RFC 9110 section 5.5).
pub fn field_content_len(bytes: &[u8]) -> usize {
    let whole = prefix_len(bytes, blocks::valid_in_values, valid_in_values);
    let rest = bytes.get(whole..).unwrap_or_default();
    let valid = rest.iter().take_while(|byte| is_field_value(**byte));
    whole.saturating_add(valid.count())
}

/// Changes the letters of the name at the start of a line to lower case.
pub fn make_name_lower_case(line: &mut [u8], name: usize) {
    let mut left = name;
    for block in line.as_chunks_mut::<{ blocks::BYTES }>().0 {
        blocks::make_lower_case(block, left);
        left = left.saturating_sub(blocks::BYTES);
        if left == 0 {
            return;
        }
    }
    let rest = name.saturating_sub(left)..name;
    if let Some(rest) = line.get_mut(rest) {
        rest.make_ascii_lowercase();
    }
}

/// How many bytes at the start have a property, as far as whole blocks and words tell: a byte without it
/// follows, or less than a word.
fn prefix_len(
    bytes: &[u8],
    of_block: impl Fn(&[u8; blocks::BYTES]) -> usize,
    of_word: impl Fn(u64) -> usize,
) -> usize {
    let (whole, rest) = bytes.as_chunks::<{ blocks::BYTES }>();
    for (index, block) in whole.iter().enumerate() {
        let found = of_block(block);
        if found < blocks::BYTES {
            return index.saturating_mul(blocks::BYTES).saturating_add(found);
        }
    }
    let mut length = whole.len().saturating_mul(blocks::BYTES);
    for word in rest.as_chunks::<8>().0 {
        let found = of_word(u64::from_le_bytes(*word));
        length = length.saturating_add(found);
        if found < 8 {
            break;
        }
    }
    length
}

/// A word of eight times this byte.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const LOWS: u64 = each(0x7f);
const HIGHS: u64 = each(0x80);

/// The bytes of a word that are from `first` to `last`, both below 0x80, as the high bits of these bytes.
/// Additions stay within their bytes, as the high bits are left out of them.
const fn in_range(word: u64, first: u8, last: u8) -> u64 {
    let low = word & LOWS;
    let from = low.wrapping_add(each(0x80_u8.wrapping_sub(first)));
    let above = low.wrapping_add(each(0x7f_u8.wrapping_sub(last)));
    from & !above & !word & HIGHS
}

/// The number of bytes before the first one whose high bit is set.
const fn before(highs: u64) -> usize {
    (highs.trailing_zeros() / 8) as usize
}

/// How many bytes at the start of a word are letters and hyphens.
const fn letters_and_hyphens(word: u64) -> usize {
    let lower = word | each(0x20);
    let plain = in_range(lower, b'a', b'z') | in_range(word, b'-', b'-');
    before(!plain & HIGHS)
}

/// How many bytes at the start of a word a field value may hold.
const fn valid_in_values(word: u64) -> usize {
    let control = in_range(word, 0, 0x1f) & !in_range(word, b'\t', b'\t');
    before(control | in_range(word, 0x7f, 0x7f))
}

/// Blocks of 16 bytes.
mod blocks {
    use wide::u8x16;

    pub(super) const BYTES: usize = 16;

    /// How many bytes at the start are letters and hyphens.
    pub(super) fn letters_and_hyphens(block: &[u8; BYTES]) -> usize {
        let bytes = u8x16::new(*block);
        let lower = bytes | u8x16::splat(0x20);
        let from_a = lower.max(u8x16::splat(b'a')).simd_eq(lower);
        let is_letter = from_a & lower.min(u8x16::splat(b'z')).simd_eq(lower);
        let is_hyphen = bytes.simd_eq(u8x16::splat(b'-'));
        leading(is_letter | is_hyphen)
    }

    /// How many bytes at the start a field value may hold.
    pub(super) fn valid_in_values(block: &[u8; BYTES]) -> usize {
        let bytes = u8x16::new(*block);
        let is_high = bytes.max(u8x16::splat(0x20)).simd_eq(bytes);
        let is_tab = bytes.simd_eq(u8x16::splat(b'\t'));
        let is_delete = bytes.simd_eq(u8x16::splat(0x7f));
        leading((is_high | is_tab) & !is_delete)
    }

    /// Changes the letters among the first bytes to lower case.
    pub(super) fn make_lower_case(block: &mut [u8; BYTES], first: usize) {
        let bytes = u8x16::new(*block);
        let from_a = bytes.max(u8x16::splat(b'A')).simd_eq(bytes);
        let is_upper = from_a & bytes.min(u8x16::splat(b'Z')).simd_eq(bytes);
        let count = u8::try_from(first).unwrap_or(u8::MAX);
        let is_first = INDEXES.max(u8x16::splat(count)).simd_ne(INDEXES);
        *block = (bytes | (is_upper & is_first & u8x16::splat(0x20))).to_array();
    }

    const INDEXES: u8x16 = u8x16::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    /// How many bytes at the start have all bits set.
    fn leading(matches: u8x16) -> usize {
        matches.to_bitmask().trailing_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks, a word, and a rest.
    const LONGEST: usize = 2 * 16 + 8 + 7;

    #[test]
    fn checks_every_byte_of_a_value() {
        for length in 0..=LONGEST {
            assert_eq!(field_content_len(&vec![b'x'; length]), length);
        }
        for byte in 0..=u8::MAX {
            for at in 0..LONGEST {
                let mut value = [b'x'; LONGEST];
                value[at] = byte;
                let length = if is_field_value(byte) { LONGEST } else { at };
                assert_eq!(field_content_len(&value), length, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn finds_the_end_of_a_token() {
        for length in 0..=LONGEST {
            assert_eq!(token_len(&vec![b'a'; length]), length);
        }
        for byte in 0..=u8::MAX {
            for at in 0..LONGEST {
                let mut name = [b'X'; LONGEST];
                name[at] = byte;
                let length = if is_token(byte) { LONGEST } else { at };
                assert_eq!(token_len(&name), length, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn only_the_letters_of_the_name_become_lower_case() {
        for name in 0..=20 {
            for rest in 0..=10 {
                for byte in 0..=u8::MAX {
                    let mut line = vec![byte; name + rest];
                    let mut expected = line.clone();
                    expected[..name].make_ascii_lowercase();
                    make_name_lower_case(&mut line, name);
                    assert_eq!(line, expected, "{name} of {} of {byte:#x}", name + rest);
                }
            }
        }
    }
}
