//! Percent-encoding in URIs (RFC 3986 section 2.1) and in forms (URL standard, application/x-www-form-urlencoded).

/// Appends a part of a query or of a path with everything but the unreserved characters encoded (RFC 3986 section 2.3).
pub fn encode_part_onto(encoded: &mut String, part: &[u8]) {
    encode_onto(encoded, part, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
    });
}

/// Appends a name or a value of a form, which has a plus sign for a space.
pub fn encode_form_onto(encoded: &mut String, part: &str) {
    for (index, word) in part.split(' ').enumerate() {
        if index > 0 {
            encoded.push('+');
        }
        encode_onto(encoded, word.as_bytes(), |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'-' | b'.' | b'_')
        });
    }
}

/// Appends bytes, of which the ASCII characters that need no encoding stay as they are.
pub(crate) fn encode_onto(encoded: &mut String, bytes: &[u8], is_literal: impl Fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        if is_literal(*byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                let digit = DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0');
                encoded.push(char::from(digit));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_unreserved_characters_alone() {
        let mut encoded = "?a=".to_owned();
        encode_part_onto(&mut encoded, "aZ09-._~*+ /%&=é\n".as_bytes());
        assert_eq!(encoded, "?a=aZ09-._~%2A%2B%20%2F%25%26%3D%C3%A9%0A");
    }

    #[test]
    fn a_form_has_plus_signs_for_spaces() {
        let mut encoded = String::new();
        encode_form_onto(&mut encoded, " aZ09-._*  ~+/%&=é ");
        assert_eq!(encoded, "+aZ09-._*++%7E%2B%2F%25%26%3D%C3%A9+");
    }
}
