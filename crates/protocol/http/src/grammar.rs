//! Rules of the grammar of fields and authorities (RFC 9110 section 5.6, RFC 3986 section 3.2.2).

use std::net::Ipv6Addr;

pub use crate::characters::{is_field_value, is_token};

use crate::characters::is_reg_name;
use crate::scan::{field_content_len, plain_host_len};

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
            let plain = plain_host_len(text);
            let rest = text.get(plain..).unwrap_or_default();
            let others = rest.iter().take_while(|byte| is_reg_name(**byte));
            plain.saturating_add(others.count())
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

/// Whether these bytes can be a field value.
pub fn is_field_content(value: &[u8]) -> bool {
    field_content_len(value) == value.len()
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
}
