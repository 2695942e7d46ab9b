//! Two ends of a connection that exchange the bytes of streams through buffers.

use std::collections::BTreeMap;

use apus_h3::{
    ExpectedBody, H3Config, H3Connection, H3Error, H3Event, LocalStream, StreamAction, StreamKey,
};
use apus_http::{Head, Headers, HopByHopFields, Method, ResponseHead, StatusCode, Target, Version};
use bytes::Bytes;

pub(super) const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 10:00:00 GMT";

pub(super) fn config() -> H3Config {
    H3Config {
        max_concurrent_streams: 100,
        target_bytes: 8192,
        head_bytes: 32 * 1024,
        fields: 100,
        extended_connect: true,
        decoder_table_bytes: 4096,
        blocked_streams: 16,
        encoder_table_bytes: 0,
    }
}

/// One end, with the input that it has not consumed.
pub(super) struct Endpoint {
    pub(super) connection: H3Connection,
    kept: BTreeMap<u64, (Bytes, bool)>,
    pub(super) actions: Vec<StreamAction>,
}

impl Endpoint {
    pub(super) fn server(config: H3Config) -> Self {
        Self::new(H3Connection::server(config))
    }

    pub(super) fn client(config: H3Config) -> Self {
        Self::new(H3Connection::client(config))
    }

    fn new(connection: H3Connection) -> Self {
        Self {
            connection,
            kept: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    /// A server that has received the SETTINGS of a client, and streams for QPACK.
    pub(super) fn connected() -> Self {
        Self::connected_with(config(), &[])
    }

    pub(super) fn connected_with(config: H3Config, settings: &[u64]) -> Self {
        let mut server = Self::server(config);
        server.open_streams(2, settings);
        server
    }

    /// A client that has received the SETTINGS of a server.
    pub(super) fn connected_client() -> Self {
        let mut client = Self::client(config());
        client.open_streams(3, &[8, 1]);
        client
    }

    /// Passes the start of the peer's three streams, the first of which has the identifier `id`.
    fn open_streams(&mut self, id: u64, settings: &[u64]) {
        let mut control = vec![0];
        frame(0x4, &integers(settings), &mut control);
        let events = self.receive(id, &control, false).unwrap();
        assert!(matches!(events[..], [H3Event::Settings]), "{events:?}");
        for (step, kind) in [(4, 2), (8, 3)] {
            assert!(self.receive(id + step, &[kind], false).unwrap().is_empty());
        }
    }

    /// Passes bytes of a stream and returns all their events.
    pub(super) fn receive(
        &mut self,
        id: u64,
        bytes: &[u8],
        fin: bool,
    ) -> Result<Vec<H3Event>, H3Error> {
        let (mut input, was_fin) = self.kept.remove(&id).unwrap_or_default();
        input = [&input[..], bytes].concat().into();
        let mut events = Vec::new();
        let mut waiting = vec![(id, input, fin || was_fin)];
        while let Some((id, mut input, fin)) = waiting.pop() {
            loop {
                match self.connection.handle_stream(id, &mut input, fin)? {
                    H3Event::Incomplete => {
                        assert!(input.is_empty());
                        break;
                    }
                    H3Event::Blocked => {
                        self.kept.insert(id, (input, fin));
                        break;
                    }
                    event => events.push(event),
                }
            }
            while let Some(action) = self.connection.next_action() {
                match action {
                    StreamAction::Resume { id } => {
                        let (input, fin) = self.kept.remove(&id).unwrap();
                        waiting.push((id, input, fin));
                    }
                    action => self.actions.push(action),
                }
            }
        }
        Ok(events)
    }

    /// Passes bytes of a stream one by one.
    pub(super) fn receive_bytewise(
        &mut self,
        id: u64,
        bytes: &[u8],
        fin: bool,
    ) -> Result<Vec<H3Event>, H3Error> {
        let mut events = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            let is_last = at + 1 == bytes.len();
            events.extend(self.receive(id, &[*byte], fin && is_last)?);
        }
        Ok(events)
    }

    /// Passes a request and returns its stream.
    pub(super) fn receives_request(&mut self, id: u64, section: &[u8], fin: bool) -> StreamKey {
        let mut bytes = Vec::new();
        frame(0x1, section, &mut bytes);
        match &self.receive(id, &bytes, fin).unwrap()[..] {
            [H3Event::Request(request)] => {
                assert_eq!(request.end, fin);
                request.stream
            }
            events => panic!("{events:?}"),
        }
    }

    /// Passes a stream that must be an error of the connection.
    pub(super) fn fails(&mut self, id: u64, bytes: &[u8], fin: bool) -> H3Error {
        let error = self.receive(id, bytes, fin).unwrap_err();
        let again = self
            .connection
            .handle_stream(0, &mut Bytes::new(), false)
            .unwrap_err();
        assert_eq!(again, error, "the connection has failed");
        error
    }

    /// The output of the local streams.
    pub(super) fn take_output(&mut self) -> [Vec<u8>; 3] {
        LocalStream::ALL.map(|stream| std::mem::take(self.connection.output(stream)))
    }

    /// Passes the output of this end's local streams to the other one.
    pub(super) fn deliver(&mut self, to: &mut Self, first_id: u64) -> Vec<H3Event> {
        let mut events = Vec::new();
        for (step, output) in [0, 4, 8].into_iter().zip(self.take_output()) {
            if !output.is_empty() {
                events.extend(to.receive(first_id + step, &output, false).unwrap());
            }
        }
        events
    }

    /// The bytes of a response.
    pub(super) fn responds(
        &mut self,
        stream: StreamKey,
        status: u16,
        fields: &str,
        body: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let headers = headers(fields);
        let status = StatusCode::from_u16(status).unwrap();
        let head = head_of(status, &headers, Some(body.len() as u64));
        if self.connection.send_head(stream, head, &mut out) != ExpectedBody::None {
            assert!(
                self.connection
                    .send_data(stream, body.len(), true, &mut out)
            );
            out.extend_from_slice(body);
        }
        out
    }
}

pub(super) fn head_of<'a>(
    status: StatusCode,
    headers: &'a Headers,
    content_length: Option<u64>,
) -> ResponseHead<'a> {
    ResponseHead {
        status,
        headers,
        content_length,
        date: DATE,
        server: Some("apus"),
        alt_svc: None,
    }
}

/// Headers of lines `name: value`.
pub(super) fn headers(lines: &str) -> Headers {
    let mut headers = Headers::new();
    for line in lines.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        headers.try_append(name, value).unwrap();
    }
    headers
}

pub(super) fn request_head(method: &Method, target: &str, lines: &str) -> Head {
    Head {
        target: Target::parse(method, target).unwrap(),
        method: method.clone(),
        version: Version::HTTP_3,
        headers: headers(lines),
        hop_by_hop: HopByHopFields::default(),
    }
}

/// Appends an integer of variable length, in as many bytes as it needs.
pub(super) fn integer(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

pub(super) fn integers(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|value| integer(*value, &mut out));
    out
}

pub(super) fn frame(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    integer(kind, out);
    integer(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Frames, one after the other.
pub(super) fn frames(frames: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, payload) in frames {
        frame(*kind, payload, &mut out);
    }
    out
}

/// A field section of lines, as literals.
pub(super) fn section(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in lines {
        let length = |flags: u8, bits: u32, len: usize, out: &mut Vec<u8>| {
            let limit = (1 << bits) - 1;
            if len < limit {
                out.push(flags | len as u8);
            } else {
                out.push(flags | limit as u8);
                let mut rest = len - limit;
                while rest >= 0x80 {
                    out.push(0x80 | (rest & 0x7f) as u8);
                    rest >>= 7;
                }
                out.push(rest as u8);
            }
        };
        length(0x20, 3, name.len(), &mut out);
        out.extend_from_slice(name.as_bytes());
        length(0, 7, value.len(), &mut out);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

/// The field section of a GET request with these further lines.
pub(super) fn get(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut all = vec![
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/"),
    ];
    all.extend_from_slice(lines);
    section(&all)
}
