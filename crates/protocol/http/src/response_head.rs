//! The head of a response, as the driver of a connection gives it to the codec.

use http::StatusCode;

use crate::Headers;

/// The head of a response, as the driver of a connection gives it to the codec.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The field lines of the response. The codec leaves out the lines that it writes itself, such as
    /// `Connection` and `Transfer-Encoding`, and a `Content-Length` other than `content_length`.
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
