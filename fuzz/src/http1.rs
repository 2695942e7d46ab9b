//! Fuzz targets of the server's end of HTTP/1.1.

use apus_codec::h1::{
    BodyFraming, Http1RequestHead, Http1ServerEvent, RequestFraming, ServerConnection,
};
use apus_http::{Headers, Method, ResponseHead, StatusCode, Version};

use crate::connection::{DATE, LIMITS, Read, Transcript};

/// Parsed requests are independent of the split of the input, have one framing, and stay the same when they
/// are encoded and parsed again.
pub fn request_head(data: &[u8]) {
    let transcript = Transcript::however_split(data, data.first().copied().unwrap_or(2).into());
    for Read { head, .. } in &transcript.requests {
        let count = |name: &str| head.head.headers.get_all(name).count();
        let framed = count("content-length");
        assert!(framed <= 1 && count("host") <= 1);
        for name in [
            "connection",
            "keep-alive",
            "te",
            "transfer-encoding",
            "upgrade",
        ] {
            assert_eq!(count(name), 0, "{name}");
        }
        assert!(head.head.version == Version::HTTP_10 || count("host") == 1);
        match head.body {
            RequestFraming::None => assert!(
                framed == 0
                    || head.head.headers.get_str("content-length").unwrap().parse() == Ok(0)
            ),
            RequestFraming::Length(length) => assert_eq!(
                head.head.headers.get_str("content-length").unwrap().parse(),
                Ok(length)
            ),
            RequestFraming::Chunked => {
                assert_eq!((head.head.version, framed), (Version::HTTP_11, 0));
            }
        }
        let first_line = format!(
            "{} {} {:?}\r\n",
            head.head.method, head.head.target, head.head.version
        );
        let hop_by_hop = hop_by_hop_lines(head);
        let parts = [
            first_line.as_bytes(),
            head.head.headers.wire(),
            hop_by_hop.as_bytes(),
            b"\r\n",
        ];
        let anew = parts.concat();
        let ends = |at: usize| anew[..at].ends_with(b"\r");
        assert!(memchr_all(b'\n', &anew).all(ends));
        let again = Transcript::at_once(&anew);
        // The host of an absolute target may have made the head larger than the limit.
        if again.error.is_none() {
            assert_eq!(again.consumed, anew.len());
            let again = &again.requests[0].head;
            assert_eq!(hop_by_hop_lines(again), hop_by_hop);
            assert_eq!(again.head.headers, head.head.headers);
            assert_eq!(
                (&again.head.method, &again.head.target, again.head.version),
                (&head.head.method, &head.head.target, head.head.version)
            );
            assert_eq!(
                (again.body, again.upgrade, again.expects_continue),
                (head.body, head.upgrade, head.expects_continue)
            );
        }
    }
}

/// The connection-specific field lines, which are not among the message's fields.
fn hop_by_hop_lines(head: &Http1RequestHead) -> String {
    let mut lines = String::new();
    if head.body == RequestFraming::Chunked {
        lines += "transfer-encoding: chunked\r\n";
    }
    if let Some(offered) = &head.head.hop_by_hop.upgrade {
        lines += &format!("connection: upgrade\r\nupgrade: {offered}\r\n");
    }
    if head.head.hop_by_hop.accepts_trailers {
        lines += "te: trailers\r\n";
    }
    lines
}

fn memchr_all(byte: u8, data: &[u8]) -> impl Iterator<Item = usize> {
    data.iter()
        .enumerate()
        .filter(move |(_, other)| **other == byte)
        .map(|(at, _)| at)
}

/// A chunked body is independent of the split of the input, equals the result of a simple parser, and stays
/// the same when it is encoded and parsed again.
pub fn chunked(data: &[u8]) {
    let head =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let transcript = Transcript::however_split(
        &[head, data].concat(),
        data.first().copied().unwrap_or(2).into(),
    );
    let read = &transcript.requests[0];
    if !read.complete {
        return;
    }
    let (body, end) = plain(data).expect("what was taken is in the grammar");
    assert_eq!(read.body, body);
    assert_eq!(transcript.consumed, head.len() + end);

    let mut anew = head.to_vec();
    let mut writer = after_get();
    let no_fields = Headers::new();
    writer.send_head(response(StatusCode::OK, &no_fields, None), &mut Vec::new());
    for piece in read.body.chunks(7) {
        writer.send_chunk_start(piece.len(), &mut anew);
        anew.extend_from_slice(piece);
        writer.send_chunk_end(&mut anew);
    }
    writer.send_end(read.trailers.as_ref(), &mut anew);
    let again = Transcript::at_once(&anew);
    assert_eq!(again.error, None);
    assert_eq!(again.consumed, anew.len());
    assert_eq!(again.requests[0].body, read.body);
    assert_eq!(again.requests[0].trailers, read.trailers);
}

/// The body of complete chunked data, and the position of its end.
fn plain(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = |from: usize| {
        let end = data
            .get(from..)?
            .windows(2)
            .position(|pair| pair == b"\r\n")?;
        Some((&data[from..from + end], from + end + 2))
    };
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let (size, after) = line(at)?;
        let digits = size.split(|byte| *byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        at = after;
        if size == 0 {
            break;
        }
        body.extend_from_slice(data.get(at..at + size)?);
        at += size;
        if line(at)? != (b"", at + 2) {
            return None;
        }
        at += 2;
    }
    loop {
        let (field, after) = line(at)?;
        at = after;
        if field.is_empty() {
            return Some((body, at));
        }
    }
}

/// The head of a response has one framing, which is the returned one, whatever its fields are.
///
/// The data is method and status, then the length, then field lines.
pub fn response_head(data: &[u8]) {
    let [choice, status, length, fields @ ..] = data else {
        return;
    };
    let request = match choice % 5 {
        0 => "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        1 => "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        2 => "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        3 => "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
        _ => "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    };
    let status = StatusCode::from_u16(100 + u16::from(*status) * 2).unwrap();
    let mut headers = Headers::new();
    for line in fields.split(|byte| *byte == b'\n').take(50) {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        // Rejected fields are omitted.
        let _ = headers.try_append(name, value.get(1..).unwrap_or_default());
    }
    let content_length = Some(u64::from(*length)).filter(|length| *length < 200);

    let mut connection = after(request);
    let mut out = Vec::new();
    let framing = connection.send_head(response(status, &headers, content_length), &mut out);

    let mut room = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut room);
    assert_eq!(
        parsed.parse(&out),
        Ok(httparse::Status::Complete(out.len()))
    );
    let values = |name: &str| -> Vec<&[u8]> {
        let of_name = parsed.headers.iter().filter(|field| field.name == name);
        of_name.map(|field| field.value).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1);
    match framing {
        BodyFraming::Length(length) => {
            assert_eq!(lengths, [length.to_string().as_bytes()]);
            assert_eq!(Some(length), content_length);
        }
        BodyFraming::Chunked => assert_eq!(codings, [b"chunked"]),
        BodyFraming::UntilClose => assert!(lengths.is_empty() && codings.is_empty()),
        BodyFraming::None => assert!(codings.is_empty()),
    }
    if connection.is_tunnel() {
        assert!(lengths.is_empty());
    }
    assert!(values("connection").len() <= 1);
    let closes = values("connection")
        .iter()
        .any(|value| value.starts_with(b"close"));
    assert_eq!(closes, !connection.keeps_alive() && !connection.is_tunnel());
    assert!(values("keep-alive").is_empty() && values("te").is_empty());
    assert!(!values("date").is_empty());
}

fn response(
    status: StatusCode,
    headers: &Headers,
    content_length: Option<u64>,
) -> ResponseHead<'_> {
    ResponseHead {
        status,
        headers,
        content_length,
        date: DATE,
        server: None,
        alt_svc: None,
    }
}

fn after_get() -> ServerConnection {
    after("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn after(request: &str) -> ServerConnection {
    let mut connection = ServerConnection::new(LIMITS);
    let found = connection.handle_input(request.as_bytes());
    let Ok((_, Http1ServerEvent::Request(head))) = found else {
        panic!("{found:?}");
    };
    assert!(head.head.method != Method::POST);
    connection
}
