//! Parses a field line and the field values that framing depends on (RFC 9112 sections 5 and 6).

use super::Http1Error;
use super::line::LineReader;
use apus_http::grammar::{is_field_content, is_token, parse_decimal};
use apus_http::scan::{field_content_len, token_len};

/// Splits a field line without its CRLF into name and value.
pub(super) fn split(line: &[u8]) -> Result<(&[u8], &[u8]), Http1Error> {
    let colon = line.iter().position(|byte| !is_token(*byte));
    let (name, rest) = line
        .split_at_checked(colon.unwrap_or(line.len()))
        .unwrap_or_default();
    match (name, rest) {
        ([], [b' ' | b'\t', ..]) => Err(Http1Error::LineFolding),
        ([_, ..], [b':', value @ ..]) if name.len() <= usize::from(u16::MAX) => {
            if is_field_content(value) {
                Ok((name, value))
            } else {
                Err(Http1Error::FieldValue)
            }
        }
        (_, [b' ' | b'\t', ..]) if memchr::memchr(b':', rest).is_some() => {
            Err(Http1Error::SpaceBeforeColon)
        }
        _ => Err(Http1Error::FieldName),
    }
}

/// A line of a field section.
pub(super) enum SectionLine<'a> {
    Field(ReceivedField<'a>),
    /// The empty line.
    End,
}

/// A field line that was received. Its parts are valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReceivedField<'a> {
    pub(super) name: &'a [u8],
    /// The value with the white space around it.
    pub(super) value: &'a [u8],
    /// The line with its CRLF.
    pub(super) line: &'a [u8],
}

/// The next line of a section at the start of `input`; `None` if it is incomplete. `section` is as for
/// [`LineReader::next`].
#[inline]
pub(super) fn next<'a>(
    lines: &mut LineReader,
    input: &'a [u8],
    section: (usize, Http1Error),
) -> Result<Option<SectionLine<'a>>, Http1Error> {
    if let Some(field) = lines.window(input, section.0).and_then(scan) {
        lines.take(field.line.len());
        return Ok(Some(SectionLine::Field(field)));
    }
    next_in_two_passes(lines, input, section)
}

/// Does the same as [`next`] for lines that are incomplete, invalid or empty.
#[inline(never)]
fn next_in_two_passes<'a>(
    lines: &mut LineReader,
    input: &'a [u8],
    section: (usize, Http1Error),
) -> Result<Option<SectionLine<'a>>, Http1Error> {
    let Some((line, bytes)) = lines.next(input, section, section)? else {
        return Ok(None);
    };
    if line.is_empty() {
        return Ok(Some(SectionLine::End));
    }
    let (name, value) = split(line)?;
    Ok(Some(SectionLine::Field(ReceivedField {
        name,
        value,
        line: input.get(..bytes).unwrap_or_default(),
    })))
}

/// Reads the valid field line at the start of the input in one pass. `None` if it is incomplete, invalid or
/// empty; reading it in two passes, by [`LineReader`] and [`split`], tells which.
#[inline]
fn scan(input: &[u8]) -> Option<ReceivedField<'_>> {
    let colon = token_len(input);
    let (name, rest) = input.split_at_checked(colon)?;
    let (b':', rest) = rest.split_first()? else {
        return None;
    };
    let length = field_content_len(rest);
    let (value, end) = rest.split_at_checked(length)?;
    if name.is_empty() || name.len() > usize::from(u16::MAX) || !end.starts_with(b"\r\n") {
        return None;
    }
    let bytes = colon.checked_add(length)?.checked_add(3)?;
    Some(ReceivedField {
        name,
        value,
        line: input.get(..bytes)?,
    })
}

/// The value of `Content-Length`: only decimal digits. The grammar allows tabs around them, but no client
/// sends any, and other parsers disagree about them.
pub(super) fn content_length(value: &[u8]) -> Result<u64, Http1Error> {
    parse_decimal(trim_spaces(value)).ok_or(Http1Error::ContentLength)
}

/// Checks that the value of a request's `Transfer-Encoding` is `chunked`.
///
/// # Errors
/// `TransferCoding` (501) if the coding before the final `chunked` is not supported, and
/// `TransferEncoding` (400) if the end of the body cannot be determined (RFC 9112 section 6.3).
pub(super) fn transfer_encoding(value: &[u8]) -> Result<(), Http1Error> {
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
        return Err(Http1Error::TransferCoding);
    }
    Err(Http1Error::TransferEncoding)
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

    /// Both ways to read a line agree about lines of all lengths, with every byte at every place.
    #[test]
    fn a_line_that_is_scanned_in_one_pass_is_read_as_in_two() {
        let section = (1000, Http1Error::HeadTooLarge);
        let mut cases: Vec<Vec<u8>> = Vec::new();
        for length in 0..40 {
            let line = [b"name:".as_slice(), &vec![b'v'; length], b"\r\nnext"].concat();
            for at in 0..line.len() {
                for byte in [
                    0, b'\t', b'\n', b'\r', b' ', b':', b'(', b'A', 0x7f, 0x80, 0xff,
                ] {
                    let mut changed = line.clone();
                    changed[at] = byte;
                    cases.push(changed);
                }
                cases.push(line[..at].to_vec());
            }
        }
        for case in cases {
            let two_passes = match LineReader::default().next(&case, section, section) {
                Ok(Some((line, bytes))) if !line.is_empty() => split(line)
                    .ok()
                    .map(|(name, value)| (name, value, &case[..bytes])),
                _ => None,
            };
            let one_pass = scan(&case).map(|field| (field.name, field.value, field.line));
            assert_eq!(
                one_pass,
                two_passes,
                "{:?}",
                case.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn rejects_lines_that_parsers_disagree_about() {
        for (line, error) in [
            (&b"Host : a"[..], Http1Error::SpaceBeforeColon),
            (b"Host\t: a", Http1Error::SpaceBeforeColon),
            (b" folded: a", Http1Error::LineFolding),
            (b"\tfolded", Http1Error::LineFolding),
            (b": a", Http1Error::FieldName),
            (b"Host", Http1Error::FieldName),
            (b"Ho st", Http1Error::FieldName),
            (b"Ho\0st: a", Http1Error::FieldName),
            (b"H\xc3\xb6st: a", Http1Error::FieldName),
            (b"Host(: a", Http1Error::FieldName),
            (b"x: a\rb", Http1Error::FieldValue),
            (b"x: a\r", Http1Error::FieldValue),
            (b"x: a\0b", Http1Error::FieldValue),
            (b"x: \x7f", Http1Error::FieldValue),
            (b"x: \x0b", Http1Error::FieldValue),
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
                Err(Http1Error::ContentLength),
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
                Err(Http1Error::TransferEncoding),
                "{value:?}"
            );
        }
        for value in [&b"gzip, chunked"[..], b"cow,gzip , chunked"] {
            assert_eq!(
                transfer_encoding(value),
                Err(Http1Error::TransferCoding),
                "{value:?}"
            );
        }
    }
}
