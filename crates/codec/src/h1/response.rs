//! The head of a response as it is read (RFC 9112 sections 4 to 6).

use std::time::Duration;

use http::{StatusCode, Version};

use super::framing::{Framing, Told};
use super::line::LineReader;
use super::{HeadLimits, ProtocolError, field};
use apus_http::Headers;
use apus_http::grammar::{is_field_content, parse_decimal, trim};
use apus_http::list;
use apus_http::response_head::is_connection_field;

/// A response as far as its head tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The field lines that are for everybody: those about the connection are left out (RFC 9110
    /// section 7.6.1), but `Upgrade` with 101 and 426, and so is a `Content-Length` that the status
    /// does not allow.
    pub headers: Headers,
    /// How the content is framed.
    pub content: ResponseContent,
}

/// How the content of a response is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseContent {
    /// There is none, whatever the fields say of its length.
    None,
    /// So many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// All bytes up to the end of the connection.
    UntilClose,
}

/// The request that a response is for, as far as the response's framing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerTo {
    Head,
    Connect,
    Other,
}

/// Reads heads one after the other.
#[derive(Debug, Default)]
pub(super) struct ResponseReader {
    lines: LineReader,
    /// There from the status line on.
    status: Option<(StatusCode, Version)>,
    headers: Headers,
    framing: Framing,
    keep_alive: KeepAlive,
    /// Field lines so far.
    fields: usize,
    /// The values of `Connection`, joined.
    connection: Vec<u8>,
}

/// A head and whether the server lets the connection persist after it (RFC 9112 section 9.3).
pub(super) struct ReadResponse {
    pub(super) head: ResponseHead,
    pub(super) persistent: bool,
    /// How long the server keeps the connection without a request, if it says so.
    pub(super) idle_timeout: Option<Duration>,
    /// The values of `Connection`, joined.
    pub(super) connection: Vec<u8>,
}

/// What `Keep-Alive` says (RFC 2068 section 19.7.1.1, and `draft-thomson-hybi-http-timeout` of its
/// parameters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeepAlive {
    timeout: Option<Duration>,
    /// Requests that may follow.
    max: Option<u64>,
}

impl KeepAlive {
    /// Takes a line of the field. What cannot be read says nothing.
    fn note(&mut self, value: &[u8]) {
        for parameter in list::members(value) {
            let mut parts = parameter.splitn(2, |byte| *byte == b'=');
            let (Some(name), Some(number)) = (parts.next(), parts.next()) else {
                continue;
            };
            let Some(number) = parse_decimal(trim(number)) else {
                continue;
            };
            let name = trim(name);
            if name.eq_ignore_ascii_case(b"timeout") {
                self.timeout = Some(Duration::from_secs(number));
            } else if name.eq_ignore_ascii_case(b"max") {
                self.max = Some(number);
            }
        }
    }
}

impl ResponseReader {
    /// Bytes of the longest status line.
    const STATUS_LINE: usize = 4 * 1024;
    /// A first guess at the bytes of a field section when the input holds more than one head.
    const FIELDS_CAPACITY: usize = 2048;

    /// Takes whole lines. Tells how many bytes they are, and the head once it is whole.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        answer_to: AnswerTo,
    ) -> Result<(usize, Option<ReadResponse>), ProtocolError> {
        let mut consumed = 0_usize;
        let section = (limits.head_bytes, ProtocolError::HeadTooLarge);
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let Some(status) = self.status else {
                if !is_start(rest) {
                    return Err(ProtocolError::StatusLine);
                }
                let line_limit = (Self::STATUS_LINE, ProtocolError::StatusLine);
                let Some((line, bytes)) = self.lines.next(rest, section, line_limit)? else {
                    return Ok((consumed, None));
                };
                consumed = consumed.saturating_add(bytes);
                self.status = Some(status_line(line)?);
                let capacity = rest.len().saturating_sub(bytes).min(Self::FIELDS_CAPACITY);
                self.headers = Headers::with_capacity(capacity);
                continue;
            };
            let Some((line, bytes)) = self.lines.next(rest, section, section)? else {
                return Ok((consumed, None));
            };
            consumed = consumed.saturating_add(bytes);
            if line.is_empty() {
                let head = std::mem::take(self).finish(status, answer_to)?;
                return Ok((consumed, Some(head)));
            }
            let whole = rest.get(..bytes).unwrap_or_default();
            self.take(line, whole, limits)?;
        }
    }

    /// Takes a field line; `whole` has its CRLF, too.
    fn take(
        &mut self,
        line: &[u8],
        whole: &[u8],
        limits: &HeadLimits,
    ) -> Result<(), ProtocolError> {
        let (name, value) = field::split(line)?;
        self.fields = self.fields.saturating_add(1);
        if self.fields > limits.fields {
            return Err(ProtocolError::TooManyFields);
        }
        self.framing.note(name, value)?;
        // A name that is about the connection has one of these lengths.
        if matches!(name.len(), 2 | 7 | 10 | 16 | 17) {
            let mut lower = [0; 17];
            if let Some(lower) = lower.get_mut(..name.len()) {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                if *lower == *b"connection" {
                    self.connection.push(b',');
                    self.connection.extend_from_slice(value);
                }
                if *lower == *b"keep-alive" {
                    self.keep_alive.note(value);
                }
                if is_connection_field(lower) && *lower != *b"upgrade" {
                    return Ok(());
                }
            }
        }
        self.headers.push_received(whole, name, value);
        Ok(())
    }

    /// The head, when its last line was taken.
    fn finish(
        self,
        (status, version): (StatusCode, Version),
        answer_to: AnswerTo,
    ) -> Result<ReadResponse, ProtocolError> {
        let Self {
            mut headers,
            framing,
            keep_alive,
            connection,
            ..
        } = self;
        let told = framing.told(version)?;
        let is_tunnel = answer_to == AnswerTo::Connect && status.is_success();
        let has_no_length =
            status.is_informational() || status == StatusCode::NO_CONTENT || is_tunnel;
        if has_no_length && framing.content_length.is_some() {
            headers.remove("content-length");
        }
        let keeps_upgrade = matches!(
            status,
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED
        );
        if !keeps_upgrade && headers.contains("upgrade") {
            headers.remove("upgrade");
        }
        for name in list::members(&connection) {
            // What is for all who take part must not be named (RFC 9110 section 7.6.1): an origin
            // that does so must not make others store what is private. `Upgrade` was looked at
            // above, and the other options are no fields.
            let stays = [
                "close",
                "upgrade",
                "cache-control",
                "content-length",
                "set-cookie",
                "vary",
            ]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            if !stays && let Ok(name) = std::str::from_utf8(name) {
                headers.remove(name);
            }
        }
        let has_none =
            has_no_length || status == StatusCode::NOT_MODIFIED || answer_to == AnswerTo::Head;
        let content = match told {
            _ if has_none => ResponseContent::None,
            Told::Length(0) => ResponseContent::None,
            Told::Length(length) => ResponseContent::Length(length),
            Told::Chunked => ResponseContent::Chunked,
            Told::Nothing => ResponseContent::UntilClose,
        };
        Ok(ReadResponse {
            persistent: framing.is_persistent(version)
                && keep_alive.max != Some(0)
                && content != ResponseContent::UntilClose,
            idle_timeout: keep_alive.timeout,
            connection,
            head: ResponseHead {
                status,
                version,
                headers,
                content,
            },
        })
    }
}

/// Whether these bytes can be the first of a response.
fn is_start(input: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/1.";
    let len = input.len().min(START.len());
    input.get(..len) == START.get(..len)
}

/// Status and version. The reason may hold anything that a field value may, and means nothing; the
/// space before it is missing often enough.
fn status_line(line: &[u8]) -> Result<(StatusCode, Version), ProtocolError> {
    let (version, rest) = if let Some(rest) = line.strip_prefix(b"HTTP/1.1 ") {
        (Version::HTTP_11, rest)
    } else if let Some(rest) = line.strip_prefix(b"HTTP/1.0 ") {
        (Version::HTTP_10, rest)
    } else {
        return Err(match line {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', ..]
                if minor.is_ascii_digit() =>
            {
                ProtocolError::Version
            }
            _ => ProtocolError::StatusLine,
        });
    };
    let (digits, reason) = rest.split_at_checked(3).ok_or(ProtocolError::StatusLine)?;
    let is_reason = matches!(reason, [] | [b' ', ..]) && is_field_content(reason);
    StatusCode::from_bytes(digits)
        .ok()
        .filter(|_| is_reason)
        .map(|status| (status, version))
        .ok_or(ProtocolError::StatusLine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_how_long_a_server_keeps_a_connection() {
        let said = |timeout: Option<u64>, max| KeepAlive {
            timeout: timeout.map(Duration::from_secs),
            max,
        };
        for (value, expected) in [
            (&b"timeout=5, max=100"[..], said(Some(5), Some(100))),
            (b"Timeout = 5", said(Some(5), None)),
            (b"max=0", said(None, Some(0))),
            (b"300", said(None, None)),
            (
                b"timeout=-1, max=, timeout=99999999999999999999",
                said(None, None),
            ),
            (b"", said(None, None)),
        ] {
            let mut keep_alive = KeepAlive::default();
            keep_alive.note(value);
            assert_eq!(keep_alive, expected, "{value:?}");
        }
    }

    #[test]
    fn takes_status_lines_with_and_without_a_reason() {
        for (line, status, version) in [
            (&b"HTTP/1.1 200 OK"[..], 200, Version::HTTP_11),
            (b"HTTP/1.1 200 ", 200, Version::HTTP_11),
            (b"HTTP/1.1 200", 200, Version::HTTP_11),
            (b"HTTP/1.0 404 Not\tFound \xe9", 404, Version::HTTP_10),
            (b"HTTP/1.1 799 x", 799, Version::HTTP_11),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(status_line(line), Ok((status, version)), "{line:?}");
        }
    }

    #[test]
    fn rejects_status_lines_that_are_read_differently_elsewhere() {
        for line in [
            &b""[..],
            b"HTTP/1.1",
            b"HTTP/1.1 ",
            b"HTTP/1.1 20",
            b"HTTP/1.1 2000",
            b"HTTP/1.1 099 x",
            b"HTTP/1.1 +20 x",
            b"HTTP/1.1 200OK",
            b"HTTP/1.1  200 OK",
            b"HTTP/1.1\t200 OK",
            b"http/1.1 200 OK",
            b"HTTP/1.1 200 O\rK",
            b"HTTP/1.1 200 \0",
            b"ICY 200 OK",
        ] {
            assert_eq!(
                status_line(line),
                Err(ProtocolError::StatusLine),
                "{line:?}"
            );
        }
        assert_eq!(status_line(b"HTTP/1.2 200 OK"), Err(ProtocolError::Version));
    }
}
