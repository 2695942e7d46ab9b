//! The head of a response as bytes (RFC 9112 sections 4 and 6, RFC 9110 section 6.6.1).

use http::StatusCode;

use crate::response_head::{Survey, decimal, is_connection_field};
use crate::{Headers, ResponseHead};

/// How the content of a response has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no content, as for HEAD and 304: send no data.
    None,
    /// Exactly so many bytes. If they cannot be had, the connection has to be cut.
    Length(u64),
    /// Each piece between [`send_chunk_start`](super::ServerConnection::send_chunk_start) and
    /// [`send_chunk_end`](super::ServerConnection::send_chunk_end).
    Chunked,
    /// The bytes as they are, then the end of the connection: the client speaks HTTP/1.0.
    UntilClose,
}

/// What the connection decided for a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framed {
    pub(super) framing: BodyFraming,
    /// The value of `Content-Length`.
    pub(super) content_length: Option<u64>,
    /// The line of `Connection`, with its CRLF.
    pub(super) connection: &'static [u8],
    /// Whether the `Upgrade` field is sent on (RFC 9110 section 7.8).
    pub(super) upgrade: bool,
}

/// Appends a final response's head.
pub(super) fn head(head: &ResponseHead<'_>, survey: Survey, framed: Framed, out: &mut Vec<u8>) {
    let wire = head.headers.wire();
    out.reserve(wire.len().saturating_add(192));
    status_line(head.status, out);
    let keeps_length = survey.is_length_line_kept && survey.content_length == framed.content_length;
    if !survey.has_connection_fields && (keeps_length || !survey.has_content_length) {
        out.extend_from_slice(wire);
    } else {
        for (name, _, line) in head.headers.wire_lines() {
            let kept = match name {
                b"content-length" => keeps_length,
                b"upgrade" => framed.upgrade,
                name => !is_connection_field(name),
            };
            if kept {
                out.extend_from_slice(line);
            }
        }
    }
    if let Some(length) = framed.content_length.filter(|_| !keeps_length) {
        out.extend_from_slice(b"content-length: ");
        decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }
    if framed.framing == BodyFraming::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(framed.connection);
    if let Some(server) = head.server.filter(|_| !survey.has_server) {
        out.extend_from_slice(b"server: ");
        out.extend_from_slice(server.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !survey.has_date {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(head.date);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an interim response (RFC 9110 section 15.2).
pub(super) fn informational(status: StatusCode, headers: &Headers, out: &mut Vec<u8>) {
    status_line(status, out);
    for (name, _, line) in headers.wire_lines() {
        if !is_connection_field(name) && name != b"content-length" {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn status_line(status: StatusCode, out: &mut Vec<u8>) {
    let usual: &[u8] = match status.as_u16() {
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
            // The reason may be empty, the space before it not (RFC 9112 section 4).
            out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
            b"\r\n"
        }
    };
    out.extend_from_slice(usual);
}
