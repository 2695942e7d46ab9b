//! Looks at the bytes of names, values, targets and hosts 16 at a time, by vector instructions.

use crate::characters::is_token;

/// How many bytes at the start can be a field value (RFC 9110 section 5.5).
pub(crate) fn field_content_len(bytes: &[u8]) -> usize {
    prefix_len(bytes, blocks::valid_in_values)
}

/// How many bytes at the start are visible ASCII other than `delimiter`.
pub(crate) fn visible_len(bytes: &[u8], delimiter: u8) -> usize {
    prefix_len(bytes, |block| blocks::visible_before(block, delimiter))
}

/// How many bytes at the start are letters, digits, hyphens and dots, of which most hosts consist.
pub(crate) fn plain_host_len(bytes: &[u8]) -> usize {
    prefix_len(bytes, blocks::letters_digits_hyphens_and_dots)
}

/// Whether nothing in a path has to be decoded, collapsed or resolved: there is no percent sign, no control byte,
/// and no slash before a slash or a dot. A normal path with a dot at the start of a name is not plain.
pub(crate) fn is_plain_path(path: &[u8]) -> bool {
    let mut rest = path;
    loop {
        match rest.first_chunk() {
            Some(block) if !blocks::is_plain_path(block, blocks::BYTES) => return false,
            Some(_) => {}
            None => return blocks::is_plain_path(&padded(rest), rest.len()),
        }
        // The last byte may be a slash, which is looked at together with the next one.
        rest = rest
            .get(blocks::BYTES.saturating_sub(1)..)
            .unwrap_or_default();
    }
}

/// A field line that was found: the lengths of its name and of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainLine {
    pub(crate) name: usize,
    pub(crate) value: usize,
    /// Whether the name consists of letters and hyphens.
    pub(crate) is_of_letters: bool,
}

/// Reads the field line at the start of the input if it has the form in which lines are sent: a token, a colon,
/// one space, a value without white space around it, and CRLF. Its name becomes lower case. `None` for a line of
/// another form, and for a line that is followed by fewer bytes than [`BLOCK`]; some letters may have changed then.
#[inline]
pub(crate) fn take_plain_line(input: &mut [u8]) -> Option<PlainLine> {
    let mut name = 0_usize;
    loop {
        let block = input.get_mut(name..)?.first_chunk_mut()?;
        let found = blocks::lower_case_letters_and_hyphens(block);
        name = name.saturating_add(found);
        if found < blocks::BYTES {
            break;
        }
    }
    let line = &*input;
    if *line.get(name)? != b':' {
        return take_line_with_rare_name(input, name);
    }
    plain_value(line, name).map(|value| PlainLine {
        name,
        value,
        is_of_letters: true,
    })
}

/// As [`take_plain_line`], where the name has other characters than letters and hyphens after this many bytes.
#[cold]
fn take_line_with_rare_name(input: &mut [u8], plain: usize) -> Option<PlainLine> {
    let rest = input.get_mut(plain..)?;
    let token = rest.iter().take_while(|byte| is_token(**byte)).count();
    rest.get_mut(..token)?.make_ascii_lowercase();
    let name = plain.saturating_add(token);
    plain_value(input, name).map(|value| PlainLine {
        name,
        value,
        is_of_letters: false,
    })
}

/// The length of the value of a line whose name has this length.
#[inline]
fn plain_value(line: &[u8], name: usize) -> Option<usize> {
    let rest = line.get(name..)?.strip_prefix(b": ")?;
    if name == 0 || name > usize::from(u16::MAX) {
        return None;
    }
    let mut length = 0_usize;
    loop {
        let found = blocks::valid_in_values(rest.get(length..)?.first_chunk()?);
        length = length.saturating_add(found);
        if found < blocks::BYTES {
            break;
        }
    }
    let (value, end) = rest.split_at_checked(length)?;
    let is_plain =
        end.starts_with(b"\r\n") && !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
    is_plain.then_some(length)
}

/// The bytes that vector instructions look at together.
pub(crate) const BLOCK: usize = blocks::BYTES;

/// Changes the letters of the name at the start of a line to lower case.
pub(crate) fn make_name_lower_case(line: &mut [u8], name: usize) {
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

/// How many bytes at the start have a property, which NUL must not have.
fn prefix_len(bytes: &[u8], of_block: impl Fn(&[u8; blocks::BYTES]) -> usize) -> usize {
    let (whole, rest) = bytes.as_chunks();
    for (index, block) in whole.iter().enumerate() {
        let found = of_block(block);
        if found < blocks::BYTES {
            return index.saturating_mul(blocks::BYTES).saturating_add(found);
        }
    }
    let length = whole.len().saturating_mul(blocks::BYTES);
    match rest {
        [] => length,
        rest => length.saturating_add(of_block(&padded(rest))),
    }
}

/// Less than a block, as a block that ends with NULs.
// A copy of a length that is not known is a call of memset and one of memcpy: together they were two hundred instructions of a request.
fn padded(bytes: &[u8]) -> [u8; blocks::BYTES] {
    let number = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        joined(u64::from_le_bytes(*first), u64::from_le_bytes(*last), bytes)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        joined(u32::from_le_bytes(*first), u32::from_le_bytes(*last), bytes)
    } else {
        let bytes = bytes.iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u128::from(*byte))
    };
    number.to_le_bytes()
}

/// The number of bytes that begin with one half and end with the other. The halves overlap, or meet.
fn joined<T: Into<u128>>(first: T, last: T, bytes: &[u8]) -> u128 {
    let half = u32::try_from(size_of::<T>()).unwrap_or_default();
    let length = u32::try_from(bytes.len()).unwrap_or_default();
    let from = length.saturating_sub(half).saturating_mul(8);
    first.into() | last.into().checked_shl(from).unwrap_or_default()
}

/// Blocks of 16 bytes.
mod blocks {
    use crate::byte_vector::ByteVector;

    pub(super) const BYTES: usize = 16;

    /// How many bytes at the start are letters and hyphens. The letters among them become lower case.
    pub(super) fn lower_case_letters_and_hyphens(block: &mut [u8; BYTES]) -> usize {
        let bytes = ByteVector::new(*block);
        let found = leading(is_letter(bytes) | bytes.simd_eq(ByteVector::splat(b'-')));
        // A hyphen has this bit, too.
        let count = u8::try_from(found).unwrap_or(u8::MAX);
        let is_found = indexes().max(ByteVector::splat(count)).simd_ne(indexes());
        *block = (bytes | (is_found & ByteVector::splat(0x20))).to_array();
        found
    }

    /// How many bytes at the start are letters, digits, hyphens and dots.
    pub(super) fn letters_digits_hyphens_and_dots(block: &[u8; BYTES]) -> usize {
        let bytes = ByteVector::new(*block);
        let is_slash = bytes.simd_eq(ByteVector::splat(b'/'));
        leading(is_letter(bytes) | (is_between(bytes, b'-', b'9') & !is_slash))
    }

    /// How many bytes at the start are visible ASCII other than `delimiter`.
    pub(super) fn visible_before(block: &[u8; BYTES], delimiter: u8) -> usize {
        let bytes = ByteVector::new(*block);
        let is_delimiter = bytes.simd_eq(ByteVector::splat(delimiter));
        leading(is_between(bytes, b'!', b'~') & !is_delimiter)
    }

    /// Whether the first bytes hold no percent sign, no control byte, and no slash before a slash or a dot.
    pub(super) fn is_plain_path(block: &[u8; BYTES], first: usize) -> bool {
        let bytes = ByteVector::new(*block);
        let is_slash = bytes.simd_eq(ByteVector::splat(b'/'));
        let is_slash_or_dot = is_slash | bytes.simd_eq(ByteVector::splat(b'.'));
        let is_percent = bytes.simd_eq(ByteVector::splat(b'%'));
        let is_delete = bytes.simd_eq(ByteVector::splat(0x7f));
        let is_special = !is_between(bytes, b' ', u8::MAX) | is_percent | is_delete;
        let slashes = is_slash.to_bitmask() & (is_slash_or_dot.to_bitmask() >> 1);
        let found = (slashes | is_special.to_bitmask()).trailing_zeros();
        found as usize >= first
    }

    fn is_letter(bytes: ByteVector) -> ByteVector {
        is_between(bytes | ByteVector::splat(0x20), b'a', b'z')
    }

    fn is_between(bytes: ByteVector, first: u8, last: u8) -> ByteVector {
        let from_first = bytes.max(ByteVector::splat(first)).simd_eq(bytes);
        from_first & bytes.min(ByteVector::splat(last)).simd_eq(bytes)
    }

    /// How many bytes at the start a field value may hold.
    pub(super) fn valid_in_values(block: &[u8; BYTES]) -> usize {
        let bytes = ByteVector::new(*block);
        let is_high = bytes.max(ByteVector::splat(0x20)).simd_eq(bytes);
        let is_tab = bytes.simd_eq(ByteVector::splat(b'\t'));
        let is_delete = bytes.simd_eq(ByteVector::splat(0x7f));
        leading((is_high | is_tab) & !is_delete)
    }

    /// Changes the letters among the first bytes to lower case.
    pub(super) fn make_lower_case(block: &mut [u8; BYTES], first: usize) {
        let bytes = ByteVector::new(*block);
        let is_upper = is_between(bytes, b'A', b'Z');
        let count = u8::try_from(first).unwrap_or(u8::MAX);
        let is_first = indexes().max(ByteVector::splat(count)).simd_ne(indexes());
        *block = (bytes | (is_upper & is_first & ByteVector::splat(0x20))).to_array();
    }

    /// The index of each place.
    fn indexes() -> ByteVector {
        ByteVector::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
    }

    /// How many bytes at the start have all bits set.
    fn leading(matches: ByteVector) -> usize {
        matches.to_bitmask().trailing_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::characters::is_field_value;

    /// Two blocks and a rest.
    const LONGEST: usize = 2 * 16 + 15;

    #[test]
    fn less_than_a_block_ends_with_nuls() {
        let bytes: Vec<u8> = (1..=15).map(|byte| byte * 17).collect();
        for length in 0..=bytes.len() {
            let mut expected = [0; blocks::BYTES];
            expected[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(padded(&bytes[..length]), expected, "{length}");
        }
    }

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
    fn finds_the_end_of_paths_and_hosts() {
        let in_path = |byte: u8| byte.is_ascii_graphic() && byte != b'?';
        let in_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        for byte in 0..=u8::MAX {
            for at in 0..LONGEST {
                let mut text = [b'x'; LONGEST];
                text[at] = byte;
                let expected = |is_valid| if is_valid { LONGEST } else { at };
                assert_eq!(
                    visible_len(&text, b'?'),
                    expected(in_path(byte)),
                    "{byte:#x} at {at}"
                );
                assert_eq!(
                    plain_host_len(&text),
                    expected(in_host(byte)),
                    "{byte:#x} at {at}"
                );
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
