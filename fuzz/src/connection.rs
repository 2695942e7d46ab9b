//! Records the requests that a server connection parses.

use apus_codec::h1::{
    HeadLimits, Http1Error, Http1RequestHead, Http1ServerEvent, ServerConnection,
};
use apus_http::{Headers, ResponseHead, StatusCode};

pub(crate) const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 256,
    head_bytes: 1024,
    fields: 16,
};

pub(crate) const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// The requests of a connection. Each gets a 200 response once it was read.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Transcript {
    pub(crate) requests: Vec<Read>,
    pub(crate) error: Option<Http1Error>,
    /// Bytes up to the end of the last event.
    pub(crate) consumed: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) head: Http1RequestHead,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Headers>,
    pub(crate) complete: bool,
}

impl Transcript {
    /// The transcript of input in pieces of these sizes, repeatedly.
    pub(crate) fn in_pieces(input: &[u8], sizes: &[usize]) -> Self {
        let mut transcript = Self::default();
        let mut connection = ServerConnection::new(LIMITS);
        let mut sizes = sizes.iter().cycle();
        let (mut start, mut end) = (0, 0);
        while end < input.len() && transcript.error.is_none() {
            let size = sizes.next().copied().unwrap_or(input.len()).max(1);
            end = input.len().min(end.saturating_add(size));
            start += transcript.read(&mut connection, &input[start..end]);
        }
        if transcript.error.is_none() {
            transcript.consumed = start;
        }
        transcript
    }

    pub(crate) fn at_once(input: &[u8]) -> Self {
        Self::in_pieces(input, &[])
    }

    /// Panics unless the result is independent of the split of the input.
    pub(crate) fn however_split(input: &[u8], size: usize) -> Self {
        let at_once = Self::at_once(input);
        assert_eq!(at_once, Self::in_pieces(input, &[1]));
        assert_eq!(at_once, Self::in_pieces(input, &[size, 1, size / 2]));
        at_once
    }

    fn read(&mut self, connection: &mut ServerConnection, input: &[u8]) -> usize {
        let mut start = 0;
        loop {
            let (consumed, event) = match connection.handle_input(&input[start..]) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(connection.handle_input(b""), Err(error));
                    assert!(!connection.keeps_alive());
                    self.error = Some(error);
                    return start;
                }
            };
            let taken = &input[start..start + consumed];
            start += consumed;
            match event {
                Http1ServerEvent::Incomplete => return start,
                Http1ServerEvent::Request(head) => self.requests.push(Read {
                    head,
                    body: Vec::new(),
                    trailers: None,
                    complete: false,
                }),
                Http1ServerEvent::Data(range) => {
                    assert!(!range.is_empty());
                    let read = self.requests.last_mut().unwrap();
                    read.body.extend_from_slice(&taken[range]);
                }
                Http1ServerEvent::End(trailers) => {
                    self.requests.last_mut().unwrap().trailers = trailers
                }
            }
            if connection.request_body_done() {
                self.requests.last_mut().unwrap().complete = true;
                let mut out = Vec::new();
                let head = ResponseHead {
                    status: StatusCode::OK,
                    headers: &Headers::new(),
                    content_length: Some(0),
                    date: DATE,
                    server: None,
                    alt_svc: None,
                };
                connection.send_head(head, &mut out);
                connection.send_end(None, &mut out);
            }
        }
    }
}
