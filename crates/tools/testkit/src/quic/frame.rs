//! Frames of QUIC (RFC 9000 section 19).

use std::collections::BTreeSet;

/// Frame types (section 19).
pub mod kind {
    /// Section 19.1.
    pub const PADDING: u64 = 0x00;
    /// Section 19.2.
    pub const PING: u64 = 0x01;
    /// Section 19.3.
    pub const ACK: u64 = 0x02;
    /// Section 19.4.
    pub const RESET_STREAM: u64 = 0x04;
    /// Section 19.5.
    pub const STOP_SENDING: u64 = 0x05;
    /// Section 19.6.
    pub const CRYPTO: u64 = 0x06;
    /// Section 19.7.
    pub const NEW_TOKEN: u64 = 0x07;
    /// Section 19.8.
    pub const STREAM: u64 = 0x08;
    /// Section 19.9.
    pub const MAX_DATA: u64 = 0x10;
    /// Section 19.10.
    pub const MAX_STREAM_DATA: u64 = 0x11;
    /// Section 19.11, of bidirectional streams.
    pub const MAX_STREAMS: u64 = 0x12;
    /// Section 19.12.
    pub const DATA_BLOCKED: u64 = 0x14;
    /// Section 19.13.
    pub const STREAM_DATA_BLOCKED: u64 = 0x15;
    /// Section 19.14, of bidirectional streams.
    pub const STREAMS_BLOCKED: u64 = 0x16;
    /// Section 19.15.
    pub const NEW_CONNECTION_ID: u64 = 0x18;
    /// Section 19.16.
    pub const RETIRE_CONNECTION_ID: u64 = 0x19;
    /// Section 19.17.
    pub const PATH_CHALLENGE: u64 = 0x1a;
    /// Section 19.18.
    pub const PATH_RESPONSE: u64 = 0x1b;
    /// Section 19.19, of the transport.
    pub const CONNECTION_CLOSE: u64 = 0x1c;
    /// Section 19.19, of the application.
    pub const APPLICATION_CLOSE: u64 = 0x1d;
    /// Section 19.20.
    pub const HANDSHAKE_DONE: u64 = 0x1e;
}

/// A frame that the server sent. Those that tests do not look at are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// PING.
    Ping,
    /// ACK.
    Acknowledgement {
        /// The largest packet number.
        largest: u64,
    },
    /// RESET_STREAM.
    Reset {
        /// The stream.
        stream: u64,
        /// The code of the application.
        code: u64,
    },
    /// STOP_SENDING.
    StopSending {
        /// The stream.
        stream: u64,
        /// The code of the application.
        code: u64,
    },
    /// CRYPTO.
    Crypto {
        /// Of the first byte.
        offset: u64,
        /// A part of the TLS handshake.
        data: Vec<u8>,
    },
    /// STREAM.
    Stream {
        /// The stream.
        stream: u64,
        /// Of the first byte.
        offset: u64,
        /// Data of the application.
        data: Vec<u8>,
        /// Whether the stream ends with it.
        end: bool,
    },
    /// MAX_STREAMS of bidirectional streams.
    MaxStreams(u64),
    /// NEW_CONNECTION_ID.
    NewConnectionId {
        /// Its number.
        sequence: u64,
        /// The connection ID.
        id: Vec<u8>,
    },
    /// PATH_CHALLENGE.
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE.
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE.
    Close {
        /// The code of the transport or of the application.
        code: u64,
        /// Whether it is the application that closes.
        by_application: bool,
        /// A text for people.
        reason: String,
    },
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// Another frame.
    Other(u64),
}

impl ServerFrame {
    /// Whether it has to be acknowledged (RFC 9002 section 2).
    pub(super) fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Acknowledgement { .. } | Self::Close { .. })
    }
}

/// An integer in its shortest form (RFC 9000 section 16).
pub fn integer(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

/// A frame that consists of integers: its type and its fields.
pub fn integers(fields: &[u64]) -> Vec<u8> {
    fields.iter().flat_map(|field| integer(*field)).collect()
}

/// A STREAM frame with an offset and a length.
pub fn stream(id: u64, offset: u64, data: &[u8], end: bool) -> Vec<u8> {
    let kind = kind::STREAM | 0x6 | u64::from(end);
    let head = integers(&[kind, id, offset, data.len() as u64]);
    [&head, data].concat()
}

/// A CRYPTO frame.
pub fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    let head = integers(&[kind::CRYPTO, offset, data.len() as u64]);
    [&head, data].concat()
}

/// A NEW_CONNECTION_ID frame.
pub fn new_connection_id(sequence: u64, retire_prior_to: u64, id: &[u8]) -> Vec<u8> {
    let mut frame = integers(&[kind::NEW_CONNECTION_ID, sequence, retire_prior_to]);
    frame.push(id.len() as u8);
    frame.extend(id);
    frame.extend([sequence as u8; 16]);
    frame
}

/// PATH_CHALLENGE or PATH_RESPONSE.
pub fn path(kind: u64, data: [u8; 8]) -> Vec<u8> {
    [&integer(kind)[..], &data].concat()
}

/// An ACK frame for the last of these packet numbers, in at most 30 ranges.
pub fn acknowledgement(numbers: &BTreeSet<u64>) -> Vec<u8> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers.iter().rev() {
        match ranges.last_mut() {
            Some((first, _)) if *first == number + 1 => *first = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges.truncate(30);
    let (first, largest) = ranges[0];
    let count = ranges.len() as u64 - 1;
    let mut fields = vec![kind::ACK, largest, 0, count, largest - first];
    for pair in ranges.windows(2) {
        let ((before, _), (first, last)) = (pair[0], pair[1]);
        fields.extend([before - last - 2, last - first]);
    }
    integers(&fields)
}

/// What is left of a packet.
pub(super) struct ServerFrameReader<'a>(pub(super) &'a [u8]);

impl ServerFrameReader<'_> {
    pub(super) fn integer(&mut self) -> u64 {
        let length = 1 << (self.0[0] >> 6);
        let bytes = self.bytes(length);
        let first = u64::from(bytes[0] & 0x3f);
        let rest = bytes[1..].iter();
        rest.fold(first, |value, byte| value << 8 | u64::from(*byte))
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes.to_vec()
    }

    fn eight_bytes(&mut self) -> [u8; 8] {
        self.bytes(8).try_into().unwrap()
    }

    fn skip(&mut self, integers: usize) {
        for _ in 0..integers {
            self.integer();
        }
    }

    /// The next frame; PADDING is skipped.
    pub(super) fn frame(&mut self) -> Option<ServerFrame> {
        while let [0, rest @ ..] = self.0 {
            self.0 = rest;
        }
        if self.0.is_empty() {
            return None;
        }
        let kind = self.integer();
        Some(match kind {
            kind::PING => ServerFrame::Ping,
            kind::ACK | 0x3 => {
                let largest = self.integer();
                self.skip(1);
                let ranges = self.integer() as usize;
                self.skip(1 + 2 * ranges + if kind == 0x3 { 3 } else { 0 });
                ServerFrame::Acknowledgement { largest }
            }
            kind::RESET_STREAM => {
                let (stream, code) = (self.integer(), self.integer());
                self.skip(1);
                ServerFrame::Reset { stream, code }
            }
            kind::STOP_SENDING => ServerFrame::StopSending {
                stream: self.integer(),
                code: self.integer(),
            },
            kind::CRYPTO => {
                let (offset, length) = (self.integer(), self.integer());
                let data = self.bytes(length as usize);
                ServerFrame::Crypto { offset, data }
            }
            kind::NEW_TOKEN => {
                let length = self.integer();
                self.bytes(length as usize);
                ServerFrame::Other(kind)
            }
            0x08..=0x0f => {
                let stream = self.integer();
                let offset = if kind & 0x4 != 0 { self.integer() } else { 0 };
                let length = match kind & 0x2 {
                    0 => self.0.len(),
                    _ => self.integer() as usize,
                };
                ServerFrame::Stream {
                    stream,
                    offset,
                    data: self.bytes(length),
                    end: kind & 0x1 != 0,
                }
            }
            kind::MAX_STREAMS => ServerFrame::MaxStreams(self.integer()),
            kind::MAX_DATA
            | 0x13
            | kind::RETIRE_CONNECTION_ID
            | kind::DATA_BLOCKED
            | kind::STREAMS_BLOCKED
            | 0x17 => {
                self.skip(1);
                ServerFrame::Other(kind)
            }
            kind::MAX_STREAM_DATA | kind::STREAM_DATA_BLOCKED => {
                self.skip(2);
                ServerFrame::Other(kind)
            }
            kind::NEW_CONNECTION_ID => {
                let sequence = self.integer();
                self.skip(1);
                let length = self.bytes(1)[0];
                let id = self.bytes(length.into());
                self.bytes(16);
                ServerFrame::NewConnectionId { sequence, id }
            }
            kind::PATH_CHALLENGE => ServerFrame::PathChallenge(self.eight_bytes()),
            kind::PATH_RESPONSE => ServerFrame::PathResponse(self.eight_bytes()),
            kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => {
                let code = self.integer();
                let by_application = kind == kind::APPLICATION_CLOSE;
                self.skip(usize::from(!by_application));
                let length = self.integer();
                ServerFrame::Close {
                    code,
                    by_application,
                    reason: String::from_utf8_lossy(&self.bytes(length as usize)).into_owned(),
                }
            }
            kind::HANDSHAKE_DONE => ServerFrame::HandshakeDone,
            _ => panic!("a frame of type {kind:x} was not expected"),
        })
    }
}
