//! The classes of characters of names, values and hosts (RFC 9110 sections 5.5 and 5.6.2, RFC 3986 section 3.2.2).

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

/// Whether a registered name may hold the byte, other than by percent-encoding (RFC 3986 section 3.2.2).
pub(crate) fn is_reg_name(byte: u8) -> bool {
    is(byte, REG_NAME)
}

/// Whether a field value may hold the byte (RFC 9110 section 5.5).
pub fn is_field_value(byte: u8) -> bool {
    (byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))
}
