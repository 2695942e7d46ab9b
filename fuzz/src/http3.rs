//! Fuzz targets of HTTP/3 and QPACK.

use std::collections::BTreeMap;

use apus_h3::qpack::{QpackDecoder, QpackEncoder, SectionProgress};
use apus_h3::{
    ExpectedBody, H3Config, H3Connection, H3Error, H3ErrorCode, H3Event, LocalStream,
    OutgoingRequest, StreamAction, StreamKey,
};
use apus_http::{Head, Headers, HopByHopFields, Method, ResponseHead, StatusCode, Target, Version};
use bytes::Bytes;

use crate::connection::DATE;

const CONFIG: H3Config = H3Config {
    max_concurrent_streams: 8,
    target_bytes: 256,
    head_bytes: 1024,
    fields: 16,
    extended_connect: true,
    decoder_table_bytes: 256,
    blocked_streams: 2,
    encoder_table_bytes: 128,
};

/// Instructions and field sections, each after a stream and a length. A section that can be decoded is the same after
/// it was encoded again.
pub fn qpack(mut data: &[u8]) {
    let (mut decoder, mut again) = (QpackDecoder::new(256), QpackDecoder::new(200));
    let mut encoder = QpackEncoder::new(100);
    encoder.set_peer_table_bytes(200);
    while let Some(([stream, len], rest)) = data.split_first_chunk() {
        let (part, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        if stream % 4 == 3 {
            if decoder.handle_encoder_stream(part).is_err() {
                return;
            }
            continue;
        }
        let stream = u64::from(*stream);
        let mut fields = Vec::new();
        let decoded = decoder.decode(stream, part, |field| {
            let (name, value) = (field.name.to_vec(), field.value.to_vec());
            fields.push((name, value, field.is_valid, field.never_indexed));
        });
        match decoded {
            Ok(SectionProgress::Decoded) => {}
            Ok(SectionProgress::Blocked(inserts)) => {
                assert!(inserts > decoder.inserted() && fields.is_empty());
                continue;
            }
            Err(_) => return,
        }
        let mut out = Vec::new();
        let mut references = encoder.begin(&mut out);
        for (name, value, _, never_indexed) in &fields {
            encoder.line((name, value, *never_indexed), &mut references, &mut out);
        }
        encoder.end(stream, references, &mut out);
        let instructions = std::mem::take(encoder.output());
        assert!(again.handle_encoder_stream(&instructions).is_ok());
        let mut read = Vec::new();
        let decoded = again.decode(stream, &out, |field| {
            let (name, value) = (field.name.to_vec(), field.value.to_vec());
            read.push((name, value, field.is_valid, field.never_indexed));
        });
        assert_eq!(decoded, Ok(SectionProgress::Decoded));
        for (read, field) in read.iter().zip(&fields) {
            assert_eq!((&read.0, &read.1, read.2), (&field.0, &field.1, field.2));
            // What the peer marked stays marked; the encoder may mark more.
            assert!(read.3 || !field.3);
        }
        assert_eq!(read.len(), fields.len());
        let acknowledgements = std::mem::take(again.output());
        assert!(encoder.handle_decoder_stream(&acknowledgements).is_ok());
    }
}

/// Bytes of streams, each piece after its stream, flags and length. The result is independent of further splits.
pub fn http3_connection(data: &[u8]) {
    let mut pieces = Vec::new();
    let mut rest = data;
    while let Some(([stream, flags, len], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        pieces.push(Piece::new(*stream, *flags, bytes.to_vec()));
    }
    however_split(&pieces, Peer::server);
}

/// Like [`http3_connection`], with stream types and correct frames, for both roles.
pub fn http3_frames(data: &[u8]) {
    let Some((role, mut rest)) = data.split_first() else {
        return;
    };
    let first = u8::from(role % 2 != 0);
    let mut pieces = vec![
        Piece::new(2 | first, 0, vec![0, 4, 2, 1, 60]),
        Piece::new(6 | first, 0, vec![2]),
        Piece::new(10 | first, 0, vec![3]),
    ];
    while let Some(([stream, flags, kind, len], after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at(usize::from(*len & 0x3f).min(after.len()));
        rest = after;
        // Unknown types are of little interest.
        let kind: &[u8] = match kind % 18 {
            16 => &[0x80, 0x0f, 0x07, 0x00],
            17 => &[0x80, 0x0f, 0x07, 0x01],
            kind => &[kind],
        };
        let length = [payload.len() as u8];
        let frame = match stream & 0x2 {
            // The streams of QPACK have no frames.
            2 if stream & 0xc != 0 => payload.to_vec(),
            _ => [kind, &length, payload].concat(),
        };
        pieces.push(Piece::new(*stream, *flags, frame));
    }
    match first {
        0 => however_split(&pieces, Peer::server),
        _ => however_split(&pieces, Peer::client),
    }
}

/// What the peer does with a stream.
#[derive(Clone)]
struct Piece {
    id: u64,
    bytes: Vec<u8>,
    fin: bool,
    is_reset: bool,
    is_stopped: bool,
}

impl Piece {
    fn new(stream: u8, flags: u8, bytes: Vec<u8>) -> Self {
        Self {
            id: u64::from(stream % 32),
            bytes,
            fin: flags & 7 == 1,
            is_reset: flags & 7 == 2,
            is_stopped: flags & 7 == 3,
        }
    }
}

fn however_split(pieces: &[Piece], peer: impl Fn() -> Peer) {
    let (at_once, error) = peer().read(pieces, usize::MAX);
    for size in [1, 3] {
        let (split, again) = peer().read(pieces, size);
        assert_eq!(error, again);
        match error {
            None => assert_eq!(at_once, split),
            // Before the fault, what came with it may have let a stream go on.
            Some(_) => assert!(split.starts_with(&at_once), "{at_once} {split}"),
        }
    }
}

/// One end, which responds to every request and reads all data.
struct Peer {
    connection: H3Connection,
    kept: BTreeMap<u64, (Bytes, bool)>,
    /// Streams that the peer has ended or reset, on which QUIC delivers nothing more.
    ended: Vec<u64>,
    said: Vec<String>,
    /// The first byte of each stream.
    stream_types: BTreeMap<u64, u8>,
}

impl Peer {
    fn server() -> Self {
        Self::new(H3Connection::server(CONFIG))
    }

    fn client() -> Self {
        let mut connection = H3Connection::client(CONFIG);
        for (id, method) in [(0, Method::GET), (4, Method::HEAD), (8, Method::POST)] {
            let mut headers = Headers::new();
            headers.try_append("host", "a").unwrap();
            let head = Head {
                target: Target::parse(&method, "/").unwrap(),
                method,
                version: Version::HTTP_3,
                headers,
                hop_by_hop: HopByHopFields::default(),
            };
            let head = OutgoingRequest::of(&head, "https");
            let sent = connection.send_request(id, head, id != 8, &mut Vec::new());
            sent.unwrap();
        }
        Self::new(connection)
    }

    fn new(connection: H3Connection) -> Self {
        Self {
            connection,
            kept: BTreeMap::new(),
            ended: Vec::new(),
            said: Vec::new(),
            stream_types: BTreeMap::new(),
        }
    }

    /// What is said about the pieces, each in parts of this size, and the error at the end.
    fn read(mut self, pieces: &[Piece], size: usize) -> (String, Option<H3Error>) {
        let mut failure = None;
        for piece in pieces {
            if let Err(error) = self.take_piece(piece, size) {
                let again = self.connection.handle_stream(0, &mut Bytes::new(), false);
                assert_eq!(again.unwrap_err(), error);
                failure = Some(error);
                break;
            }
        }
        let heard: usize = pieces.iter().map(|piece| piece.bytes.len() + 8).sum();
        for stream in LocalStream::ALL {
            assert!(self.connection.output(stream).len() <= 512 + 16 * heard);
        }
        (self.said.join("\n"), failure)
    }

    fn take_piece(&mut self, piece: &Piece, size: usize) -> Result<(), H3Error> {
        let code = H3ErrorCode::REQUEST_CANCELLED;
        if piece.is_stopped
            && let Some(event) = self.connection.handle_stop_sending(piece.id, code)?
        {
            self.said.push(format!("{event:?}"));
        }
        if !self.ended.contains(&piece.id) {
            let size = if self.may_split(piece) {
                size
            } else {
                usize::MAX
            };
            let mut parts = piece.bytes.chunks(size).peekable();
            if parts.peek().is_none() {
                self.take(piece.id, b"", piece.fin)?;
            }
            while let Some(part) = parts.next() {
                self.take(piece.id, part, piece.fin && parts.peek().is_none())?;
            }
        }
        if piece.fin || piece.is_reset {
            self.ended.push(piece.id);
        }
        if piece.is_reset {
            self.kept.remove(&piece.id);
            if let Some(event) = self.connection.handle_reset(piece.id, code)? {
                self.said.push(format!("{event:?}"));
            }
        }
        self.act()
    }

    /// Whether the result is independent of a split. Instructions of QPACK at once may evict what a section that waits
    /// for the first of them refers to; a correct peer does not send them.
    fn may_split(&mut self, piece: &Piece) -> bool {
        let Some(first) = piece.bytes.first() else {
            return true;
        };
        let kind = *self.stream_types.entry(piece.id).or_insert(*first);
        piece.id & 0x2 == 0 || kind == 0
    }

    fn take(&mut self, id: u64, bytes: &[u8], fin: bool) -> Result<(), H3Error> {
        let (kept, _) = self.kept.remove(&id).unwrap_or_default();
        let mut input = Bytes::from([&kept[..], bytes].concat());
        loop {
            match self.connection.handle_stream(id, &mut input, fin)? {
                H3Event::Incomplete => {
                    assert!(input.is_empty());
                    return self.act();
                }
                H3Event::Blocked => {
                    self.kept.insert(id, (input, fin));
                    return self.act();
                }
                H3Event::Data { stream, data, end } => {
                    assert!(!data.is_empty() || end);
                    self.note_data(stream, &data, end);
                }
                H3Event::Request(request) => {
                    assert!(self.connection.open_streams() <= 8);
                    let headers = &request.head.headers;
                    assert!(headers.get_all("host").count() == 1);
                    assert!(headers.get_all("cookie").count() <= 1);
                    assert!(headers.get("transfer-encoding").is_none());
                    self.said
                        .push(format!("{:?} {}", request.head, request.end));
                    self.respond(request.stream, StatusCode::OK);
                }
                H3Event::Refused { stream, why } => {
                    self.said.push(format!("{why:?}"));
                    self.respond(stream, why.status());
                }
                event => self.said.push(format!("{event:?}")),
            }
        }
    }

    fn act(&mut self) -> Result<(), H3Error> {
        while let Some(action) = self.connection.next_action() {
            match action {
                StreamAction::Resume { id } => {
                    let fin = self.kept.get(&id).is_some_and(|(_, fin)| *fin);
                    self.take(id, b"", fin)?;
                }
                // Which is first depends on how long the peer went on.
                StreamAction::Reset { id, .. } | StreamAction::StopSending { id, .. } => {
                    self.kept.remove(&id);
                }
            }
        }
        Ok(())
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

    /// Sends a response, which consists of complete frames.
    fn respond(&mut self, stream: StreamKey, status: StatusCode) {
        let head = ResponseHead {
            status,
            headers: &Headers::new(),
            content_length: Some(4),
            date: DATE,
            server: Some("apus"),
            alt_svc: None,
        };
        let mut out = Vec::new();
        if self.connection.send_head(stream, head, &mut out) != ExpectedBody::None {
            self.connection.want_send(stream);
            assert_eq!(self.connection.next_send(), Some(stream));
            assert!(self.connection.send_data(stream, 4, true, &mut out));
            out.extend_from_slice(b"body");
        }
        // HEADERS with a length of two bytes, then perhaps DATA of four bytes.
        assert_eq!((out[0], out[1] & 0xc0), (0x1, 0x40));
        let len = usize::from(u16::from_be_bytes([out[1], out[2]]) & 0x3fff);
        assert!(matches!(&out[3 + len..], b"" | b"\x00\x04body"));
    }
}
