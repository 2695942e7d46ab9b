//! The head of an application's answer: the header block of CGI (RFC 3875 section 6).

use http::StatusCode;

use super::ProtocolError;
use crate::h1::HeadLimits;
use apus_http::Headers;
use apus_http::grammar::{is_field_value, is_token, parse_decimal, trim};
use apus_http::response_head::is_connection_field;

/// An answer as far as its header block tells.
///
/// `Status` gives the status; without it that is 302 if there is a `Location`, and 200 otherwise.
/// This is also the answer to a local redirect (section 6.2.2): the client asks for the other path,
/// so that nothing which guards that path is passed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status, always a final one.
    pub status: StatusCode,
    /// The field lines, without `Status`, without those about a connection (RFC 9110 section 7.6.1),
    /// of which an application knows nothing, and without a `Content-Length` that the status does not
    /// allow.
    pub headers: Headers,
    /// What content there is.
    pub content: ResponseContent,
}

/// What content an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseContent {
    /// None, whatever comes: the status or the method of the request does not allow any, or its
    /// length is 0.
    None,
    /// So many bytes, at least one. What comes behind them is no part of the answer; if less comes,
    /// the answer is truncated.
    Length(u64),
    /// All that comes until the end.
    UntilEnd,
}

impl ResponseHead {
    /// Reads a header block that is there as a whole: lines that end with CR LF or LF, without the
    /// empty line behind them. A `status` that is known otherwise goes before what the block says;
    /// `is_head` tells that the method of the request was HEAD.
    ///
    /// # Errors
    /// It is no header block, or larger than `limits`; their limit for the target is of no account.
    pub fn from_block(
        status: Option<StatusCode>,
        block: &[u8],
        is_head: bool,
        limits: &HeadLimits,
    ) -> Result<Self, ProtocolError> {
        let mut reader = HeadReader::default();
        let (_, is_whole) = reader.read(block, limits)?;
        if is_whole || !reader.partial.is_empty() {
            return Err(ProtocolError::FieldName);
        }
        reader.status = status.or(reader.status);
        reader.finish(is_head).ok_or(ProtocolError::Status)
    }
}

/// Reads one header block, in pieces that are cut anywhere.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    /// A line whose end did not come yet.
    partial: Vec<u8>,
    taken: usize,
    fields: usize,
    status: Option<StatusCode>,
    content_length: Option<u64>,
    headers: Headers,
}

impl HeadReader {
    /// A first guess at the bytes of a block.
    const CAPACITY: usize = 1024;

    /// Takes what belongs to the block. Tells how many bytes that is, and whether the empty line was
    /// among them.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, bool), ProtocolError> {
        let mut consumed = 0_usize;
        if self.taken == 0 {
            self.headers = Headers::with_capacity(input.len().min(Self::CAPACITY));
        }
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let end = memchr::memchr(b'\n', rest);
            let len = end.map_or(rest.len(), |end| end.saturating_add(1));
            self.taken = self.taken.saturating_add(len);
            if self.taken > limits.head_bytes {
                return Err(ProtocolError::HeadTooLarge);
            }
            consumed = consumed.saturating_add(len);
            let Some(end) = end else {
                self.partial.extend_from_slice(rest);
                return Ok((consumed, false));
            };
            let part = rest.get(..end).unwrap_or_default();
            let is_end = if self.partial.is_empty() {
                self.take_line(part, limits)?
            } else {
                let mut line = std::mem::take(&mut self.partial);
                line.extend_from_slice(part);
                self.take_line(&line, limits)?
            };
            if is_end {
                return Ok((consumed, true));
            }
        }
    }

    /// Takes a line without its LF; tells whether it is the empty one.
    fn take_line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<bool, ProtocolError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            [] => return Ok(true),
            [b' ' | b'\t', ..] => return Err(ProtocolError::LineFolding),
            [b'H', b'T', b'T', b'P', b'/', ..] => return Err(ProtocolError::NonParsedHeader),
            _ => {}
        }
        self.fields = self.fields.saturating_add(1);
        if self.fields > limits.fields {
            return Err(ProtocolError::TooManyFields);
        }
        let colon = memchr::memchr(b':', line).ok_or(ProtocolError::FieldName)?;
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        // Nobody else reads this block, so nothing hides behind a space that HTTP would not allow.
        let name = trim_end(name);
        if name.is_empty()
            || name.len() > usize::from(u16::MAX)
            || !name.iter().all(|byte| is_token(*byte))
        {
            return Err(ProtocolError::FieldName);
        }
        self.take_field(name, trim(value.get(1..).unwrap_or_default()))?;
        Ok(false)
    }

    fn take_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), ProtocolError> {
        // Most names are told apart by their length alone.
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"status") => {
                let status = status(value)?;
                return match self.status.replace(status) {
                    Some(before) if before != status => Err(ProtocolError::Status),
                    _ => Ok(()),
                };
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_decimal(value).ok_or(ProtocolError::ContentLength)?;
                match self.content_length.replace(length) {
                    None => {}
                    // Said twice, it is one.
                    Some(before) if before == length => return Ok(()),
                    Some(_) => return Err(ProtocolError::ContentLength),
                }
            }
            2 | 7 | 10 | 16 | 17 => {
                let mut lower = [0; 17];
                if let Some(lower) = lower.get_mut(..name.len()) {
                    lower.copy_from_slice(name);
                    lower.make_ascii_lowercase();
                    if is_connection_field(lower) {
                        return Ok(());
                    }
                }
            }
            _ => {}
        }
        if value.iter().all(|byte| is_field_value(*byte)) {
            self.headers.push(name, value);
            return Ok(());
        }
        // What ends a line elsewhere is never passed on. Other control bytes do come, in file names
        // mostly; RFC 9110 section 5.5 leaves it to us to mend them.
        if value.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err(ProtocolError::FieldValue);
        }
        let mend = |byte: &u8| if is_field_value(*byte) { *byte } else { b' ' };
        let mended: Vec<u8> = value.iter().map(mend).collect();
        self.headers.push(name, trim(&mended));
        Ok(())
    }

    /// The head, when its last line was taken; `None` if its status is not a final one.
    pub(super) fn finish(self, is_head: bool) -> Option<ResponseHead> {
        let mut headers = self.headers;
        let status =
            self.status
                .unwrap_or_else(|| match headers.contains(http::header::LOCATION) {
                    true => StatusCode::FOUND,
                    false => StatusCode::OK,
                });
        if status.is_informational() {
            return None;
        }
        if status == StatusCode::NO_CONTENT {
            headers.remove(http::header::CONTENT_LENGTH);
        }
        let has_none =
            is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let content = match self.content_length {
            _ if has_none => ResponseContent::None,
            Some(0) => ResponseContent::None,
            Some(length) => ResponseContent::Length(length),
            None => ResponseContent::UntilEnd,
        };
        Some(ResponseHead {
            status,
            headers,
            content,
        })
    }
}

/// The status; the reason behind it may be anything, or missing, and means nothing.
fn status(value: &[u8]) -> Result<StatusCode, ProtocolError> {
    let digits = match value.split_at_checked(3) {
        Some((digits, [])) => digits,
        Some((digits, [next, ..])) if !next.is_ascii_digit() => digits,
        _ => return Err(ProtocolError::Status),
    };
    StatusCode::from_bytes(digits)
        .ok()
        .filter(|status| !status.is_informational())
        .ok_or(ProtocolError::Status)
}

fn trim_end(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = name {
        name = rest;
    }
    name
}
