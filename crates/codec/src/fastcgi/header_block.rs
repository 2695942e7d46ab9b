//! Reads the head of a CGI response, its header block (RFC 3875 section 6).

use http::StatusCode;

use super::FastCgiError;
use crate::h1::HeadLimits;
use apus_http::Headers;
use apus_http::grammar::{is_field_value, is_token, parse_decimal, trim};
use apus_http::response_head::is_connection_field;

/// The head of an application's response.
///
/// The status is the value of `Status`; without it, 302 if there is a `Location`, and 200 otherwise.
/// A local redirect (section 6.2.2) is a 302 as well: the client requests the other path, so that the
/// access rules of that path apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiResponseHead {
    /// The status, always a final one.
    pub status: StatusCode,
    /// The field lines, without `Status`, without connection-specific fields (RFC 9110 section 7.6.1),
    /// since an application does not manage the connection, and without a `Content-Length` that the
    /// status does not allow.
    pub headers: Headers,
    /// The length of the body.
    pub body: BodyLength,
}

/// The length of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body: the status or the method of the request does not allow one, or its length is
    /// 0. Further output is ignored.
    None,
    /// This many bytes, at least one. Output after them is ignored; with fewer bytes the response is
    /// truncated.
    Length(u64),
    /// All output until the end of the request.
    UntilEnd,
}

impl CgiResponseHead {
    /// Parses a complete header block: lines that end with CRLF or LF, without the empty line after them.
    /// `status` overrides the status of the block; `is_head` is whether the method of the request was
    /// HEAD.
    ///
    /// # Errors
    /// It is not a header block, or larger than `limits`, whose limit of the target is ignored.
    pub fn from_block(
        status: Option<StatusCode>,
        block: &[u8],
        is_head: bool,
        limits: &HeadLimits,
    ) -> Result<Self, FastCgiError> {
        let mut reader = HeaderBlockReader::default();
        let (_, is_complete) = reader.read(block, limits)?;
        if is_complete || !reader.partial.is_empty() {
            return Err(FastCgiError::FieldName);
        }
        reader.status = status.or(reader.status);
        reader.finish(is_head).ok_or(FastCgiError::Status)
    }
}

/// Reads a header block that arrives in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct HeaderBlockReader {
    /// The incomplete line at the end of the input.
    partial: Vec<u8>,
    consumed: usize,
    fields: usize,
    status: Option<StatusCode>,
    content_length: Option<u64>,
    headers: Headers,
}

impl HeaderBlockReader {
    /// Maximum initial capacity of a block.
    const CAPACITY: usize = 1024;

    /// Consumes the input that belongs to the block. Returns how many bytes that is, and whether the block
    /// is complete.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, bool), FastCgiError> {
        let mut consumed = 0_usize;
        if self.consumed == 0 {
            self.headers = Headers::with_capacity(input.len().min(Self::CAPACITY));
        }
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let end = memchr::memchr(b'\n', rest);
            let len = end.map_or(rest.len(), |end| end.saturating_add(1));
            self.consumed = self.consumed.saturating_add(len);
            if self.consumed > limits.head_bytes {
                return Err(FastCgiError::HeadTooLarge);
            }
            consumed = consumed.saturating_add(len);
            let Some(end) = end else {
                self.partial.extend_from_slice(rest);
                return Ok((consumed, false));
            };
            let part = rest.get(..end).unwrap_or_default();
            let is_end = if self.partial.is_empty() {
                self.add_line(part, limits)?
            } else {
                let mut line = std::mem::take(&mut self.partial);
                line.extend_from_slice(part);
                self.add_line(&line, limits)?
            };
            if is_end {
                return Ok((consumed, true));
            }
        }
    }

    /// Adds a line without its LF. Returns whether it is the empty one.
    fn add_line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<bool, FastCgiError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            [] => return Ok(true),
            [b' ' | b'\t', ..] => return Err(FastCgiError::LineFolding),
            [b'H', b'T', b'T', b'P', b'/', ..] => return Err(FastCgiError::NonParsedHeader),
            _ => {}
        }
        self.fields = self.fields.saturating_add(1);
        if self.fields > limits.fields {
            return Err(FastCgiError::TooManyFields);
        }
        let colon = memchr::memchr(b':', line).ok_or(FastCgiError::FieldName)?;
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        // White space before the colon is no smuggling risk here, as no other server parses this block.
        let name = trim_end(name);
        if name.is_empty()
            || name.len() > usize::from(u16::MAX)
            || !name.iter().all(|byte| is_token(*byte))
        {
            return Err(FastCgiError::FieldName);
        }
        self.add_field(name, trim(value.get(1..).unwrap_or_default()))?;
        Ok(false)
    }

    fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), FastCgiError> {
        // The length alone excludes most names.
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"status") => {
                let status = status(value)?;
                return match self.status.replace(status) {
                    Some(before) if before != status => Err(FastCgiError::Status),
                    _ => Ok(()),
                };
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_decimal(value).ok_or(FastCgiError::ContentLength)?;
                match self.content_length.replace(length) {
                    None => {}
                    // A repetition with the same value is dropped.
                    Some(before) if before == length => return Ok(()),
                    Some(_) => return Err(FastCgiError::ContentLength),
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
        // CR and NUL may end a line for other parsers. Other control characters do occur, mostly in
        // file names; RFC 9110 section 5.5 allows to replace them.
        if value.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err(FastCgiError::FieldValue);
        }
        let replace = |byte: &u8| if is_field_value(*byte) { *byte } else { b' ' };
        let replaced: Vec<u8> = value.iter().map(replace).collect();
        self.headers.push(name, trim(&replaced));
        Ok(())
    }

    /// The head, after its last line was read; `None` if its status is not final.
    pub(super) fn finish(self, is_head: bool) -> Option<CgiResponseHead> {
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
        let has_no_body =
            is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = match self.content_length {
            _ if has_no_body => BodyLength::None,
            Some(0) => BodyLength::None,
            Some(length) => BodyLength::Length(length),
            None => BodyLength::UntilEnd,
        };
        Some(CgiResponseHead {
            status,
            headers,
            body,
        })
    }
}

/// The status. The reason phrase is ignored and may be missing.
fn status(value: &[u8]) -> Result<StatusCode, FastCgiError> {
    let digits = match value.split_at_checked(3) {
        Some((digits, [])) => digits,
        Some((digits, [next, ..])) if !next.is_ascii_digit() => digits,
        _ => return Err(FastCgiError::Status),
    };
    StatusCode::from_bytes(digits)
        .ok()
        .filter(|status| !status.is_informational())
        .ok_or(FastCgiError::Status)
}

fn trim_end(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = name {
        name = rest;
    }
    name
}
