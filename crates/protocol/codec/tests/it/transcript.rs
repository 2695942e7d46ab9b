//! Records the requests that a server parses from a connection, for comparison.

use apus_codec::h1::{
    HeadLimits, Http1Error, Http1RequestHead, Http1ServerEvent, ServerConnection,
};
use apus_http::{Headers, ResponseHead, StatusCode};

pub(crate) const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 8 * 1024,
    head_bytes: 32 * 1024,
    fields: 100,
};

pub(crate) const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// The requests of a connection. Each gets a 200 response once it was read.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Transcript {
    pub(crate) requests: Vec<ReadRequest>,
    pub(crate) error: Option<Http1Error>,
    /// Unconsumed bytes at the end of the input.
    pub(crate) unread: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ReadRequest {
    pub(crate) head: Http1RequestHead,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Headers>,
    pub(crate) complete: bool,
}

impl Transcript {
    /// The transcript of input in pieces.
    pub(crate) fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self::within(LIMITS, pieces)
    }

    pub(crate) fn within<'a>(
        limits: HeadLimits,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut transcript = Self::default();
        let mut connection = ServerConnection::new(limits);
        let mut unread = Vec::new();
        for piece in pieces {
            unread.extend_from_slice(piece);
            transcript.read(&mut connection, &mut unread);
            if transcript.error.is_some() {
                break;
            }
        }
        if transcript.error.is_none() {
            transcript.unread = unread.len();
        }
        transcript
    }

    fn read(&mut self, connection: &mut ServerConnection, unread: &mut Vec<u8>) {
        loop {
            let (consumed, event) = match connection.handle_input(unread) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(connection.handle_input(b"GET / HTTP/1.1\r\n"), Err(error));
                    self.error = Some(error);
                    return;
                }
            };
            match event {
                Http1ServerEvent::Incomplete => {
                    unread.drain(..consumed);
                    return;
                }
                Http1ServerEvent::Request(head) => self.requests.push(ReadRequest {
                    head,
                    body: Vec::new(),
                    trailers: None,
                    complete: false,
                }),
                Http1ServerEvent::Data(range) => {
                    assert!(!range.is_empty() && range.end <= consumed);
                    let read = self.requests.last_mut().unwrap();
                    read.body.extend_from_slice(&unread[range]);
                }
                Http1ServerEvent::End(trailers) => {
                    self.requests.last_mut().unwrap().trailers = trailers
                }
            }
            unread.drain(..consumed);
            if connection.request_body_done() {
                self.requests.last_mut().unwrap().complete = true;
                respond(connection);
            }
        }
    }
}

fn respond(connection: &mut ServerConnection) {
    let head = ResponseHead {
        status: StatusCode::OK,
        headers: &Headers::new(),
        content_length: Some(0),
        date: DATE,
        server: None,
        alt_svc: None,
    };
    let mut out = Vec::new();
    connection.send_head(head, &mut out);
    connection.send_end(None, &mut out);
}

/// Splits the input at these positions, each modulo its length.
pub(crate) fn cut<'a>(input: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    cuts.extend([0, input.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|between| &input[between[0]..between[1]])
        .collect()
}
