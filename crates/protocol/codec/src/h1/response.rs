//! Reads response heads: status line, field section and framing (RFC 9112 sections 4 to 6).

use std::time::Duration;

use http::{StatusCode, Version};

use super::field::{self, SectionPart};
use super::framing::{FramingFields, MessageLength};
use super::line::LineReader;
use super::{BodyFraming, HeadLimits, Http1Error};
use crate::request_kind::RequestKind;
use apus_http::grammar::{is_field_content, parse_decimal, trim};
use apus_http::list;
use apus_http::{FieldSet, Headers, KnownField};

/// The head of a response that a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http1ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The end-to-end field lines. Connection-specific fields are removed (RFC 9110 section 7.6.1),
    /// except `Upgrade` with 101 and 426, and so is a `Content-Length` that the status does not
    /// allow.
    pub headers: Headers,
    /// How the body is framed.
    pub body: BodyFraming,
}

/// Reads one response head after the other.
#[derive(Debug, Default)]
pub(super) struct ResponseReader {
    lines: LineReader,
    /// Set once the status line was read.
    status: Option<(StatusCode, Version)>,
    headers: Headers,
    fields: ResponseFields,
}

/// What a response is read by.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseContext {
    pub(super) limits: HeadLimits,
    pub(super) request_kind: RequestKind,
    /// Whether deviations are accepted that no recipient reads in another way.
    pub(super) is_lenient: bool,
}

/// The values of the fields that the codec interprets itself, of the lines that were read.
#[derive(Debug, Default)]
struct ResponseFields {
    framing: FramingFields,
    keep_alive: KeepAlive,
    /// The joined values of `Connection`.
    connection: Vec<u8>,
    is_lenient: bool,
    /// Whether the length was repeated in one line.
    has_length_list: bool,
}

impl ResponseFields {
    /// The fields that matter here.
    const INSPECTED: FieldSet = FieldSet::CONNECTION.and(FramingFields::FIELDS);

    /// Adds a line. Returns whether it is one of the end-to-end fields of the message, or `Upgrade`.
    fn add(&mut self, field: KnownField, value: &[u8]) -> Result<bool, Http1Error> {
        if self.is_lenient && field == KnownField::ContentLength {
            return self.add_repeated_length(value);
        }
        self.framing.add(field, value)?;
        match field {
            KnownField::Connection => {
                self.connection.push(b',');
                self.connection.extend_from_slice(value);
            }
            KnownField::KeepAlive => self.keep_alive.add(value),
            _ => {}
        }
        Ok(!FieldSet::CONNECTION.has(field) || field == KnownField::Upgrade)
    }

    /// Adds a length, which may be repeated. Returns whether it is the first line.
    fn add_repeated_length(&mut self, value: &[u8]) -> Result<bool, Http1Error> {
        let length = field::repeated_content_length(value)?;
        self.has_length_list |= value.contains(&b',');
        match self.framing.content_length.replace(length) {
            None => Ok(true),
            Some(before) if before == length => Ok(false),
            Some(_) => Err(Http1Error::ContentLength),
        }
    }
}

/// A response head, and whether the connection persists after it (RFC 9112 section 9.3).
pub(super) struct ReceivedResponse {
    pub(super) head: Http1ResponseHead,
    pub(super) persistent: bool,
    /// How long the server keeps the connection idle, if it announces that.
    pub(super) idle_timeout: Option<Duration>,
    /// The joined values of `Connection`.
    pub(super) connection: Vec<u8>,
}

/// The parameters of `Keep-Alive` (RFC 2068 section 19.7.1.1, `draft-thomson-hybi-http-timeout`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeepAlive {
    timeout: Option<Duration>,
    /// Requests that may follow.
    max: Option<u64>,
}

impl KeepAlive {
    /// Adds a line of the field. Ignores parameters that are malformed.
    fn add(&mut self, value: &[u8]) {
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
    /// Maximum bytes of a status line.
    const MAX_STATUS_LINE: usize = 4 * 1024;
    /// Maximum initial capacity of a field section, since the input may hold more than one head. Allocators
    /// serve up to 1 KB the fastest way.
    const FIELDS_CAPACITY: usize = 1024;

    /// Consumes complete lines. Returns how many bytes they are, and the head once it is complete.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        context: ResponseContext,
    ) -> Result<(usize, Option<ReceivedResponse>), Http1Error> {
        let ResponseContext {
            limits,
            request_kind,
            is_lenient,
        } = context;
        self.lines.is_lenient = is_lenient;
        self.fields.is_lenient = is_lenient;
        let mut consumed = 0_usize;
        let section = (limits.head_bytes, Http1Error::HeadTooLarge);
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let Some(status) = self.status else {
                // An origin that speaks TLS or HTTP/2 on this port is recognised by its first bytes, and not after 4
                // KB of them.
                if !can_start_response(rest) {
                    return Err(Http1Error::StatusLine);
                }
                let line_limit = (Self::MAX_STATUS_LINE, Http1Error::StatusLine);
                let Some((line, bytes)) = self.lines.next(rest, section, line_limit)? else {
                    return Ok((consumed, None));
                };
                consumed = consumed.saturating_add(bytes);
                self.status = Some(status_line(line)?);
                let capacity = rest.len().saturating_sub(bytes).min(Self::FIELDS_CAPACITY);
                self.headers = Headers::with_capacity(capacity);
                continue;
            };
            let fields = &mut self.fields;
            let part = field::receive(
                &mut self.lines,
                &mut self.headers,
                rest,
                (section, limits.fields),
                ResponseFields::INSPECTED,
                |field, value| fields.add(field, value),
            )?;
            match part {
                SectionPart::Lines(bytes) => consumed = consumed.saturating_add(bytes),
                SectionPart::Incomplete => return Ok((consumed, None)),
                SectionPart::End(bytes) => {
                    let head = std::mem::take(self).finish(status, request_kind)?;
                    return Ok((consumed.saturating_add(bytes), Some(head)));
                }
            }
        }
    }

    /// The head, after its last line was read.
    fn finish(
        self,
        (status, version): (StatusCode, Version),
        request_kind: RequestKind,
    ) -> Result<ReceivedResponse, Http1Error> {
        let Self {
            mut headers,
            fields,
            ..
        } = self;
        let ResponseFields {
            framing,
            keep_alive,
            connection,
            is_lenient: _,
            has_length_list,
        } = fields;
        if has_length_list && let Some(length) = framing.content_length {
            // Digits are a valid value.
            let _ = headers.try_insert("content-length", length.to_string());
        }
        let length = framing.resolve(version)?;
        let is_tunnel = request_kind.begins_tunnel(status);
        // RFC 9110 section 8.6: with these, a recipient that believes the length would wait for a body, or read the
        // tunnel as one.
        let has_no_length =
            status.is_informational() || status == StatusCode::NO_CONTENT || is_tunnel;
        if has_no_length && framing.content_length.is_some() {
            headers.remove("content-length");
        }
        let keeps_upgrade = matches!(
            status,
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED
        );
        if !keeps_upgrade && headers.has(KnownField::Upgrade) {
            headers.remove("upgrade");
        }
        for name in list::members(&connection) {
            // `Connection` must not name fields that are meant for all recipients (RFC 9110 section
            // 7.6.1). If an origin did so and they were removed, a cache would store what is private.
            // `Upgrade` is handled above, and `close` is not a field.
            let is_kept = [
                "close",
                "upgrade",
                "cache-control",
                "content-length",
                "set-cookie",
                "vary",
            ]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            if !is_kept && let Ok(name) = std::str::from_utf8(name) {
                headers.remove(name);
            }
        }
        let has_no_body = has_no_length
            || status == StatusCode::NOT_MODIFIED
            || request_kind == RequestKind::Head;
        let body = match length {
            _ if has_no_body => BodyFraming::None,
            MessageLength::Known(0) => BodyFraming::None,
            MessageLength::Known(length) => BodyFraming::Length(length),
            MessageLength::Chunked => BodyFraming::Chunked,
            MessageLength::Unspecified => BodyFraming::UntilClose,
        };
        Ok(ReceivedResponse {
            persistent: framing.is_persistent(version)
                // A server that counts its requests down, as Apache does, closes the connection after this one.
                && keep_alive.max != Some(0)
                && body != BodyFraming::UntilClose,
            idle_timeout: keep_alive.timeout,
            connection,
            head: Http1ResponseHead {
                status,
                version,
                headers,
                body,
            },
        })
    }
}

/// Whether a response can start with these bytes.
fn can_start_response(input: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/1.";
    let len = input.len().min(START.len());
    input.get(..len) == START.get(..len)
}

/// The status and the version. The reason phrase is ignored; it may hold the bytes of a field value, and
/// the space before it may be missing, as many servers leave it out.
fn status_line(line: &[u8]) -> Result<(StatusCode, Version), Http1Error> {
    let (version, rest) = if let Some(rest) = line.strip_prefix(b"HTTP/1.1 ") {
        (Version::HTTP_11, rest)
    } else if let Some(rest) = line.strip_prefix(b"HTTP/1.0 ") {
        (Version::HTTP_10, rest)
    } else {
        return Err(match line {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', ..]
                if minor.is_ascii_digit() =>
            {
                Http1Error::Version
            }
            _ => Http1Error::StatusLine,
        });
    };
    let (digits, reason) = rest.split_at_checked(3).ok_or(Http1Error::StatusLine)?;
    let is_reason = matches!(reason, [] | [b' ', ..]) && is_field_content(reason);
    StatusCode::from_bytes(digits)
        .ok()
        .filter(|_| is_reason)
        .map(|status| (status, version))
        .ok_or(Http1Error::StatusLine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_parameters_of_keep_alive() {
        let keep_alive = |timeout: Option<u64>, max| KeepAlive {
            timeout: timeout.map(Duration::from_secs),
            max,
        };
        for (value, expected) in [
            (&b"timeout=5, max=100"[..], keep_alive(Some(5), Some(100))),
            (b"Timeout = 5", keep_alive(Some(5), None)),
            (b"max=0", keep_alive(None, Some(0))),
            (b"300", keep_alive(None, None)),
            (
                b"timeout=-1, max=, timeout=99999999999999999999",
                keep_alive(None, None),
            ),
            (b"", keep_alive(None, None)),
        ] {
            let mut parsed = KeepAlive::default();
            parsed.add(value);
            assert_eq!(parsed, expected, "{value:?}");
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
    fn rejects_status_lines_that_parsers_disagree_about() {
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
            assert_eq!(status_line(line), Err(Http1Error::StatusLine), "{line:?}");
        }
        assert_eq!(status_line(b"HTTP/1.2 200 OK"), Err(Http1Error::Version));
    }
}
