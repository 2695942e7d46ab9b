//! A client that sends exactly the frames of a test (RFC 9113), and reads those of the server.
//!
//! It shares nothing with the code under test: it writes fields as literals that are not indexed, and reads
//! them with another decoder.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use loona_hpack::Decoder;

/// The connection preface of a client (section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest frame that may be sent before other settings are known (section 4.2).
pub(crate) const FRAME: usize = 16_384;

/// The windows that both sides begin with (section 6.9.2).
pub(crate) const WINDOW: usize = 65_535;

/// Frame types (section 6, RFC 9218 section 7.1).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Error codes (section 7).
pub(crate) mod code {
    pub(crate) const NO_ERROR: u32 = 0;
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const INTERNAL_ERROR: u32 = 2;
    pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
    pub(crate) const STREAM_CLOSED: u32 = 5;
    pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
    pub(crate) const REFUSED_STREAM: u32 = 7;
    pub(crate) const CANCEL: u32 = 8;
    pub(crate) const COMPRESSION_ERROR: u32 = 9;
    pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
}

/// Settings (section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// A frame as it came.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The 32-bit number that begins at this byte of the payload.
    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// An integer of HPACK with a prefix of this many bits, the bits above it set to `high`
/// (RFC 7541 section 5.1).
pub(crate) fn integer(high: u8, bits: u8, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![high | value as u8];
    }
    let mut bytes = vec![high | most as u8];
    let mut rest = value - most;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes
}

/// A field line as a literal that is not indexed (RFC 7541 section 6.2.2).
pub(crate) fn literal(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    string(0, name.as_ref(), value.as_ref())
}

/// A field line as a literal that enters the dynamic table (RFC 7541 section 6.2.1).
pub(crate) fn indexed_literal(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    string(0x40, name.as_ref(), value.as_ref())
}

fn string(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    for text in [name, value] {
        bytes.extend(integer(0, 7, text.len()));
        bytes.extend_from_slice(text);
    }
    bytes
}

/// A field block.
pub(crate) fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|(name, value)| literal(name, value))
        .collect()
}

/// The frames of a field block: HEADERS, and CONTINUATION if it is long.
pub(crate) fn head(stream: u32, block: &[u8], end: bool) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = block.chunks(FRAME).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let last = parts.len() - 1;
    let mut bytes = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        let mut flags = flag::NONE;
        if index == 0 && end {
            flags |= flag::END_STREAM;
        }
        if index == last {
            flags |= flag::END_HEADERS;
        }
        let kind = [kind::HEADERS, kind::CONTINUATION][usize::from(index > 0)];
        bytes.extend(frame(kind, flags, stream, part));
    }
    bytes
}

/// The frames of a request without a body.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    head(stream, &block(&request("GET", path)), true)
}

/// The pseudo-header fields of a request.
pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ]
}

/// A request with more fields.
pub(crate) fn request_with<'a>(
    method: &'a str,
    path: &'a str,
    fields: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [request(method, path), fields.to_vec()].concat()
}

/// DATA frames of the largest size.
pub(crate) fn data(stream: u32, body: impl AsRef<[u8]>, end: bool) -> Vec<u8> {
    let body = body.as_ref();
    let flags = |last| u8::from(end && last) * flag::END_STREAM;
    if body.is_empty() {
        return frame(kind::DATA, flags(true), stream, body);
    }
    let count = body.len().div_ceil(FRAME);
    let parts = body.chunks(FRAME).enumerate();
    parts
        .flat_map(|(index, part)| frame(kind::DATA, flags(index + 1 == count), stream, part))
        .collect()
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (setting, value) in values {
        payload.extend(setting.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(kind::SETTINGS, flag::NONE, 0, payload)
}

pub(crate) fn settings_ack() -> Vec<u8> {
    frame(kind::SETTINGS, flag::ACK, 0, [])
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    let increment = increment.to_be_bytes();
    frame(kind::WINDOW_UPDATE, flag::NONE, stream, increment)
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, flag::NONE, stream, code.to_be_bytes())
}

pub(crate) fn ping(payload: u64) -> Vec<u8> {
    frame(kind::PING, flag::NONE, 0, payload.to_be_bytes())
}

/// A PRIORITY frame (RFC 7540 section 6.3).
pub(crate) fn priority(stream: u32, dependency: u32, weight: u8) -> Vec<u8> {
    let mut payload = dependency.to_be_bytes().to_vec();
    payload.push(weight);
    frame(kind::PRIORITY, flag::NONE, stream, payload)
}

/// A PRIORITY_UPDATE frame (RFC 9218 section 7.1).
pub(crate) fn priority_update(stream: u32, value: &str) -> Vec<u8> {
    let mut payload = stream.to_be_bytes().to_vec();
    payload.extend_from_slice(value.as_bytes());
    frame(kind::PRIORITY_UPDATE, flag::NONE, 0, payload)
}

/// The frames that arrived on a stream so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamResponse {
    pub(crate) status: u16,
    /// The status codes of interim responses.
    pub(crate) interim: Vec<u16>,
    /// The fields of the final response, without `:status`.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// The server has ended its side.
    pub(crate) ended: bool,
    /// The server has reset it.
    pub(crate) reset: Option<u32>,
}

impl StreamResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find_map(|(field, value)| (field == name).then_some(value.as_str()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn take_head(&mut self, fields: Vec<(String, String)>) {
        let (pseudo, fields): (Vec<_>, Vec<_>) = fields
            .into_iter()
            .partition(|(name, _)| name.starts_with(':'));
        if self.status != 0 {
            assert!(
                pseudo.is_empty(),
                "pseudo-header fields in a trailer section"
            );
            self.trailers = fields;
            return;
        }
        let [(name, status)] = pseudo.as_slice() else {
            panic!("pseudo-header fields of a response: {pseudo:?}");
        };
        assert_eq!(name, ":status");
        match status.parse().unwrap() {
            interim @ ..200 => self.interim.push(interim),
            status => (self.status, self.fields) = (status, fields),
        }
    }
}

/// The client's end of a connection.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
    /// The windows are opened as data arrives.
    pub(crate) opens_windows: bool,
    /// SETTINGS and PING are acknowledged.
    pub(crate) acknowledges: bool,
    /// The server's settings, as far as they came.
    pub(crate) settings: BTreeMap<u16, u32>,
    /// GOAWAY frames that came: the last stream and the code.
    pub(crate) goaways: Vec<(u32, u32)>,
    /// The frames that arrived on each stream.
    pub(crate) responses: BTreeMap<u32, StreamResponse>,
    unread: Vec<u8>,
    read: usize,
    decoder: Decoder<'static>,
    /// A field block of which more is to come.
    partial: Option<Frame>,
    next_stream: u32,
    next_ping: u64,
    /// How much may be sent over all streams.
    window: i64,
    /// The windows of streams, relative to the initial one in the settings.
    windows: BTreeMap<u32, i64>,
}

impl<S: Read + Write> Peer<S> {
    /// A client that has sent nothing yet.
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            opens_windows: true,
            acknowledges: true,
            settings: BTreeMap::new(),
            goaways: Vec::new(),
            responses: BTreeMap::new(),
            unread: Vec::new(),
            read: 0,
            decoder: Decoder::new(),
            partial: None,
            next_stream: 1,
            next_ping: 1 << 32,
            window: WINDOW as i64,
            windows: BTreeMap::new(),
        }
    }

    /// A client that has sent its preface with no settings.
    pub(crate) fn open(stream: S) -> Self {
        Self::open_with(stream, &[])
    }

    /// A client that has sent its preface with these settings.
    pub(crate) fn open_with(stream: S, values: &[(u16, u32)]) -> Self {
        let mut peer = Self::new(stream);
        peer.send([PREFACE, &settings(values)].concat());
        peer
    }

    /// Reads field blocks with a dynamic table of this size, as the settings promise.
    pub(crate) fn limit_table(&mut self, size: usize) {
        self.decoder.set_max_allowed_table_size(size);
        self.decoder.set_max_table_size(size.min(4096));
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap();
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// The number of a stream that was not used.
    pub(crate) fn next_stream(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// Sends the head of a request.
    pub(crate) fn request(&mut self, fields: &[(&str, &str)], end: bool) -> u32 {
        let stream = self.next_stream();
        self.send(head(stream, &block(fields), end));
        stream
    }

    /// Sends `GET path`.
    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.request(&request("GET", path), true)
    }

    /// `GET path` and its response.
    pub(crate) fn fetch(&mut self, path: &str) -> StreamResponse {
        let stream = self.get(path);
        self.response(stream)
    }

    /// Sends a body, as much at once as the windows allow.
    pub(crate) fn upload(&mut self, stream: u32, body: &[u8], end: bool) {
        let mut rest = body;
        while !rest.is_empty() {
            let allowed = self.window.min(self.window_of(stream)).min(FRAME as i64);
            if allowed <= 0 {
                self.read().expect("a window");
                continue;
            }
            let (part, more) = rest.split_at(rest.len().min(allowed as usize));
            rest = more;
            self.spend(stream, part.len());
            self.send(data(stream, part, end && rest.is_empty()));
        }
        if body.is_empty() {
            self.send(data(stream, [], end));
        }
    }

    /// Counts data that was sent without [`Peer::upload`].
    pub(crate) fn spend(&mut self, stream: u32, bytes: usize) {
        self.window -= bytes as i64;
        *self.windows.entry(stream).or_default() -= bytes as i64;
    }

    /// Waits until the windows allow this much.
    pub(crate) fn wait_for_window(&mut self, stream: u32, bytes: usize) {
        self.until("a window", |peer| {
            peer.window.min(peer.window_of(stream)) >= bytes as i64
        });
    }

    /// How much may be sent over the connection now.
    pub(crate) fn window(&self) -> i64 {
        self.window
    }

    /// How much may be sent over a stream now, if the connection's window allows it.
    pub(crate) fn window_of(&self, stream: u32) -> i64 {
        let initial = self.settings.get(&setting::INITIAL_WINDOW_SIZE);
        let initial = initial.map_or(WINDOW as i64, |size| i64::from(*size));
        initial + self.windows.get(&stream).copied().unwrap_or(0)
    }

    /// The next frame. It is recorded, and acknowledged if required.
    ///
    /// # Errors
    /// The connection ended, or nothing arrived for long.
    pub(crate) fn read(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.take_frame() {
                self.note(&frame);
                return Ok(frame);
            }
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        self.unread.drain(..self.read);
        self.read = 0;
        let mut buffer = [0; 64 * 1024];
        let read = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    fn take_frame(&mut self) -> Option<Frame> {
        let bytes = &self.unread[self.read..];
        let [l1, l2, l3, kind, flags, s1, s2, s3, s4, rest @ ..] = bytes else {
            return None;
        };
        let length = u32::from_be_bytes([0, *l1, *l2, *l3]) as usize;
        let frame = Frame {
            kind: *kind,
            flags: *flags,
            stream: u32::from_be_bytes([*s1, *s2, *s3, *s4]),
            payload: rest.get(..length)?.to_vec(),
        };
        self.read += 9 + length;
        Some(frame)
    }

    fn note(&mut self, frame: &Frame) {
        if self.partial.is_some() {
            assert_eq!(
                frame.kind,
                kind::CONTINUATION,
                "a field block is interrupted"
            );
        }
        match frame.kind {
            kind::DATA => {
                let response = self.responses.entry(frame.stream).or_default();
                assert!(response.status != 0 && !response.ended && !frame.has(flag::PADDED));
                response.body.extend_from_slice(&frame.payload);
                response.ended = frame.has(flag::END_STREAM);
                if self.opens_windows && !frame.payload.is_empty() {
                    let length = frame.payload.len() as u32;
                    let mut credit = window_update(0, length);
                    if !frame.has(flag::END_STREAM) {
                        credit.extend(window_update(frame.stream, length));
                    }
                    // The server may have closed meanwhile.
                    let _ = self.try_send(credit);
                }
            }
            kind::HEADERS => {
                assert!(!frame.has(flag::PADDED | flag::PRIORITY));
                self.note_block(frame.clone());
            }
            kind::CONTINUATION => {
                let mut whole = self.partial.take().expect("a field block");
                assert_eq!(whole.stream, frame.stream);
                whole.payload.extend_from_slice(&frame.payload);
                whole.flags |= frame.flags & flag::END_HEADERS;
                self.note_block(whole);
            }
            kind::RST_STREAM => {
                let response = self.responses.entry(frame.stream).or_default();
                response.reset = Some(frame.number(0));
            }
            kind::SETTINGS if !frame.has(flag::ACK) => {
                for pair in frame.payload.chunks(6) {
                    let setting = u16::from_be_bytes([pair[0], pair[1]]);
                    let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
                    self.settings.insert(setting, value);
                }
                if self.acknowledges {
                    let _ = self.try_send(settings_ack());
                }
            }
            kind::PING if !frame.has(flag::ACK) && self.acknowledges => {
                let _ = self.try_send(self::frame(kind::PING, flag::ACK, 0, &frame.payload));
            }
            kind::GOAWAY => self.goaways.push((frame.number(0), frame.number(4))),
            kind::WINDOW_UPDATE => {
                let window = match frame.stream {
                    0 => &mut self.window,
                    stream => self.windows.entry(stream).or_default(),
                };
                *window += i64::from(frame.number(0));
            }
            _ => {}
        }
    }

    fn note_block(&mut self, whole: Frame) {
        if !whole.has(flag::END_HEADERS) {
            self.partial = Some(whole);
            return;
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let fields = self.decoder.decode(&whole.payload).unwrap().into_iter();
        let fields = fields.map(|(name, value)| (text(name), text(value)));
        let response = self.responses.entry(whole.stream).or_default();
        assert!(!response.ended, "a field block after the end of its stream");
        response.take_head(fields.collect());
        response.ended = whole.has(flag::END_STREAM);
    }

    /// The frames that arrived on a stream so far.
    pub(crate) fn received(&mut self, stream: u32) -> &mut StreamResponse {
        self.responses.entry(stream).or_default()
    }

    /// Reads until this is so.
    ///
    /// # Errors
    /// The connection ended, or nothing came for long.
    pub(crate) fn read_until(
        &mut self,
        mut reached: impl FnMut(&mut Self) -> bool,
    ) -> io::Result<()> {
        while !reached(self) {
            self.read()?;
        }
        Ok(())
    }

    /// As [`Peer::read_until`], where it has to come.
    pub(crate) fn until(&mut self, what: &str, reached: impl FnMut(&mut Self) -> bool) {
        if let Err(error) = self.read_until(reached) {
            panic!("{error} before {what}; GOAWAY {:?}", self.goaways);
        }
    }

    /// The whole response on a stream.
    pub(crate) fn response(&mut self, stream: u32) -> StreamResponse {
        self.until(&format!("the response on stream {stream}"), |peer| {
            let response = peer.received(stream);
            assert_eq!(
                response.reset, None,
                "stream {stream} was reset: {response:?}"
            );
            response.ended
        });
        self.responses.remove(&stream).unwrap()
    }

    /// The head of the response on a stream, which may go on.
    pub(crate) fn head(&mut self, stream: u32) -> StreamResponse {
        self.until(&format!("the head on stream {stream}"), |peer| {
            let response = peer.received(stream);
            assert_eq!(
                response.reset, None,
                "stream {stream} was reset: {response:?}"
            );
            response.status != 0
        });
        self.received(stream).clone()
    }

    /// The code with which the server resets a stream.
    pub(crate) fn reset_of(&mut self, stream: u32) -> u32 {
        self.until(&format!("the reset of stream {stream}"), |peer| {
            peer.received(stream).reset.is_some()
        });
        self.received(stream).reset.unwrap()
    }

    /// The code of the last GOAWAY before the server closes.
    pub(crate) fn goaway(&mut self) -> u32 {
        let end = loop {
            if let Err(error) = self.read() {
                break error;
            }
        };
        assert!(is_end(&end), "not closed: {end}; GOAWAY {:?}", self.goaways);
        match self.goaways.last() {
            Some((_, code)) => *code,
            None => panic!("closed without GOAWAY: {end}"),
        }
    }

    /// The server closes, with a GOAWAY that has nothing to complain of.
    pub(crate) fn assert_ended(&mut self) {
        assert_eq!(self.goaway(), code::NO_ERROR);
    }

    /// Reads all that the server sent up to now: it has acknowledged two PING frames, one after the other.
    pub(crate) fn fence(&mut self) {
        for _ in 0..2 {
            self.next_ping += 1;
            let payload = self.next_ping;
            self.send(ping(payload));
            loop {
                let frame = self.read().expect("a response to a PING");
                if frame.kind == kind::PING
                    && frame.has(flag::ACK)
                    && frame.payload == payload.to_be_bytes()
                {
                    break;
                }
            }
        }
    }
}

/// Whether an error of a read means that the connection has ended.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

impl Peer<TcpStream> {
    /// Reads the available input. Returns whether the connection is still open.
    pub(crate) fn pump(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let filled = self.fill();
        self.stream.set_nonblocking(false).unwrap();
        while let Some(frame) = self.take_frame() {
            self.note(&frame);
        }
        match filled {
            Ok(read) => read > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Sends these bytes, made anew for each turn, until the server sends GOAWAY or closes. Returns the
    /// number of turns and the code.
    pub(crate) fn flood(
        &mut self,
        most: usize,
        mut turn: impl FnMut(&mut Self) -> Vec<u8>,
    ) -> (usize, u32) {
        for turns in 0..most {
            let bytes = turn(self);
            if self.try_send(bytes).is_err() || !self.pump() || !self.goaways.is_empty() {
                return (turns, self.goaway());
            }
        }
        // The server may not have handled the last bytes.
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
        match self.goaway() {
            code::NO_ERROR => panic!("{most} turns were not stopped"),
            code => (most, code),
        }
    }
}
