//! The head of a response, as the driver of a connection gives it to the codec.

use http::StatusCode;

use crate::grammar::parse_decimal;
use crate::{FieldSet, Headers, KnownField};

/// The head of a response, as the driver of a connection gives it to the codec.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The field lines of the response. The codec leaves out those that it writes itself: `Connection`,
    /// `Transfer-Encoding` and the like, and a `Content-Length` other than `content_length`.
    pub headers: &'a Headers,
    /// The length of the body in bytes, if it is known before the body is sent.
    pub content_length: Option<u64>,
    /// The current date (RFC 9110 section 5.6.7), written if `headers` has none.
    pub date: &'a [u8; 29],
    /// The `Server` field, written if `headers` has none.
    pub server: Option<&'a str>,
    /// The `Alt-Svc` field (RFC 7838), written if `headers` has none.
    pub alt_svc: Option<&'a str>,
}

/// The facts about the fields of a response that a codec needs before it writes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldSummary {
    /// The value of `Content-Length`; `None` if there is none, more than one, or no number.
    pub content_length: Option<u64>,
    /// Whether there is `Content-Length`, valid or not.
    pub has_content_length: bool,
    /// Whether its line can be sent unchanged if the value is the right one.
    pub is_length_line_kept: bool,
    /// Whether there is `Date`.
    pub has_date: bool,
    /// Whether there is `Server`.
    pub has_server: bool,
    /// Whether there is `Alt-Svc`.
    pub has_alt_svc: bool,
    /// Whether there are hop-by-hop fields.
    pub has_connection_fields: bool,
}

impl FieldSummary {
    /// The facts about these lines.
    pub fn of(headers: &Headers) -> Self {
        let mut summary = Self {
            has_date: headers.has(KnownField::Date),
            has_server: headers.has(KnownField::Server),
            has_alt_svc: headers.has(KnownField::AltSvc),
            has_connection_fields: headers.has_any(FieldSet::CONNECTION),
            ..Self::default()
        };
        for value in headers.values_of(KnownField::ContentLength) {
            let is_repeated = std::mem::replace(&mut summary.has_content_length, true);
            summary.content_length = parse_decimal(value).filter(|_| !is_repeated);
            // Leading zeros are allowed, but some recipients read them as octal.
            summary.is_length_line_kept =
                summary.content_length.is_some() && !matches!(value, [b'0', _, ..]);
        }
        summary
    }
}

/// Whether a field is hop-by-hop (RFC 9110 section 7.6.1): only the codec of the connection writes it.
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
