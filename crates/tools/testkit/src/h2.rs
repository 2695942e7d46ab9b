//! Frames of HTTP/2 (RFC 9113), for tests that send exactly these bytes.
//!
//! It shares nothing with the code under test: it writes fields as literals that are not indexed.

/// The connection preface of a client (section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest frame that may be sent before other settings are known (section 4.2).
pub const FRAME: usize = 16_384;

/// The windows that both sides begin with (section 6.9.2).
pub const WINDOW: usize = 65_535;

/// RawFrame types (section 6, RFC 9218 section 7.1).
pub mod kind {
    /// Section 6.1.
    pub const DATA: u8 = 0;
    /// Section 6.2.
    pub const HEADERS: u8 = 1;
    /// Section 6.3.
    pub const PRIORITY: u8 = 2;
    /// Section 6.4.
    pub const RST_STREAM: u8 = 3;
    /// Section 6.5.
    pub const SETTINGS: u8 = 4;
    /// Section 6.6.
    pub const PUSH_PROMISE: u8 = 5;
    /// Section 6.7.
    pub const PING: u8 = 6;
    /// Section 6.8.
    pub const GOAWAY: u8 = 7;
    /// Section 6.9.
    pub const WINDOW_UPDATE: u8 = 8;
    /// Section 6.10.
    pub const CONTINUATION: u8 = 9;
    /// RFC 9218 section 7.1.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
pub mod flag {
    /// No flag.
    pub const NONE: u8 = 0;
    /// Of SETTINGS and PING.
    pub const ACK: u8 = 1;
    /// Of DATA and HEADERS.
    pub const END_STREAM: u8 = 1;
    /// Of HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 4;
    /// Of DATA and HEADERS.
    pub const PADDED: u8 = 8;
    /// Of HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Error codes (section 7).
pub mod code {
    /// The end in order.
    pub const NO_ERROR: u32 = 0;
    /// The protocol was broken in a way that has no other code.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// A fault of the sender of the code.
    pub const INTERNAL_ERROR: u32 = 2;
    /// More was sent than a window allows.
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    /// A frame came on a stream that was closed.
    pub const STREAM_CLOSED: u32 = 5;
    /// A frame has a length that its type does not allow.
    pub const FRAME_SIZE_ERROR: u32 = 6;
    /// Nothing of the request was processed.
    pub const REFUSED_STREAM: u32 = 7;
    /// The stream is not needed any more.
    pub const CANCEL: u32 = 8;
    /// A field block cannot be decoded.
    pub const COMPRESSION_ERROR: u32 = 9;
    /// The peer causes too much work.
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// Settings (section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1).
pub mod setting {
    /// The size of the dynamic table, in bytes.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Whether the server may push.
    pub const ENABLE_PUSH: u16 = 2;
    /// How many streams the peer may have open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// The window that streams begin with, in bytes.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// The largest payload of a frame, in bytes.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Whether extended CONNECT is accepted.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// Whether the priorities of RFC 7540 are ignored.
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// A frame as it came.
#[derive(Clone, Debug)]
pub struct RawFrame {
    /// The type.
    pub kind: u8,
    /// The flags.
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
    /// What follows the header.
    pub payload: Vec<u8>,
}

impl RawFrame {
    /// Whether it has this flag.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The 32-bit number that begins at this byte of the payload.
    pub fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// An integer of HPACK with a prefix of this many bits, the bits above it set to `high`
/// (RFC 7541 section 5.1).
pub fn integer(high: u8, bits: u8, value: usize) -> Vec<u8> {
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
pub fn literal(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    string(0, name.as_ref(), value.as_ref())
}

/// A field line as a literal that enters the dynamic table (RFC 7541 section 6.2.1).
pub fn indexed_literal(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
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
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|(name, value)| literal(name, value))
        .collect()
}

/// The frames of a field block: HEADERS, and CONTINUATION if it is long.
pub fn head(stream: u32, block: &[u8], end: bool) -> Vec<u8> {
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
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    head(stream, &block(&request("GET", path)), true)
}

/// The pseudo-header fields of a request.
pub fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ]
}

/// A request with more fields.
pub fn request_with<'a>(
    method: &'a str,
    path: &'a str,
    fields: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [request(method, path), fields.to_vec()].concat()
}

/// DATA frames of the largest size.
pub fn data(stream: u32, body: impl AsRef<[u8]>, end: bool) -> Vec<u8> {
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

/// A SETTINGS frame.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (setting, value) in values {
        payload.extend(setting.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(kind::SETTINGS, flag::NONE, 0, payload)
}

/// The acknowledgement of SETTINGS.
pub fn settings_ack() -> Vec<u8> {
    frame(kind::SETTINGS, flag::ACK, 0, [])
}

/// A WINDOW_UPDATE frame.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    let increment = increment.to_be_bytes();
    frame(kind::WINDOW_UPDATE, flag::NONE, stream, increment)
}

/// An RST_STREAM frame.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, flag::NONE, stream, code.to_be_bytes())
}

/// A PING frame.
pub fn ping(payload: u64) -> Vec<u8> {
    frame(kind::PING, flag::NONE, 0, payload.to_be_bytes())
}

/// A PRIORITY frame (RFC 7540 section 6.3).
pub fn priority(stream: u32, dependency: u32, weight: u8) -> Vec<u8> {
    let mut payload = dependency.to_be_bytes().to_vec();
    payload.push(weight);
    frame(kind::PRIORITY, flag::NONE, stream, payload)
}

/// A PRIORITY_UPDATE frame (RFC 9218 section 7.1).
pub fn priority_update(stream: u32, value: &str) -> Vec<u8> {
    let mut payload = stream.to_be_bytes().to_vec();
    payload.extend_from_slice(value.as_bytes());
    frame(kind::PRIORITY_UPDATE, flag::NONE, 0, payload)
}
