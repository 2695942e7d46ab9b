//! One field line (RFC 9112 section 5), and the values that framing depends on (section 6).

use super::ProtocolError;
use apus_http::grammar::{is_field_content, is_token, parse_decimal};

/// Splits a line without its CRLF into name and value.
pub(super) fn split(line: &[u8]) -> Result<(&[u8], &[u8]), ProtocolError> {
    let colon = line.iter().position(|byte| !is_token(*byte));
    let (name, rest) = line
        .split_at_checked(colon.unwrap_or(line.len()))
        .unwrap_or_default();
    match (name, rest) {
        ([], [b' ' | b'\t', ..]) => Err(ProtocolError::LineFolding),
        ([_, ..], [b':', value @ ..]) if name.len() <= usize::from(u16::MAX) => {
            if is_field_content(value) {
                Ok((name, value))
            } else {
                Err(ProtocolError::FieldValue)
            }
        }
        (_, [b' ' | b'\t', ..]) if memchr::memchr(b':', rest).is_some() => {
            Err(ProtocolError::SpaceBeforeColon)
        }
        _ => Err(ProtocolError::FieldName),
    }
}

/// The value of `Content-Length`: decimal digits and nothing else. A tab around them is white space
/// by the grammar, but no client sends one, and not everybody else takes it for that.
pub(super) fn content_length(value: &[u8]) -> Result<u64, ProtocolError> {
    parse_decimal(trim_spaces(value)).ok_or(ProtocolError::ContentLength)
}

/// Checks that the value of a request's `Transfer-Encoding` is `chunked`.
///
/// # Errors
/// Whether the coding is unknown (501) or the end of the content cannot be told (400) is as RFC 9112
/// section 6.3 has it.
pub(super) fn transfer_encoding(value: &[u8]) -> Result<(), ProtocolError> {
    let value = trim_spaces(value);
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|byte| *byte == b',').map(trim_spaces);
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(is_chunked)
        && codings.all(|coding| {
            !coding.is_empty() && coding.iter().all(|byte| is_token(*byte)) && !is_chunked(coding)
        })
    {
        return Err(ProtocolError::TransferCoding);
    }
    Err(ProtocolError::TransferEncoding)
}

fn trim_spaces(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_name_and_value() {
        assert_eq!(split(b"Host: a"), Ok((&b"Host"[..], &b" a"[..])));
        assert_eq!(split(b"x:"), Ok((&b"x"[..], &b""[..])));
        assert_eq!(split(b"x:a:b\xff\t"), Ok((&b"x"[..], &b"a:b\xff\t"[..])));
    }

    #[test]
    fn rejects_lines_that_are_read_differently_elsewhere() {
        for (line, error) in [
            (&b"Host : a"[..], ProtocolError::SpaceBeforeColon),
            (b"Host\t: a", ProtocolError::SpaceBeforeColon),
            (b" folded: a", ProtocolError::LineFolding),
            (b"\tfolded", ProtocolError::LineFolding),
            (b": a", ProtocolError::FieldName),
            (b"Host", ProtocolError::FieldName),
            (b"Ho st", ProtocolError::FieldName),
            (b"Ho\0st: a", ProtocolError::FieldName),
            (b"H\xc3\xb6st: a", ProtocolError::FieldName),
            (b"Host(: a", ProtocolError::FieldName),
            (b"x: a\rb", ProtocolError::FieldValue),
            (b"x: a\r", ProtocolError::FieldValue),
            (b"x: a\0b", ProtocolError::FieldValue),
            (b"x: \x7f", ProtocolError::FieldValue),
            (b"x: \x0b", ProtocolError::FieldValue),
        ] {
            assert_eq!(split(line), Err(error), "{line:?}");
        }
    }

    #[test]
    fn takes_only_decimal_digits_for_content_length() {
        for (value, length) in [
            (&b"0"[..], 0),
            (b" 5 ", 5),
            (b"007", 7),
            (b"18446744073709551615", u64::MAX),
        ] {
            assert_eq!(content_length(value), Ok(length), "{value:?}");
        }
        for value in [
            &b""[..],
            b" ",
            b"+5",
            b"-5",
            b"0x5",
            b"5 5",
            b"5, 5",
            b"5,5",
            b"\t5",
            b"5\t",
            b"5;",
            b"5.0",
            b"1e3",
            b"18446744073709551616",
            b"000000000000000000005",
            b"\xd9\xa5",
        ] {
            assert_eq!(
                content_length(value),
                Err(ProtocolError::ContentLength),
                "{value:?}"
            );
        }
    }

    #[test]
    fn takes_only_chunked_for_transfer_encoding() {
        for value in [&b"chunked"[..], b" chunked", b"CHUNKED ", b"Chunked"] {
            assert_eq!(transfer_encoding(value), Ok(()), "{value:?}");
        }
        for value in [
            &b""[..],
            b"identity",
            b"gzip",
            b"xchunked",
            b"chunked1",
            b"\tchunked",
            b"chunked\t",
            b"chunked, chunked",
            b"chunked, gzip",
            b"chunked,",
            b",chunked",
            b"chunked, identity",
            b"chunked;q=1",
            b"\"chunked\"",
            b"chun ked",
            b"gzip chunked",
            b"gzip; x, chunked",
        ] {
            assert_eq!(
                transfer_encoding(value),
                Err(ProtocolError::TransferEncoding),
                "{value:?}"
            );
        }
        for value in [&b"gzip, chunked"[..], b"cow,gzip , chunked"] {
            assert_eq!(
                transfer_encoding(value),
                Err(ProtocolError::TransferCoding),
                "{value:?}"
            );
        }
    }
}
