//! Fuzz targets of HTTP/2 connections.

use apus_codec::h2::{
    ConnectionError, ExpectedBody, Http2Codec, Http2Config, Http2Event, OutgoingRequest, PREFACE,
    StreamKey,
};
use apus_http::{Head, Headers, HopByHopFields, Method, ResponseHead, StatusCode, Target, Version};

use crate::connection::DATE;

const CONFIG: Http2Config = Http2Config {
    max_concurrent_streams: 8,
    max_frame_size: 16_384,
    target_bytes: 256,
    head_bytes: 1024,
    fields: 16,
    receive_window: 1 << 20,
    stream_receive_window: None,
    extended_connect: true,
};

/// The length of a response body: more than one frame, less than a window.
const RESPONSE_BYTES: usize = 20_000;

/// The input of a server after the preface. The result is independent of the split, and the output consists of
/// complete frames and is not much longer than the input.
pub fn http2_connection(data: &[u8]) {
    let input = [PREFACE, data].concat();
    however_split(&input, Peer::server);
}

/// Like [`http2_connection`], with correct frame headers.
pub fn http2_frames(data: &[u8]) {
    let mut input = PREFACE.to_vec();
    frame(0x4, 0, 0, b"", &mut input);
    frames(data, &mut input);
    however_split(&input, Peer::server);
}

/// The input of a client with three open requests.
pub fn http2_client(data: &[u8]) {
    let mut input = Vec::new();
    frame(0x4, 0, 0, b"", &mut input);
    frames(data, &mut input);
    however_split(&input, Peer::client);
}

fn however_split(input: &[u8], peer: impl Fn() -> Peer) {
    let at_once = peer().read(input, &[input.len().max(1)]);
    let size = input.len() / 3;
    for sizes in [&[1][..], &[size, 1, size / 2]] {
        assert_eq!(at_once, peer().read(input, sizes));
    }
}

/// Builds frames from bytes: type, flags, stream and length of each, then its payload.
fn frames(mut data: &[u8], out: &mut Vec<u8>) {
    while let Some(([kind, flags, stream, len], rest)) = data.split_first_chunk() {
        let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        // Unknown types and more than a few streams are of little interest.
        frame(kind % 18, *flags, u32::from(stream % 16), payload, out);
        data = rest;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// One end, which responds to every request and consumes all data.
struct Peer {
    connection: Http2Codec,
    out: Vec<u8>,
    /// Bytes of sent data, whose frame headers are in `out`.
    sent: usize,
    left: Vec<(StreamKey, usize)>,
    said: Vec<String>,
}

impl Peer {
    fn server() -> Self {
        let mut out = Vec::new();
        Self {
            connection: Http2Codec::server(CONFIG, &mut out),
            out,
            sent: 0,
            left: Vec::new(),
            said: Vec::new(),
        }
    }

    fn client() -> Self {
        let mut out = Vec::new();
        let mut connection = Http2Codec::client(CONFIG, &mut out);
        for method in [Method::GET, Method::HEAD, Method::POST] {
            let mut headers = Headers::new();
            headers.try_append("host", "a").unwrap();
            let head = Head {
                target: Target::parse(&method, "/").unwrap(),
                method,
                version: Version::HTTP_2,
                headers,
                hop_by_hop: HopByHopFields::default(),
            };
            connection.send_request(OutgoingRequest::of(&head, "https"), true, &mut out);
        }
        Self {
            connection,
            out,
            sent: 0,
            left: Vec::new(),
            said: Vec::new(),
        }
    }

    /// The events of input in pieces of these sizes, repeatedly.
    fn read(mut self, input: &[u8], sizes: &[usize]) -> Vec<String> {
        let mut sizes = sizes.iter().cycle();
        let (mut start, mut end) = (0, 0);
        while end < input.len() {
            let size = sizes.next().copied().unwrap_or(1).max(1);
            end = input.len().min(end + size);
            match self.take(&input[start..end]) {
                Ok(consumed) => start += consumed,
                Err(error) => {
                    let again = self.connection.handle_input(b"", &mut self.out);
                    assert_eq!(again.unwrap_err(), error);
                    self.said.push(format!("{error:?}"));
                    break;
                }
            }
        }
        self.check_output(input.len());
        self.said
    }

    fn take(&mut self, input: &[u8]) -> Result<usize, ConnectionError> {
        let mut start = 0;
        loop {
            let rest = &input[start..];
            let (consumed, event) = self.connection.handle_input(rest, &mut self.out)?;
            start += consumed;
            match event {
                Http2Event::Incomplete => return Ok(start),
                Http2Event::Data { stream, range, end } => {
                    assert!(!range.is_empty() || end);
                    let data = &rest[range];
                    self.connection.consumed(stream, data.len(), &mut self.out);
                    self.note_data(stream, data, end);
                }
                Http2Event::Request(request) => {
                    assert!(self.connection.open_streams() <= 8);
                    let headers = &request.head.headers;
                    assert!(headers.get_all("host").count() == 1);
                    assert!(headers.get_all("cookie").count() <= 1);
                    assert!(headers.get("transfer-encoding").is_none());
                    self.said
                        .push(format!("{:?} {}", request.head, request.end));
                    self.respond(request.stream, StatusCode::OK)?;
                }
                Http2Event::Refused { stream, why } => {
                    self.said.push(format!("{why:?}"));
                    self.respond(stream, why.status())?;
                }
                event => self.said.push(format!("{event:?}")),
            }
            self.pour()?;
        }
    }

    /// Joins the pieces of data, so that their sizes do not matter.
    fn note_data(&mut self, stream: StreamKey, data: &[u8], end: bool) {
        let begun = format!("{} ", stream.id());
        let more = data.escape_ascii().to_string();
        match self.said.last_mut() {
            Some(last) if last.starts_with(&begun) => last.push_str(&more),
            _ => self.said.push(begun + &more),
        }
        if end {
            self.said.push(format!("end of {}", stream.id()));
        }
    }

    fn respond(&mut self, stream: StreamKey, status: StatusCode) -> Result<(), ConnectionError> {
        let head = ResponseHead {
            status,
            headers: &Headers::new(),
            content_length: Some(RESPONSE_BYTES as u64),
            date: DATE,
            server: None,
            alt_svc: None,
        };
        match self.connection.send_head(stream, head, &mut self.out) {
            ExpectedBody::None => {}
            ExpectedBody::Data(Some(_)) => self.left.push((stream, RESPONSE_BYTES)),
            // A tunnel is closed at once.
            ExpectedBody::Data(None) => {
                self.connection.send_data(stream, 0, true, &mut self.out)?;
            }
        }
        Ok(())
    }

    /// Sends as much as the windows allow.
    fn pour(&mut self) -> Result<(), ConnectionError> {
        for (stream, _) in &self.left {
            self.connection.want_send(*stream);
        }
        while let Some((stream, most)) = self.connection.next_send() {
            assert!(most > 0);
            let at = self.left.iter().position(|(other, _)| *other == stream);
            let (_, left) = &mut self.left[at.expect("a stream that wants to send")];
            let len = most.min(*left);
            *left -= len;
            let end = *left == 0;
            self.connection.send_data(stream, len, end, &mut self.out)?;
            self.out.resize(self.out.len() + len, 0);
            self.sent += len;
            if end {
                self.left.retain(|(other, _)| *other != stream);
            } else {
                self.connection.want_send(stream);
            }
        }
        self.left
            .retain(|(stream, _)| self.connection.is_open(*stream));
        Ok(())
    }

    /// Checks that the output consists of complete frames, and is proportional to the input.
    fn check_output(&self, heard: usize) {
        let mut rest = self.out.strip_prefix(PREFACE).unwrap_or(&self.out);
        while !rest.is_empty() {
            let len = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            assert!(len <= 16_384);
            rest = &rest[9 + len..];
        }
        let control = self.out.len() - self.sent;
        assert!(control <= 1024 + heard * 16, "{control} bytes to {heard}");
    }
}
