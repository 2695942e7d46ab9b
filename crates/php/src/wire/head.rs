//! The header block of an answer: what PHP's `headers_list()` gives, a line each.

use apus_http::{Headers, StatusCode};

/// The fields of a block, and the status that a `Status` line among them sets (RFC 3875 section
/// 6.3.3), as PHP scripts write it for CGI. A line that is no field is left out: PHP lets a script send
/// any text, and one bad line is no reason to lose an answer.
pub(super) fn parse(block: &[u8]) -> (Headers, Option<StatusCode>) {
    let mut headers = Headers::with_capacity(block.len());
    let mut status = None;
    for line in block.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"status") {
            let code = value.trim_ascii().get(..3).unwrap_or_default();
            status = StatusCode::from_bytes(code)
                .ok()
                .filter(|code| !code.is_informational())
                .or(status);
            continue;
        }
        let _ = headers.try_append(name, value);
    }
    (headers, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_and_leaves_out_what_is_none() {
        let (headers, status) = parse(
            b"X-Powered-By: PHP\r\nnonsense\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n: x\r\nBad Name: y\r\n",
        );
        assert_eq!(status, None);
        assert_eq!(
            headers.wire(),
            b"x-powered-by: PHP\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n"
        );
    }

    #[test]
    fn a_status_line_sets_the_status() {
        let (headers, status) = parse(b"Status: 404 Not Found\r\nA: b\r\n");
        assert_eq!(status, Some(StatusCode::NOT_FOUND));
        assert_eq!(headers.wire(), b"a: b\r\n");
        assert_eq!(parse(b"Status: 103\r\n").1, None);
        assert_eq!(parse(b"Status: x\r\n").1, None);
    }
}
