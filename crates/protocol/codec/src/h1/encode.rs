//! Serializes the heads of requests and responses (RFC 9112 sections 3, 4 and 6, RFC 9110 section 6.6.1).

use http::{Method, StatusCode};

use super::BodyFraming;
use super::outgoing_request::OutgoingRequest;
use apus_http::response_head::decimal;
use apus_http::{FieldSet, FieldSummary, Headers, KnownField, ResponseHead};

/// The framing and connection fields of a response, as the connection decided them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseFraming {
    pub(super) body: BodyFraming,
    /// The value of `Content-Length`.
    pub(super) content_length: Option<u64>,
    /// The `Connection` field line with its CRLF, or nothing.
    pub(super) connection: &'static [u8],
    /// Whether the `Upgrade` field is sent (RFC 9110 section 7.8).
    pub(super) upgrade: bool,
}

/// Appends the head of a final response.
pub(super) fn head(
    head: &ResponseHead<'_>,
    summary: FieldSummary,
    framing: ResponseFraming,
    out: &mut Vec<u8>,
) {
    let wire = head.headers.wire();
    // One allocation: status line, date, server, length and connection fields take less than that.
    out.reserve(wire.len().saturating_add(192));
    status_line(head.status, out);
    let keeps_length =
        summary.is_length_line_kept && summary.content_length == framing.content_length;
    // The usual fields are copied as one block, as they are stored in the form of the wire.
    if !summary.has_connection_fields && (keeps_length || !summary.has_content_length) {
        out.extend_from_slice(wire);
    } else {
        let mut left_out = FieldSet::CONNECTION;
        if framing.upgrade {
            left_out = left_out.without(KnownField::Upgrade);
        }
        if !keeps_length {
            left_out = left_out.with(KnownField::ContentLength);
        }
        head.headers.write_without(left_out, out);
    }
    if let Some(length) = framing.content_length.filter(|_| !keeps_length) {
        content_length(length, out);
    }
    if framing.body == BodyFraming::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(framing.connection);
    if let Some(server) = head.server.filter(|_| !summary.has_server) {
        out.extend_from_slice(b"server: ");
        out.extend_from_slice(server.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if let Some(alt_svc) = head.alt_svc.filter(|_| !summary.has_alt_svc) {
        out.extend_from_slice(b"alt-svc: ");
        out.extend_from_slice(alt_svc.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if summary.has_date {
        out.extend_from_slice(b"\r\n");
    } else {
        out.extend_from_slice(&date_and_end(head.date));
    }
}

/// The `Date` field line and the empty line, which are appended at once.
fn date_and_end(date: &[u8; 29]) -> [u8; 39] {
    let mut lines = *b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
    if let Some(value) = lines.get_mut(6..35) {
        value.copy_from_slice(date);
    }
    lines
}

/// Appends the head of an interim response (RFC 9110 section 15.2).
pub(super) fn informational(status: StatusCode, headers: &Headers, out: &mut Vec<u8>) {
    status_line(status, out);
    let left_out = FieldSet::CONNECTION.with(KnownField::ContentLength);
    headers.write_without(left_out, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a request.
pub(super) fn request(
    request: &OutgoingRequest<'_>,
    framing: BodyFraming,
    closes: bool,
    out: &mut Vec<u8>,
) {
    let wire = request.headers.wire();
    let around = request.target.len().saturating_add(request.host.len());
    out.reserve(wire.len().saturating_add(around).saturating_add(192));
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(request.target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    out.extend_from_slice(request.host.as_bytes());
    out.extend_from_slice(b"\r\n");
    request
        .headers
        .write_without(FieldSet::REQUEST_FRAMING, out);
    match framing {
        BodyFraming::Length(length) => content_length(length, out),
        BodyFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        // Without a length, servers may wait for a body if the method usually has one (RFC 9110
        // section 8.6).
        _ if !has_no_body_semantics(request.method) => content_length(0, out),
        _ => {}
    }
    if request.expects_continue && framing != BodyFraming::None {
        out.extend_from_slice(b"expect: 100-continue\r\n");
    }
    if request.te_trailers {
        out.extend_from_slice(b"te: trailers\r\n");
    }
    if let Some(offer) = request.upgrade {
        out.extend_from_slice(b"upgrade: ");
        out.extend_from_slice(offer.trim_ascii().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    // `TE` and `Upgrade` are for the next hop only, and have to be named here (RFC 9110 sections 7.8 and 10.1.4).
    let connection: &[u8] = match (closes, request.upgrade.is_some(), request.te_trailers) {
        (false, false, false) => b"\r\n",
        (false, false, true) => b"connection: te\r\n\r\n",
        (false, true, false) => b"connection: upgrade\r\n\r\n",
        (false, true, true) => b"connection: upgrade, te\r\n\r\n",
        (true, false, false) => b"connection: close\r\n\r\n",
        (true, false, true) => b"connection: close, te\r\n\r\n",
        (true, true, false) => b"connection: close, upgrade\r\n\r\n",
        (true, true, true) => b"connection: close, upgrade, te\r\n\r\n",
    };
    out.extend_from_slice(connection);
}

fn content_length(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"content-length: ");
    decimal(length, out);
    out.extend_from_slice(b"\r\n");
}

/// Whether a body has no defined meaning for the method.
fn has_no_body_semantics(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET
            | Method::HEAD
            | Method::DELETE
            | Method::OPTIONS
            | Method::TRACE
            | Method::CONNECT
    )
}

fn status_line(status: StatusCode, out: &mut Vec<u8>) {
    let line: &[u8] = match status.as_u16() {
        101 => b"HTTP/1.1 101 Switching Protocols\r\n",
        200 => b"HTTP/1.1 200 OK\r\n",
        201 => b"HTTP/1.1 201 Created\r\n",
        204 => b"HTTP/1.1 204 No Content\r\n",
        206 => b"HTTP/1.1 206 Partial Content\r\n",
        301 => b"HTTP/1.1 301 Moved Permanently\r\n",
        302 => b"HTTP/1.1 302 Found\r\n",
        304 => b"HTTP/1.1 304 Not Modified\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        413 => b"HTTP/1.1 413 Content Too Large\r\n",
        500 => b"HTTP/1.1 500 Internal Server Error\r\n",
        502 => b"HTTP/1.1 502 Bad Gateway\r\n",
        503 => b"HTTP/1.1 503 Service Unavailable\r\n",
        _ => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(status.as_str().as_bytes());
            out.push(b' ');
            // The reason phrase may be empty, but the space before it is required (RFC 9112
            // section 4).
            out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
            b"\r\n"
        }
    };
    out.extend_from_slice(line);
}
