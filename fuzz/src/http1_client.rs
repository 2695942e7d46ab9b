//! Fuzz target of the client's end of HTTP/1.1.

use apus_codec::h1::{
    BodyFraming, ClientConnection, Http1ClientEvent, Http1Error, Http1ResponseHead, OutgoingRequest,
};
use apus_http::{Headers, Method, StatusCode};

use crate::connection::LIMITS;

/// A parsed response, and the interim responses before it.
#[derive(Debug, Default, PartialEq)]
struct ParsedResponse {
    interim: Vec<(StatusCode, Headers)>,
    head: Option<Http1ResponseHead>,
    body: Vec<u8>,
    trailers: Option<Headers>,
    complete: bool,
    error: Option<Http1Error>,
    keeps_alive: bool,
    is_tunnel: bool,
    /// Bytes up to the end of the response.
    consumed: usize,
}

/// A response is independent of the split of the input, has one framing, completes only if it is complete, and
/// stays the same when it is encoded and parsed again.
///
/// The first byte selects the request, the rest is sent by the server before it closes the connection.
pub fn http1_client(data: &[u8]) {
    let Some((choice, input)) = data.split_first() else {
        return;
    };
    let method = match choice % 4 {
        1 => Method::HEAD,
        2 => Method::CONNECT,
        _ => Method::GET,
    };
    let upgrade = (choice % 4 == 3).then_some("x");
    let hear = |input: &[u8], sizes: &[usize]| ParsedResponse::of(&method, upgrade, input, sizes);
    let parsed = hear(input, &[]);
    assert_eq!(parsed, hear(input, &[1]));
    let size = usize::from(*choice);
    assert_eq!(parsed, hear(input, &[size, 1, size / 2]));

    assert!(parsed.interim.len() <= 32);
    assert!(parsed.interim.iter().all(|(status, _)| {
        status.is_informational() && *status != StatusCode::SWITCHING_PROTOCOLS
    }));
    let Some(head) = &parsed.head else {
        assert!(!parsed.complete && parsed.body.is_empty());
        return;
    };
    for name in ["connection", "keep-alive", "te", "transfer-encoding"] {
        assert!(!head.headers.contains(name));
    }
    let length = head.headers.get_str("content-length");
    match head.body {
        BodyFraming::None => assert!(parsed.body.is_empty() && parsed.complete),
        BodyFraming::Length(bytes) => {
            assert_eq!(length.unwrap().trim().parse(), Ok(bytes));
            assert_eq!(parsed.complete, parsed.body.len() as u64 == bytes);
        }
        BodyFraming::Chunked => assert_eq!(length, None),
        BodyFraming::UntilClose => {
            assert_eq!(length, None);
            assert!(!parsed.keeps_alive && parsed.complete);
        }
    }
    assert_eq!(parsed.complete, parsed.error.is_none());
    if !parsed.complete || parsed.is_tunnel {
        return;
    }

    let anew = parsed.anew(head);
    let again = hear(&anew, &[]);
    // The framing fields may have made the head larger than the limit.
    if again.error.is_none() {
        assert_eq!(again.head.as_ref(), Some(head));
        assert_eq!(again.body, parsed.body);
        assert_eq!(again.trailers, parsed.trailers);
    }
}

impl ParsedResponse {
    /// Parses input in pieces of these sizes, repeatedly, and then its end.
    fn of(method: &Method, upgrade: Option<&str>, input: &[u8], sizes: &[usize]) -> Self {
        let mut connection = ClientConnection::new(LIMITS);
        let request = OutgoingRequest {
            method,
            target: if *method == Method::CONNECT {
                "a:1"
            } else {
                "/"
            },
            host: "a",
            headers: &Headers::new(),
            content_length: Some(0),
            upgrade,
            te_trailers: false,
            expects_continue: false,
        };
        connection.send_request(request, &mut Vec::new()).unwrap();
        connection.send_end(None, &mut Vec::new());
        let mut parsed = Self::default();
        let mut sizes = sizes.iter().cycle();
        let mut end = 0;
        while end < input.len() && !parsed.complete && parsed.error.is_none() {
            let size = sizes.next().copied().unwrap_or(input.len()).max(1);
            end = input.len().min(end.saturating_add(size));
            parsed.hear(&mut connection, &input[..end]);
        }
        if !parsed.complete && parsed.error.is_none() {
            match connection.handle_eof() {
                Ok(event) => {
                    assert_eq!(event, Http1ClientEvent::End(None));
                    parsed.complete = true;
                }
                Err(error) => parsed.error = Some(error),
            }
        }
        if parsed.error.is_some() {
            // The number of consumed bytes depends on the split.
            parsed.consumed = 0;
        }
        assert!(parsed.complete || !connection.keeps_alive());
        parsed
    }

    fn hear(&mut self, connection: &mut ClientConnection, input: &[u8]) {
        loop {
            let rest = &input[self.consumed..];
            let (consumed, event) = match connection.handle_input(rest) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(connection.handle_input(b""), Err(error));
                    self.error = Some(error);
                    return;
                }
            };
            self.consumed += consumed;
            match event {
                Http1ClientEvent::Incomplete => return,
                Http1ClientEvent::Informational(status, headers) => {
                    self.interim.push((status, headers));
                }
                Http1ClientEvent::Response(head) => assert_eq!(self.head.replace(head), None),
                Http1ClientEvent::Data(range) => {
                    assert!(!range.is_empty());
                    self.body.extend_from_slice(&rest[range]);
                }
                Http1ClientEvent::End(trailers) => self.trailers = trailers,
            }
            if self.head.is_some() && connection.response_body_done() {
                self.complete = true;
                self.keeps_alive = connection.keeps_alive();
                self.is_tunnel = connection.is_tunnel();
                // Bytes after the response belong to no request.
                if self.consumed < input.len() && !connection.is_tunnel() {
                    let unexpected = connection.handle_input(&input[self.consumed..]);
                    assert_eq!(unexpected, Err(Http1Error::UnexpectedResponse));
                }
                return;
            }
        }
    }

    /// Encodes the parsed response again.
    fn anew(&self, head: &Http1ResponseHead) -> Vec<u8> {
        let mut out = format!("{:?} {} \r\n", head.version, head.status.as_u16()).into_bytes();
        out.extend_from_slice(head.headers.wire());
        if head.body != BodyFraming::Chunked {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&self.body);
            return out;
        }
        out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        for piece in self.body.chunks(7) {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n");
        if let Some(trailers) = &self.trailers {
            out.extend_from_slice(trailers.wire());
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}
