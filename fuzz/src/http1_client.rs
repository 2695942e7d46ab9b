//! The client's side of HTTP/1.1, fed whatever a server may say.

use apus_codec::h1::{
    BodyFraming, ClientConnection, ClientEvent, Http1Error, Http1ResponseHead, OutgoingRequest,
};
use apus_http::{Headers, Method, StatusCode};

use crate::connection::LIMITS;

/// What a server said, as it was understood.
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

/// A response reads the same however it is split, is framed in one way only, ends in order only if it
/// is whole, and says the same when it is written anew from its parsed form.
///
/// The first byte chooses the request, the rest is what the server says before it closes.
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
    // The fields that frame it may have made the head larger than the limit.
    if again.error.is_none() {
        assert_eq!(again.head.as_ref(), Some(head));
        assert_eq!(again.body, parsed.body);
        assert_eq!(again.trailers, parsed.trailers);
    }
}

impl ParsedResponse {
    /// Of input that comes in pieces of these many bytes, over and over, and then ends.
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
                    assert_eq!(event, ClientEvent::End(None));
                    parsed.complete = true;
                }
                Err(error) => parsed.error = Some(error),
            }
        }
        if parsed.error.is_some() {
            // How far it was read depends on the pieces.
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
                ClientEvent::Incomplete => return,
                ClientEvent::Informational(status, headers) => {
                    self.interim.push((status, headers));
                }
                ClientEvent::Response(head) => assert_eq!(self.head.replace(head), None),
                ClientEvent::Data(range) => {
                    assert!(!range.is_empty());
                    self.body.extend_from_slice(&rest[range]);
                }
                ClientEvent::End(trailers) => self.trailers = trailers,
            }
            if self.head.is_some() && connection.response_body_done() {
                self.complete = true;
                self.keeps_alive = connection.keeps_alive();
                self.is_tunnel = connection.is_tunnel();
                // What stands behind it is nobody's response.
                if self.consumed < input.len() && !connection.is_tunnel() {
                    let unasked = connection.handle_input(&input[self.consumed..]);
                    assert_eq!(unasked, Err(Http1Error::UnexpectedResponse));
                }
                return;
            }
        }
    }

    /// The response written from what was understood of it.
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
