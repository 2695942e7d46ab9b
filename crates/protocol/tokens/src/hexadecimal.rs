//! Bytes as hexadecimal digits, two for each, and back.

use std::fmt;

/// Bytes that are displayed as hexadecimal digits: with `{}` in lower case, with `{:X}` in upper case.
#[derive(Clone, Copy, Debug)]
pub struct Hexadecimal<'a>(pub &'a [u8]);

impl fmt::Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::UpperHex for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// The bytes of hexadecimal digits, in lower or upper case; `None` if they are other characters, or of another number of bytes.
pub fn from_hexadecimal<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != LENGTH || !rest.is_empty() {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = [0; LENGTH];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = u8::try_from((digit(*high)? << 4) | digit(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits_and_is_read_from_them() {
        let bytes = std::array::from_fn::<u8, 256, _>(|byte| u8::try_from(byte).unwrap());
        let lower = Hexadecimal(&bytes).to_string();
        let upper = format!("{:X}", Hexadecimal(&bytes));
        assert!(lower.starts_with("000102") && lower.ends_with("fdfeff"));
        assert_eq!(upper, lower.to_uppercase());
        assert_eq!(from_hexadecimal(&lower), Some(bytes));
        assert_eq!(from_hexadecimal(&upper), Some(bytes));
        assert_eq!(Hexadecimal(&[]).to_string(), "");
    }

    #[test]
    fn what_is_no_byte_of_hexadecimal_digits_is_not_read() {
        assert_eq!(from_hexadecimal(""), Some([]));
        for text in ["", "0", "00", "000", "00000", "0g00", "+f00", " 000", "é00"] {
            assert_eq!(from_hexadecimal::<2>(text), None, "{text:?}");
        }
    }
}
