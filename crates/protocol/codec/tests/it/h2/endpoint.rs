//! Two ends of a connection that exchange bytes through buffers.

use apus_codec::h2::{
    ConnectionError, ExpectedBody, Http2Codec, Http2Config, Http2Event, StreamKey,
};
use apus_http::{Head, Headers, HopByHopFields, Method, ResponseHead, StatusCode, Target, Version};

pub(super) const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 10:00:00 GMT";

pub(super) fn config() -> Http2Config {
    Http2Config {
        max_concurrent_streams: 256,
        max_frame_size: 16_384,
        target_bytes: 8192,
        head_bytes: 32 * 1024,
        fields: 100,
        receive_window: 1 << 24,
        stream_receive_window: None,
        extended_connect: true,
    }
}

/// One end, and the bytes that it has to send.
pub(super) struct Endpoint {
    pub(super) connection: Http2Codec,
    pub(super) out: Vec<u8>,
    input: Vec<u8>,
}

/// An event with its data.
#[derive(Debug)]
pub(super) struct ReceivedEvent {
    pub(super) event: Http2Event,
    pub(super) data: Vec<u8>,
}

impl Endpoint {
    pub(super) fn server(config: Http2Config) -> Self {
        let mut out = Vec::new();
        let connection = Http2Codec::server(config, &mut out);
        Self {
            connection,
            out,
            input: Vec::new(),
        }
    }

    pub(super) fn client(config: Http2Config) -> Self {
        let mut out = Vec::new();
        let connection = Http2Codec::client(config, &mut out);
        Self {
            connection,
            out,
            input: Vec::new(),
        }
    }

    /// A server that has received the client's preface.
    pub(super) fn connected(config: Http2Config) -> Self {
        let mut server = Self::server(config);
        let mut hello = apus_codec::h2::PREFACE.to_vec();
        frame(0x4, 0, 0, b"", &mut hello);
        assert!(server.receive(&hello).unwrap().is_empty());
        server.out.clear();
        server
    }

    /// Passes input and returns all its events.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Vec<ReceivedEvent>, ConnectionError> {
        self.input.extend_from_slice(bytes);
        let mut seen = Vec::new();
        // What is consumed is removed at the end: moving the rest behind each frame would take seconds for megabytes.
        let mut read = 0;
        loop {
            let unread = &self.input[read..];
            let (consumed, event) = self.connection.handle_input(unread, &mut self.out)?;
            let data = match &event {
                Http2Event::Data { range, .. } => unread[range.clone()].to_vec(),
                _ => Vec::new(),
            };
            read += consumed;
            match event {
                Http2Event::Incomplete => {
                    self.input.drain(..read);
                    return Ok(seen);
                }
                event => seen.push(ReceivedEvent { event, data }),
            }
        }
    }

    /// Passes the input byte by byte.
    pub(super) fn receive_bytewise(
        &mut self,
        bytes: &[u8],
    ) -> Result<Vec<ReceivedEvent>, ConnectionError> {
        let mut seen = Vec::new();
        for byte in bytes {
            seen.extend(self.receive(&[*byte])?);
        }
        Ok(seen)
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Sends a response with a body that fits the windows.
    pub(super) fn responds(&mut self, stream: StreamKey, status: u16, fields: &str, body: &[u8]) {
        let headers = headers(fields);
        let status = StatusCode::from_u16(status).unwrap();
        let head = head_of(status, &headers, Some(body.len() as u64));
        let expected = self.connection.send_head(stream, head, &mut self.out);
        if expected != ExpectedBody::None {
            self.sends(stream, body, true);
        }
    }

    /// Sends data that fits the windows.
    pub(super) fn sends(&mut self, stream: StreamKey, body: &[u8], end: bool) {
        let mut left = body;
        while !left.is_empty() {
            self.connection.want_send(stream);
            let (key, most) = self.connection.next_send().expect("a turn");
            assert_eq!(key, stream);
            let (now, later) = left.split_at(most.min(left.len()));
            left = later;
            self.connection
                .send_data(stream, now.len(), end && left.is_empty(), &mut self.out)
                .unwrap();
            self.out.extend_from_slice(now);
        }
        if body.is_empty() && end {
            self.connection
                .send_data(stream, 0, true, &mut self.out)
                .unwrap();
        }
    }
}

pub(super) fn head_of(
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

/// Fields, one on each line, as `name: value`.
pub(super) fn headers(text: &str) -> Headers {
    let mut headers = Headers::new();
    for line in text.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        headers.try_append(name, value).unwrap();
    }
    headers
}

pub(super) fn request(method: &str, target: &str, fields: &str) -> Head {
    let method: Method = method.parse().unwrap();
    Head {
        target: Target::parse(&method, target).unwrap(),
        method,
        version: Version::HTTP_2,
        headers: headers(fields),
        hop_by_hop: HopByHopFields::default(),
    }
}

/// A client and a server after their prefaces.
pub(super) fn pair() -> (Endpoint, Endpoint) {
    let mut client = Endpoint::client(config());
    let mut server = Endpoint::server(config());
    exchange(&mut client, &mut server);
    (client, server)
}

/// Transfers bytes in both directions until both ends are idle. Returns the events of the client and of the
/// server.
pub(super) fn exchange(
    client: &mut Endpoint,
    server: &mut Endpoint,
) -> (Vec<ReceivedEvent>, Vec<ReceivedEvent>) {
    let (mut at_client, mut at_server) = (Vec::new(), Vec::new());
    while !client.out.is_empty() || !server.out.is_empty() {
        let (to_server, to_client) = (client.take_output(), server.take_output());
        at_server.extend(server.receive(&to_server).unwrap());
        at_client.extend(client.receive(&to_client).unwrap());
    }
    (at_client, at_server)
}

/// Appends a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A single frame.
pub(super) fn one(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(kind, flags, stream, payload, &mut out);
    out
}

/// A field block of literals without Huffman codes and without indexing.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            let len = text.len();
            if len < 127 {
                out.push(u8::try_from(len).unwrap());
            } else {
                out.push(127);
                let mut rest = len - 127;
                while rest >= 128 {
                    out.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                out.push(u8::try_from(rest).unwrap());
            }
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

pub(super) const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
];

pub(super) const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
];

/// HEADERS with END_HEADERS, and END_STREAM if `end`.
pub(super) fn headers_frame(stream: u32, end: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    one(0x1, 0x4 | u8::from(end), stream, &block(fields))
}

/// The frames in `bytes`: type, flags, stream, payload.
pub(super) fn frames(bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut rest = bytes;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        let stream = u32::from_be_bytes(rest[5..9].try_into().unwrap());
        frames.push((rest[3], rest[4], stream, rest[9..9 + len].to_vec()));
        rest = &rest[9 + len..];
    }
    frames
}

/// The streams and codes of RST_STREAM in `bytes`.
pub(super) fn resets(bytes: &[u8]) -> Vec<(u32, u32)> {
    frames(bytes)
        .into_iter()
        .filter(|(kind, ..)| *kind == 0x3)
        .map(|(_, _, stream, code)| (stream, u32::from_be_bytes(code.try_into().unwrap())))
        .collect()
}

/// The last stream and code of each GOAWAY in `bytes`.
pub(super) fn goaways(bytes: &[u8]) -> Vec<(u32, u32)> {
    frames(bytes)
        .into_iter()
        .filter(|(kind, ..)| *kind == 0x7)
        .map(|(_, _, _, payload)| {
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            (number(0), number(4))
        })
        .collect()
}

/// The streams and increments of WINDOW_UPDATE in `bytes`.
pub(super) fn updates(bytes: &[u8]) -> Vec<(u32, u32)> {
    frames(bytes)
        .into_iter()
        .filter(|(kind, ..)| *kind == 0x8)
        .map(|(_, _, stream, payload)| (stream, u32::from_be_bytes(payload.try_into().unwrap())))
        .collect()
}

/// The stream of the first request.
pub(super) fn stream_of(seen: &[ReceivedEvent]) -> StreamKey {
    seen.iter()
        .find_map(|seen| match &seen.event {
            Http2Event::Request(request) => Some(request.stream),
            _ => None,
        })
        .expect("a request")
}
