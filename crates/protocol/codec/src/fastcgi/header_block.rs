//! Reads the head of a CGI response, its header block (RFC 3875 section 6).

use http::StatusCode;

use super::FastCgiError;
use crate::h1::HeadLimits;
use apus_http::Headers;
use apus_http::grammar::{is_field_value, is_token, parse_decimal, trim};
use apus_http::response_head::is_connection_field;

/// The head of an application's response.
///
/// The status is the value of `Status`, or of a status line of HTTP, as PHP sends with `cgi.rfc2616_headers`;
/// without it, 302 if there is a `Location`, and 200 otherwise. A status that does not exist is a 500. A local
/// redirect (section 6.2.2) is a 302 as well: the client requests the other path, so that the
/// access rules of that path apply.
///
/// PHP passes on what a script gives to `header()`, so other servers accept more than the grammar of fields: a name
/// alone is a field without a value, of several lengths the last one applies, and one that is not a number is not
/// there. Lines that are no fields are left out here; nginx responds 502 for most of them.
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
    /// The first line that was left out because it is not a valid field, or its start: a mistake of the script.
    pub invalid_line: Option<Box<[u8]>>,
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
            return Err(FastCgiError::Incomplete);
        }
        reader.status = status.or(reader.status);
        reader.finish(is_head)
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
    /// Whether any line was a field.
    has_field: bool,
    invalid_line: Option<Box<[u8]>>,
}

impl HeaderBlockReader {
    /// Maximum initial capacity of a block.
    const CAPACITY: usize = 1024;
    /// The most bytes of an invalid line that are kept.
    const INVALID_LINE: usize = 200;

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
        if line.is_empty() {
            return Ok(true);
        }
        self.fields = self.fields.saturating_add(1);
        if self.fields > limits.fields {
            return Err(FastCgiError::TooManyFields);
        }
        let is_valid = match line.strip_prefix(b"HTTP/") {
            Some(status_line) => self.add_status(after_space(status_line)),
            None => {
                let colon = memchr::memchr(b':', line).unwrap_or(line.len());
                let (name, value) = line.split_at_checked(colon).unwrap_or_default();
                // White space before the colon is no smuggling risk here, as no other server parses this block.
                let name = trim_end(name);
                !name.is_empty()
                    && name.len() <= usize::from(u16::MAX)
                    && name.iter().all(|byte| is_token(*byte))
                    && self.add_field(name, trim(value.get(1..).unwrap_or_default()))
            }
        };
        if is_valid {
            self.has_field = true;
        } else if self.invalid_line.is_none() {
            let start = line.get(..Self::INVALID_LINE).unwrap_or(line);
            self.invalid_line = Some(start.into());
        }
        Ok(false)
    }

    /// Adds a field. Returns whether its value is valid.
    fn add_field(&mut self, name: &[u8], value: &[u8]) -> bool {
        // The length alone excludes most names.
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"status") => return self.add_status(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_decimal(value);
                if self.content_length.is_some() && self.content_length == length {
                    return true;
                }
                // PHP's `header()` replaces an earlier value by default, so of several lengths the last one is
                // what the script meant. One that is no number was a 502 once, and three of them took PHP out of
                // service for everybody.
                self.headers.remove(http::header::CONTENT_LENGTH);
                self.content_length = length;
                if length.is_none() {
                    return false;
                }
            }
            // An empty type says nothing about the body; nginx does not send it either.
            12 if value.is_empty() && name.eq_ignore_ascii_case(b"content-type") => return true,
            2 | 7 | 10 | 16 | 17 => {
                let mut lower = [0; 17];
                if let Some(lower) = lower.get_mut(..name.len()) {
                    lower.copy_from_slice(name);
                    lower.make_ascii_lowercase();
                    if is_connection_field(lower) {
                        return true;
                    }
                }
            }
            _ => {}
        }
        if value.iter().all(|byte| is_field_value(*byte)) {
            self.headers.push(name, value);
            return true;
        }
        // CR and NUL may end a line for other parsers: an attempt at response splitting. Other control characters do
        // occur, mostly in file names; RFC 9110 section 5.5 allows to replace them.
        if value.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return false;
        }
        let replace = |byte: &u8| if is_field_value(*byte) { *byte } else { b' ' };
        let replaced: Vec<u8> = value.iter().map(replace).collect();
        self.headers.push(name, trim(&replaced));
        true
    }

    /// Sets the status. One that does not exist is a 500, unless there is a valid one, too.
    fn add_status(&mut self, value: &[u8]) -> bool {
        let status = status(value);
        self.status = status
            .or(self.status)
            .or(Some(StatusCode::INTERNAL_SERVER_ERROR));
        status.is_some()
    }

    /// The head, after its last line was read.
    pub(super) fn finish(self, is_head: bool) -> Result<CgiResponseHead, FastCgiError> {
        if self.invalid_line.is_some() && !self.has_field {
            return Err(FastCgiError::NoField);
        }
        let mut headers = self.headers;
        // `Location` alone is a redirect (RFC 3875 section 6.2.3).
        let status = self.status.unwrap_or_else(|| {
            if headers.contains(http::header::LOCATION) {
                StatusCode::FOUND
            } else {
                StatusCode::OK
            }
        });
        if status.is_informational() {
            return Err(FastCgiError::Status);
        }
        // RFC 9110 section 8.6 forbids the length.
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
        Ok(CgiResponseHead {
            status,
            headers,
            body,
            invalid_line: self.invalid_line,
        })
    }
}

/// The status, if it is a final one. The reason phrase is ignored and may be missing.
fn status(value: &[u8]) -> Option<StatusCode> {
    let digits = match value.split_at_checked(3)? {
        (digits, []) => digits,
        (digits, [next, ..]) if !next.is_ascii_digit() => digits,
        _ => return None,
    };
    StatusCode::from_bytes(digits)
        .ok()
        .filter(|status| !status.is_informational())
}

/// What follows the first space, without spaces around it.
fn after_space(line: &[u8]) -> &[u8] {
    let space = memchr::memchr(b' ', line).unwrap_or(line.len());
    trim(line.get(space..).unwrap_or_default())
}

fn trim_end(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = name {
        name = rest;
    }
    name
}
