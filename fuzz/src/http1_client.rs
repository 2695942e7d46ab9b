//! The client's side of HTTP/1.1, fed whatever a server may say.

use apus_codec::h1::{
    ClientConnection, ClientEvent, OutgoingRequest, ProtocolError, ResponseContent, ResponseHead,
};
use apus_http::{Headers, Method, StatusCode};

use crate::connection::LIMITS;

/// What a server said, as it was understood.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    interim: Vec<(StatusCode, Headers)>,
    head: Option<ResponseHead>,
    content: Vec<u8>,
    trailers: Option<Headers>,
    complete: bool,
    error: Option<ProtocolError>,
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
    let hear = |input: &[u8], sizes: &[usize]| Heard::of(&method, upgrade, input, sizes);
    let heard = hear(input, &[]);
    assert_eq!(heard, hear(input, &[1]));
    let size = usize::from(*choice);
    assert_eq!(heard, hear(input, &[size, 1, size / 2]));

    assert!(heard.interim.len() <= 32);
    assert!(heard.interim.iter().all(|(status, _)| {
        status.is_informational() && *status != StatusCode::SWITCHING_PROTOCOLS
    }));
    let Some(head) = &heard.head else {
        assert!(!heard.complete && heard.content.is_empty());
        return;
    };
    for name in ["connection", "keep-alive", "te", "transfer-encoding"] {
        assert!(!head.headers.contains(name));
    }
    let length = head.headers.get_str("content-length");
    match head.content {
        ResponseContent::None => assert!(heard.content.is_empty() && heard.complete),
        ResponseContent::Length(bytes) => {
            assert_eq!(length.unwrap().trim().parse(), Ok(bytes));
            assert_eq!(heard.complete, heard.content.len() as u64 == bytes);
        }
        ResponseContent::Chunked => assert_eq!(length, None),
        ResponseContent::UntilClose => {
            assert_eq!(length, None);
            assert!(!heard.keeps_alive && heard.complete);
        }
    }
    assert_eq!(heard.complete, heard.error.is_none());
    if !heard.complete || heard.is_tunnel {
        return;
    }

    let anew = heard.anew(head);
    let again = hear(&anew, &[]);
    // The fields that frame it may have made the head larger than the limit.
    if again.error.is_none() {
        assert_eq!(again.head.as_ref(), Some(head));
        assert_eq!(again.content, heard.content);
        assert_eq!(again.trailers, heard.trailers);
    }
}

impl Heard {
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
        let mut heard = Self::default();
        let mut sizes = sizes.iter().cycle();
        let mut end = 0;
        while end < input.len() && !heard.complete && heard.error.is_none() {
            let size = sizes.next().copied().unwrap_or(input.len()).max(1);
            end = input.len().min(end.saturating_add(size));
            heard.hear(&mut connection, &input[..end]);
        }
        if !heard.complete && heard.error.is_none() {
            match connection.handle_eof() {
                Ok(event) => {
                    assert_eq!(event, ClientEvent::End(None));
                    heard.complete = true;
                }
                Err(error) => heard.error = Some(error),
            }
        }
        if heard.error.is_some() {
            // How far it was read depends on the pieces.
            heard.consumed = 0;
        }
        assert!(heard.complete || !connection.keeps_alive());
        heard
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
                    self.content.extend_from_slice(&rest[range]);
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
                    assert_eq!(unasked, Err(ProtocolError::UnaskedResponse));
                }
                return;
            }
        }
    }

    /// The response written from what was understood of it.
    fn anew(&self, head: &ResponseHead) -> Vec<u8> {
        let mut out = format!("{:?} {} \r\n", head.version, head.status.as_u16()).into_bytes();
        out.extend_from_slice(head.headers.wire());
        if head.content != ResponseContent::Chunked {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&self.content);
            return out;
        }
        out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        for piece in self.content.chunks(7) {
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
