//! The head of a request to send (RFC 9113 section 8.3.1, RFC 9114 section 4.3.1).

use http::Method;

use super::RequestKind;
use apus_http::grammar::parse_decimal;
use apus_http::response_head::{decimal, is_connection_field};
use apus_http::{Head, Headers};

/// The head of a request to send.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method, which is ignored for an extended CONNECT.
    pub method: &'a Method,
    /// `https` or `http`.
    pub scheme: &'a str,
    /// The value of `:authority`.
    pub authority: Option<&'a str>,
    /// The value of `:path`: the target in origin-form, or `*`.
    pub path: &'a str,
    /// The value of `:protocol`, which makes this an extended CONNECT (RFC 8441, RFC 9220).
    pub protocol: Option<&'a str>,
    /// The field lines. Fields that the other members describe are skipped (`Host`, `Content-Length`,
    /// `Expect`, `TE`), and so are connection-specific fields.
    pub headers: &'a Headers,
    /// Bytes of the body, if known and to be announced.
    pub content_length: Option<u64>,
    /// Whether trailer fields are accepted.
    pub te_trailers: bool,
    /// Whether the body waits for `100 Continue`.
    pub expects_continue: bool,
}

impl<'a> OutgoingRequest<'a> {
    /// The request with this head, which is not an extended CONNECT.
    pub fn of(head: &'a Head, scheme: &'a str) -> Self {
        let headers = &head.headers;
        let is = |name, value: &str| {
            headers
                .get_str(name)
                .is_some_and(|field| field.eq_ignore_ascii_case(value))
        };
        Self {
            method: &head.method,
            scheme,
            authority: head.target.authority().or_else(|| headers.get_str("host")),
            path: head.target.path_and_query(),
            protocol: None,
            headers,
            content_length: headers.get("content-length").and_then(parse_decimal),
            te_trailers: head.hop_by_hop.accepts_trailers || is("te", "trailers"),
            expects_continue: is("expect", "100-continue"),
        }
    }
    /// What the response depends on.
    pub fn kind(&self) -> RequestKind {
        if self.protocol.is_some() {
            RequestKind::ExtendedConnect
        } else {
            RequestKind::of(self.method)
        }
    }

    /// Passes the field lines of the head in order, each as name, value, and whether it must be in no table: first
    /// the pseudo-header fields.
    #[inline]
    pub fn for_each_line(&self, mut line: impl FnMut((&[u8], &[u8], bool))) {
        let kind = self.kind();
        let method = match kind {
            RequestKind::ExtendedConnect => &Method::CONNECT,
            _ => self.method,
        };
        // The pseudo-header fields come first (RFC 9113 section 8.3), and their values are mostly in the static table.
        line((b":method", method.as_str().as_bytes(), false));
        if kind != RequestKind::Connect {
            line((b":scheme", self.scheme.as_bytes(), false));
            line((b":path", self.path.as_bytes(), false));
        }
        if let Some(authority) = self.authority {
            line((b":authority", authority.as_bytes(), false));
        }
        if let Some(protocol) = self.protocol {
            line((b":protocol", protocol.as_bytes(), false));
        }
        for field in self.headers.hpack_lines() {
            let is_left_out = matches!(field.0, b"host" | b"content-length" | b"expect")
                || is_connection_field(field.0);
            if !is_left_out {
                line(field);
            }
        }
        if let Some(length) = self.content_length {
            let mut digits = Vec::with_capacity(20);
            decimal(length, &mut digits);
            line((b"content-length", &digits, false));
        }
        if self.te_trailers {
            line((b"te", b"trailers", false));
        }
        if self.expects_continue {
            line((b"expect", b"100-continue", false));
        }
    }
}
