//! Fuzz targets of the translation between HTTP/1.1 and HTTP/2: a translated request is parsed as the same single request.

use apus_codec::h1::{self, Http1Error};
use apus_codec::h2::{Http2Codec, Http2Config, Http2Event, OutgoingRequest, PREFACE};
use apus_http::{Head, Headers, Method};

use crate::connection::{LIMITS, Transcript};

/// The body of HTTP/2 requests.
const BODY: &[u8] = b"GET /smuggled HTTP/1.1\r\nhost: evil\r\n\r\n";

/// The limits of HTTP/1.1 and more, since HTTP/2 counts more for each field line.
const ROOMY: Http2Config = Http2Config {
    max_concurrent_streams: 64,
    max_frame_size: 16_384,
    target_bytes: 4096,
    head_bytes: 16_384,
    fields: 100,
    receive_window: 1 << 20,
    stream_receive_window: None,
    extended_connect: true,
};

/// An HTTP/2 request: a field on each line, and the trailer section after an empty line. If it is accepted, it
/// can be written as HTTP/1.1, and is one request with the same fields and body.
pub fn http2_to_http1(data: &[u8]) {
    let (head, trailers) = match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&data[..at], Some(&data[at + 2..])),
        None => (data, None),
    };
    let mut input = PREFACE.to_vec();
    frame(0x4, 0, b"", &mut input);
    frame(0x1, 0x4, &block(head), &mut input);
    frame(0x0, u8::from(trailers.is_none()), BODY, &mut input);
    if let Some(trailers) = trailers {
        frame(0x1, 0x5, &block(trailers), &mut input);
    }
    let config = Http2Config {
        target_bytes: LIMITS.target_bytes,
        head_bytes: LIMITS.head_bytes,
        fields: LIMITS.fields,
        ..ROOMY
    };
    let mut server = Http2Codec::server(config, &mut Vec::new());
    let Some(Message {
        head,
        body,
        trailers,
    }) = message(&mut server, &input)
    else {
        return;
    };
    if head.method == Method::CONNECT || head.headers.contains("upgrade") {
        // Tunnels have no body.
        return;
    }
    assert_eq!(body, BODY);
    let request = h1::OutgoingRequest {
        method: &head.method,
        target: head.target.path_and_query(),
        host: head.headers.get_str("host").expect("every request has one"),
        headers: &head.headers,
        content_length: None,
        upgrade: None,
        te_trailers: head.headers.contains("te"),
        expects_continue: false,
    };
    let mut client = h1::ClientConnection::new(LIMITS);
    let mut out = Vec::new();
    client
        .send_request(request, &mut out)
        .expect("what HTTP/2 takes can be sent");
    client.send_chunk_start(body.len(), &mut out);
    out.extend_from_slice(&body);
    client.send_chunk_end(&mut out);
    client.send_end(trailers.as_ref(), &mut out);
    let read = Transcript::at_once(&out);
    if matches!(
        read.error,
        Some(Http1Error::TooManyFields | Http1Error::HeadTooLarge)
    ) {
        // The added fields made the head larger.
        return;
    }
    assert_eq!(read.error, None);
    assert_eq!((read.requests.len(), read.consumed), (1, out.len()));
    let request = &read.requests[0];
    assert!(request.complete);
    let again = &request.head.head;
    assert_eq!(again.method, head.method);
    assert_eq!(again.target.as_str(), head.target.path_and_query());
    assert_eq!(again.headers.get("host"), head.headers.get("host"));
    assert_eq!(end_to_end(&again.headers), end_to_end(&head.headers));
    assert_eq!(request.body, body);
    assert_eq!(request.trailers, trailers);
}

/// The bytes of an HTTP/1.1 client. Each accepted request can be written as HTTP/2, and is well-formed and the
/// same.
pub fn http1_to_http2(data: &[u8]) {
    for read in Transcript::at_once(data).requests {
        let head = &read.head.head;
        let host = head.headers.get("host").unwrap_or_default();
        if !read.complete || head.method == Method::CONNECT || host.is_empty() {
            continue;
        }
        let mut out = Vec::new();
        let mut client = Http2Codec::client(ROOMY, &mut out);
        let mut hello = Vec::new();
        frame(0x4, 0, b"", &mut hello);
        let (_, event) = client
            .handle_input(&hello, &mut out)
            .expect("these are settings");
        assert!(matches!(event, Http2Event::Incomplete));
        let outgoing = OutgoingRequest::of(head, "https");
        let is_whole = read.body.is_empty() && read.trailers.is_none();
        let stream = client
            .send_request(outgoing, is_whole, &mut out)
            .expect("there is room for a stream");
        if !read.body.is_empty() {
            client.want_send(stream);
            let (_, most) = client.next_send().expect("the window is open");
            assert!(read.body.len() <= most, "inputs are short");
            let is_last = read.trailers.is_none();
            client
                .send_data(stream, read.body.len(), is_last, &mut out)
                .expect("a window of some size");
            out.extend_from_slice(&read.body);
        }
        if let Some(trailers) = &read.trailers {
            client.send_trailers(stream, trailers, &mut out);
        }
        let mut server = Http2Codec::server(ROOMY, &mut Vec::new());
        let again = message(&mut server, &out).expect("what HTTP/1.1 takes is well-formed");
        assert_eq!(again.head.method, head.method);
        assert_eq!(again.head.target.as_str(), head.target.path_and_query());
        assert_eq!(again.head.headers.get("host"), head.headers.get("host"));
        assert_eq!(end_to_end(&again.head.headers), end_to_end(&head.headers));
        assert_eq!(again.body, read.body);
        assert_eq!(again.trailers, read.trailers);
    }
}

/// A request with its body and trailers.
struct Message {
    head: Box<Head>,
    body: Vec<u8>,
    trailers: Option<Headers>,
}

/// The request of a client; `None` if it is rejected or incomplete.
fn message(server: &mut Http2Codec, input: &[u8]) -> Option<Message> {
    let mut message = None;
    let (mut start, mut out) = (0, Vec::new());
    loop {
        let rest = &input[start..];
        let (consumed, event) = server.handle_input(rest, &mut out).ok()?;
        start += consumed;
        match event {
            Http2Event::Request(request) => {
                assert!(message.is_none(), "one request became two");
                let whole = Message {
                    head: request.head,
                    body: Vec::new(),
                    trailers: None,
                };
                if request.end {
                    return Some(whole);
                }
                message = Some(whole);
            }
            Http2Event::Data { range, end, .. } => {
                let message = message.as_mut()?;
                message.body.extend_from_slice(&rest[range]);
                if end {
                    break;
                }
            }
            Http2Event::Trailers { trailers, .. } => {
                message.as_mut()?.trailers = Some(*trailers).filter(|lines| !lines.is_empty());
                break;
            }
            _ => return None,
        }
    }
    message
}

/// The names and values of the fields that a proxy forwards, with cookies as one field at the end.
fn end_to_end(headers: &Headers) -> Vec<(String, Vec<u8>)> {
    let is_passed_on = |name: &str| {
        !matches!(
            name,
            "host"
                | "content-length"
                | "expect"
                | "connection"
                | "keep-alive"
                | "proxy-connection"
                | "te"
                | "transfer-encoding"
                | "upgrade"
                | "cookie"
        )
    };
    let mut fields: Vec<_> = headers
        .iter()
        .filter(|(name, _)| is_passed_on(name))
        .map(|(name, value)| (name.to_owned(), value.to_vec()))
        .collect();
    let cookies: Vec<_> = headers.get_all("cookie").collect();
    fields.push(("cookie".to_owned(), cookies.join(&b"; "[..])));
    fields
}

/// Appends a frame of stream 1, or of the connection if it is SETTINGS.
fn frame(kind: u8, flags: u8, payload: &[u8], out: &mut Vec<u8>) {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&u32::from(kind != 0x4).to_be_bytes());
    out.extend_from_slice(payload);
}

/// A field block of the lines `name: value`. The colon of a pseudo-header field belongs to its name.
fn block(lines: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let colon = line.iter().skip(1).position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.map_or(line.len(), |at| at + 1));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        block.push(0);
        for text in [name, value] {
            // Longer ones would need more than one byte for their length.
            let text = &text[..text.len().min(126)];
            block.push(text.len() as u8);
            block.extend_from_slice(text);
        }
    }
    block
}
