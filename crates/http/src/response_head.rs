//! The head of a response as a connection's driver has it, for every protocol version.

use http::StatusCode;

use crate::Headers;
use crate::grammar::parse_decimal;

/// The head of a response, as a connection's driver has it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The field lines of the response. Those that are the connection's to write are left out:
    /// `Connection`, `Transfer-Encoding` and their like, and a `Content-Length` that is not
    /// `content_length`.
    pub headers: &'a Headers,
    /// Bytes of the content, if that is known before it is sent.
    pub content_length: Option<u64>,
    /// The current date (RFC 9110 section 5.6.7), written if `headers` has none.
    pub date: &'a [u8; 29],
    /// The `Server` field, written if `headers` has none.
    pub server: Option<&'a str>,
}

/// What has to be known of a response's fields before they are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldSummary {
    /// The value of the only `Content-Length`; `None` if there is none, several, or no number.
    pub content_length: Option<u64>,
    /// Whether there is `Content-Length`, valid or not.
    pub has_content_length: bool,
    /// Whether its line can be sent as it is, if the value is the right one.
    pub is_length_line_kept: bool,
    /// Whether there is `Date`.
    pub has_date: bool,
    /// Whether there is `Server`.
    pub has_server: bool,
    /// Whether there are fields about the connection.
    pub has_connection_fields: bool,
}

impl FieldSummary {
    /// Looks at all lines.
    pub fn of(headers: &Headers) -> Self {
        let mut summary = Self::default();
        for (name, value, _) in headers.wire_lines() {
            match name {
                b"date" => summary.has_date = true,
                b"server" => summary.has_server = true,
                b"content-length" => {
                    let is_repeated = std::mem::replace(&mut summary.has_content_length, true);
                    summary.content_length = parse_decimal(value).filter(|_| !is_repeated);
                    // Leading zeros are allowed, but not everybody reads them as decimal.
                    summary.is_length_line_kept =
                        summary.content_length.is_some() && !matches!(value, [b'0', _, ..]);
                }
                name => summary.has_connection_fields |= is_connection_field(name),
            }
        }
        summary
    }
}

/// Fields that are about one connection (RFC 9110 section 7.6.1), which only its driver can write.
pub fn is_connection_field(name: &[u8]) -> bool {
    matches!(
        name,
        b"te"
            | b"upgrade"
            | b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"transfer-encoding"
    )
}

/// Appends a number in decimal.
pub fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut used = 0_usize;
    for digit in digits.iter_mut().rev() {
        *digit = u8::try_from(number % 10).map_or(b'0', |rest| rest | b'0');
        number /= 10;
        used = used.saturating_add(1);
        if number == 0 {
            break;
        }
    }
    let start = digits.len().saturating_sub(used);
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}
