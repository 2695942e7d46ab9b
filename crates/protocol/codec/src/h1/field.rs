//! Parses a field line and the field values that framing depends on (RFC 9112 sections 5 and 6).

use super::Http1Error;
use super::line::LineReader;
use apus_http::grammar::{is_field_content, is_token, parse_decimal, trim};
use apus_http::{FieldSet, Headers, KnownField};

/// Splits a field line without its CRLF into name and value.
pub(super) fn split(line: &[u8]) -> Result<(&[u8], &[u8]), Http1Error> {
    // The first byte that is no token has to be the colon: name and colon are checked in one pass.
    let colon = line.iter().position(|byte| !is_token(*byte));
    let (name, rest) = line
        .split_at_checked(colon.unwrap_or(line.len()))
        .unwrap_or_default();
    match (name, rest) {
        // RFC 9112 section 5.2 lets a server replace a fold by spaces. Recipients that do not know folds see
        // another field there.
        ([], [b' ' | b'\t', ..]) => Err(Http1Error::LineFolding),
        ([_, ..], [b':', value @ ..]) if name.len() <= usize::from(u16::MAX) => {
            if is_field_content(value) {
                Ok((name, value))
            } else {
                Err(Http1Error::FieldValue)
            }
        }
        // Section 5.1 demands a 400: some recipients ignore the space, others the field.
        (_, [b' ' | b'\t', ..]) if memchr::memchr(b':', rest).is_some() => {
            Err(Http1Error::SpaceBeforeColon)
        }
        _ => Err(Http1Error::FieldName),
    }
}

/// Whether a line has no colon, so that it is no field for any recipient, and does not continue the line before it.
pub(super) fn is_no_field(line: &[u8]) -> bool {
    !matches!(line, [b' ' | b'\t', ..])
        && memchr::memchr(b':', line).is_none()
        && is_field_content(line)
}

/// What was found at the start of a field section.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SectionPart {
    /// Lines of these many bytes were received.
    Lines(usize),
    /// The empty line, of these many bytes.
    End(usize),
    /// An incomplete line.
    Incomplete,
}

/// Receives lines of a section at the start of `input`. `section` is as for [`LineReader::next`], and the number
/// of field lines that it may have, with those that are left out. `inspect` gets the values of the fields in `inspected` and says whether a line is kept.
#[inline]
pub(super) fn receive(
    lines: &mut LineReader,
    headers: &mut Headers,
    input: &[u8],
    (section, max_fields): ((usize, Http1Error), usize),
    inspected: FieldSet,
    mut inspect: impl FnMut(KnownField, &[u8]) -> Result<bool, Http1Error>,
) -> Result<SectionPart, Http1Error> {
    // All complete lines are copied at once, and checked in the copy 16 bytes at a time. A file for a browser's
    // head of 12 fields took 14,500 instructions with a pass over each line, and takes 11,500 with this.
    if let Some(window) = lines.window(input, section.0) {
        let mut fields_left = max_fields.saturating_sub(lines.fields);
        let bytes = headers.receive(window, &mut fields_left, inspected, &mut inspect)?;
        lines.fields = max_fields.saturating_sub(fields_left);
        if bytes > 0 {
            lines.take(bytes);
            return Ok(SectionPart::Lines(bytes));
        }
    }
    // A line of another form, which is read in two passes.
    let Some((line, bytes)) = lines.next(input, section, section)? else {
        return Ok(SectionPart::Incomplete);
    };
    if line.is_empty() {
        return Ok(SectionPart::End(bytes));
    }
    // Lines that are dropped count, too: each of them costs as much as one that is kept.
    if lines.fields >= max_fields {
        return Err(Http1Error::TooManyFields);
    }
    lines.fields = lines.fields.saturating_add(1);
    if lines.is_lenient && is_no_field(line) {
        return Ok(SectionPart::Lines(bytes));
    }
    let (name, value) = split(line)?;
    let field = KnownField::named(name);
    if !inspected.has(field) || inspect(field, value)? {
        headers.push(name, trim(value));
    }
    Ok(SectionPart::Lines(bytes))
}

/// The value of `Content-Length`: only decimal digits. The grammar allows tabs around them, but no client
/// sends any, and other parsers disagree about them.
pub(super) fn content_length(value: &[u8]) -> Result<u64, Http1Error> {
    parse_decimal(trim_spaces(value)).ok_or(Http1Error::ContentLength)
}

/// As [`content_length`], for a value that may be a list of equal lengths, which is that length (RFC 9110 section 8.6).
pub(super) fn repeated_content_length(value: &[u8]) -> Result<u64, Http1Error> {
    let mut lengths = value.split(|byte| *byte == b',').map(content_length);
    let first = lengths.next().ok_or(Http1Error::ContentLength)??;
    if lengths.all(|length| length == Ok(first)) {
        Ok(first)
    } else {
        Err(Http1Error::ContentLength)
    }
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
        // gzip before chunked is valid HTTP, and a 501 says that this server does not have it (RFC 9112 section 6.1).
        return Err(Http1Error::TransferCoding);
    }
    // Anything else, as `chunked, identity` or `xchunked`, is read in different ways by different servers, which is how
    // requests are smuggled. It is refused, and not repaired.
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

    /// Lines of all lengths, with every byte at every place, are the same section whether they are received
    /// at once or each by itself.
    #[test]
    fn lines_that_are_received_at_once_are_read_as_in_two_passes() {
        let limits = ((1000, Http1Error::HeadTooLarge), 100);
        let mut cases: Vec<Vec<u8>> = Vec::new();
        for length in 0..40 {
            let line = [b"Name: ".as_slice(), &vec![b'v'; length], b"\r\nnext"].concat();
            for at in 0..line.len() {
                for byte in [
                    0, b'\t', b'\n', b'\r', b' ', b':', b'(', b'1', b'A', b'_', 0x7f, 0x80, 0xff,
                ] {
                    let mut changed = line.clone();
                    changed[at] = byte;
                    cases.push(changed);
                }
                cases.push(line[..at].to_vec());
            }
        }
        for case in cases {
            let expected = match LineReader::default().next(&case, limits.0, limits.0) {
                Ok(Some(([], bytes))) => Ok((SectionPart::End(bytes), Headers::new())),
                Ok(Some((line, bytes))) => split(line).map(|(name, value)| {
                    let mut headers = Headers::new();
                    headers.push(name, trim(value));
                    (SectionPart::Lines(bytes), headers)
                }),
                Ok(None) => Ok((SectionPart::Incomplete, Headers::new())),
                Err(error) => Err(error),
            };
            let mut headers = Headers::new();
            let received = receive(
                &mut LineReader::default(),
                &mut headers,
                &case,
                limits,
                FieldSet::default(),
                |_, _| Ok(true),
            );
            assert_eq!(
                received.map(|part| (part, headers)),
                expected,
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
