//! Rules of the grammar of fields and authorities (RFC 9110 section 5.6, RFC 3986 section 3.2.2).

use std::net::Ipv6Addr;

const TOKEN: u8 = 1;
const REG_NAME: u8 = 2;

/// The character classes of each byte.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    while byte < 0x7f {
        if matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9'
            | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
        {
            classes[byte as usize] |= TOKEN;
        }
        if matches!(byte, b'!' | b'$' | b'&'..=b'.' | b'0'..=b'9' | b';' | b'=' | b'A'..=b'Z'
            | b'_' | b'a'..=b'z' | b'~')
        {
            classes[byte as usize] |= REG_NAME;
        }
        byte = byte.saturating_add(1);
    }
    classes
};

fn is(byte: u8, class: u8) -> bool {
    CLASSES
        .get(usize::from(byte))
        .is_some_and(|classes| classes & class != 0)
}

/// Whether a token may hold the byte (RFC 9110 section 5.6.2).
pub fn is_token(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// How many bytes at the start are of a token. Looks at eight at a time, as long as they are letters and
/// hyphens, of which most names consist.
pub fn token_len(bytes: &[u8]) -> usize {
    let mut length = 0_usize;
    for word in bytes.as_chunks::<8>().0 {
        let other = not_letter_or_hyphen(u64::from_le_bytes(*word));
        if other != 0 {
            length = length.saturating_add(first_of(other));
            break;
        }
        length = length.saturating_add(8);
    }
    let rest = bytes.get(length..).unwrap_or_default();
    let token = rest.iter().take_while(|byte| is_token(**byte));
    length.saturating_add(token.count())
}

/// A word of eight times this byte.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const LOWS: u64 = each(0x7f);

/// The index of the first byte whose high bit is set.
fn first_of(highs: u64) -> usize {
    usize::try_from(highs.trailing_zeros() / 8).unwrap_or(0)
}

/// The bytes of a word that are from `first` to `last`, both below 0x80, as the high bits of these bytes.
/// Additions stay within their bytes, as the high bits are left out of them.
const fn in_range(word: u64, first: u8, last: u8) -> u64 {
    let low = word & LOWS;
    let from = low.wrapping_add(each(0x80_u8.wrapping_sub(first)));
    let above = low.wrapping_add(each(0x7f_u8.wrapping_sub(last)));
    from & !above & !word & !LOWS
}

/// The bytes of a word that are neither letters nor hyphens, as the high bits of these bytes.
const fn not_letter_or_hyphen(word: u64) -> u64 {
    let lower = word | each(0x20);
    !(in_range(lower, b'a', b'z') | in_range(word, b'-', b'-')) & !LOWS
}

/// Changes the letters of a name to lower case, eight at a time.
pub fn make_lower_case(name: &mut [u8]) {
    let (words, rest) = name.as_chunks_mut::<8>();
    for bytes in words {
        let word = u64::from_le_bytes(*bytes);
        *bytes = (word | (in_range(word, b'A', b'Z') >> 2)).to_le_bytes();
    }
    for byte in rest {
        byte.make_ascii_lowercase();
    }
}

/// Whether `text` is `host [":" port]` (RFC 3986 section 3.2) without user information. A name with
/// percent-encoding is none: no host name needs it, and two spellings would count as two hosts.
pub fn is_authority(text: &[u8]) -> bool {
    split_authority(text).is_some()
}

/// The host and the port of an [authority](is_authority). An IPv6 address has its brackets; the port may be
/// empty.
pub fn split_authority(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let host_len = match text {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let address = std::str::from_utf8(rest.get(..end)?).ok()?;
            address.parse::<Ipv6Addr>().ok()?;
            end.checked_add(2)?
        }
        _ => {
            let end = text.iter().position(|byte| !is(*byte, REG_NAME));
            end.unwrap_or(text.len())
        }
    };
    let (host, port) = text.split_at_checked(host_len)?;
    match port {
        _ if host.is_empty() => None,
        [] => Some((host, port)),
        [b':', digits @ ..] if is_port(digits) => Some((host, digits)),
        _ => None,
    }
}

/// Whether these digits, if any, are at most 65,535.
fn is_port(digits: &[u8]) -> bool {
    let mut port = 0_u32;
    for digit in digits {
        if !digit.is_ascii_digit() || port > u32::from(u16::MAX) {
            return false;
        }
        let digit = u32::from(digit.wrapping_sub(b'0'));
        port = port.wrapping_mul(10).wrapping_add(digit);
    }
    port <= u32::from(u16::MAX)
}

/// Whether `text` is the value of a `Host` field (RFC 9110 section 7.2): an authority, or empty.
pub fn is_host(text: &[u8]) -> bool {
    text.is_empty() || is_authority(text)
}

/// Whether a field value may hold the byte (RFC 9110 section 5.5).
pub fn is_field_value(byte: u8) -> bool {
    (byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))
}

/// Whether these bytes can be a field value.
pub fn is_field_content(value: &[u8]) -> bool {
    field_content_len(value) == value.len()
}

/// How many bytes at the start can be a field value. Looks at eight at a time, and at 32 of long values.
pub fn field_content_len(bytes: &[u8]) -> usize {
    let (head, rest) = bytes.split_at_checked(SHORT_VALUE).unwrap_or((bytes, &[]));
    let short = short_content_len(head);
    if short < SHORT_VALUE {
        return short;
    }
    // The compiler makes vector instructions of it, because it looks at all bytes of a chunk.
    let is_valid = |chunk: &&[u8; 32]| {
        chunk
            .iter()
            .fold(true, |valid, byte| valid & is_field_value(*byte))
    };
    let chunks = rest.as_chunks::<32>().0.iter().take_while(is_valid).count();
    let long = chunks.saturating_mul(32);
    let rest = rest.get(long..).unwrap_or_default();
    short
        .saturating_add(long)
        .saturating_add(short_content_len(rest))
}

/// The length up to which values are looked at by eight bytes only.
const SHORT_VALUE: usize = 24;

/// How many bytes at the start can be a field value.
fn short_content_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut length = 0_usize;
    for word in words {
        let invalid = invalid_in_values(u64::from_le_bytes(*word));
        if invalid != 0 {
            return length.saturating_add(first_of(invalid));
        }
        length = length.saturating_add(8);
    }
    let valid = rest.iter().take_while(|byte| is_field_value(**byte));
    length.saturating_add(valid.count())
}

/// The bytes of a word that no field value may hold, as the high bits of these bytes. Additions stay within
/// their bytes, as the high bits are left out of them.
fn invalid_in_values(word: u64) -> u64 {
    let low = word & LOWS;
    let is_equal = |pattern: u64| !((low ^ pattern).wrapping_add(LOWS) | word);
    let is_control = !(low.wrapping_add(each(0x60)) | word);
    ((is_control & !is_equal(each(b'\t'))) | is_equal(each(0x7f))) & !LOWS
}

/// The value without the optional white space around it (RFC 9110 section 5.5).
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// A decimal number of at most 20 digits, without a sign.
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_with_an_optional_port() {
        for text in [
            "a",
            "a.b:80",
            "a:",
            "a:0",
            "a:65535",
            "a:00080",
            "[::1]",
            "[::1]:443",
            "A-_~!$'()*+,;=",
        ] {
            assert!(is_authority(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            ":80",
            "a:65536",
            "a:4294967376",
            "a:8x",
            "a:-1",
            "a:+1",
            "a:80:80",
            "a@b",
            "a/b",
            "a%62",
            "a b",
            "[::1",
            "[]",
            "[::1]x",
            "[a]",
            "::1",
            "\u{e9}",
        ] {
            assert!(!is_authority(text.as_bytes()), "{text}");
        }
    }

    /// Long enough for a short value, three chunks, and a rest of every length behind them.
    const LONGEST: usize = SHORT_VALUE + 3 * 32 + 15;

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
    fn finds_the_end_of_a_token_and_lowers_its_letters_as_byte_by_byte() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                let mut name = *b"Some-Long-Field-Name";
                name[at] = byte;
                let end = name.iter().position(|byte| !is_token(*byte));
                assert_eq!(token_len(&name), end.unwrap_or(20), "{byte:#x} at {at}");
                let mut lower = name;
                make_lower_case(&mut lower);
                assert_eq!(lower, name.map(|byte| byte.to_ascii_lowercase()));
            }
        }
        for length in 0..=20 {
            assert_eq!(token_len(&vec![b'a'; length]), length);
        }
    }
}
