//! A peer that builds valid and invalid frames by hand, and reads the responses of an echo.

use apus_websocket::codec::{CodecSettings, WebSocketConnection, WebSocketEvent};
use bytes::BytesMut;

/// A frame that is sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// FIN, the reserved bits and the opcode.
    pub(crate) first: u8,
    pub(crate) mask: Option<[u8; 4]>,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const FIN: u8 = 0x80;
pub(crate) const RSV1: u8 = 0x40;
pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// A frame of a client.
pub(crate) fn frame(first: u8, payload: impl AsRef<[u8]>) -> Frame {
    Frame {
        first,
        mask: Some([0xa1, 0x5c, 0x00, 0x93]),
        payload: payload.as_ref().to_vec(),
    }
}

pub(crate) fn text(payload: impl AsRef<[u8]>) -> Frame {
    frame(FIN | TEXT, payload)
}

pub(crate) fn binary(payload: impl AsRef<[u8]>) -> Frame {
    frame(FIN | BINARY, payload)
}

pub(crate) fn ping(payload: impl AsRef<[u8]>) -> Frame {
    frame(FIN | PING, payload)
}

pub(crate) fn pong(payload: impl AsRef<[u8]>) -> Frame {
    frame(FIN | PONG, payload)
}

pub(crate) fn close(code: u16, reason: impl AsRef<[u8]>) -> Frame {
    frame(
        FIN | CLOSE,
        [&code.to_be_bytes()[..], reason.as_ref()].concat(),
    )
}

/// A close frame without a payload.
pub(crate) fn close_without_code() -> Frame {
    frame(FIN | CLOSE, [])
}

impl Frame {
    /// The same as a server sends it.
    pub(crate) fn unmasked(self) -> Self {
        Self { mask: None, ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        let mut bytes = vec![self.first];
        match self.payload.len() {
            len @ 0..126 => bytes.push(masked | len as u8),
            len @ 126..65536 => {
                bytes.push(masked | 126);
                bytes.extend((len as u16).to_be_bytes());
            }
            len => {
                bytes.push(masked | 127);
                bytes.extend((len as u64).to_be_bytes());
            }
        }
        bytes.extend(self.mask.into_iter().flatten());
        let key = self.mask.unwrap_or_default();
        let payload = self.payload.iter().enumerate();
        bytes.extend(payload.map(|(at, byte)| byte ^ key[at % 4]));
        bytes
    }

    /// Decodes bytes that are whole frames.
    pub(crate) fn read_all(mut bytes: &[u8]) -> Vec<Self> {
        let mut frames = Vec::new();
        while let [first, second, rest @ ..] = bytes {
            let (len, rest) = match second & 0x7f {
                126 => (
                    usize::from(u16::from_be_bytes([rest[0], rest[1]])),
                    &rest[2..],
                ),
                127 => {
                    let len = u64::from_be_bytes(rest[..8].try_into().unwrap());
                    (len as usize, &rest[8..])
                }
                len => (usize::from(len), rest),
            };
            let (mask, rest) = match second & 0x80 {
                0 => (None, rest),
                _ => (Some(<[u8; 4]>::try_from(&rest[..4]).unwrap()), &rest[4..]),
            };
            let key = mask.unwrap_or_default();
            let payload = rest[..len].iter().enumerate();
            frames.push(Self {
                first: *first,
                mask,
                payload: payload.map(|(at, byte)| byte ^ key[at % 4]).collect(),
            });
            bytes = &rest[len..];
        }
        assert!(bytes.is_empty(), "{bytes:x?}");
        frames
    }
}

/// One end of a connection, which sends back every message.
pub(crate) struct Echo {
    pub(crate) connection: WebSocketConnection,
    input: BytesMut,
    pub(crate) events: Vec<WebSocketEvent>,
}

impl Echo {
    pub(crate) fn server(settings: &CodecSettings) -> Self {
        Self::of(WebSocketConnection::server(settings))
    }

    pub(crate) fn of(connection: WebSocketConnection) -> Self {
        Self {
            connection,
            input: BytesMut::new(),
            events: Vec::new(),
        }
    }

    /// Takes received bytes and returns those to send.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.input.extend_from_slice(bytes);
        while let Some(event) = self.connection.handle_input(&mut self.input) {
            if let WebSocketEvent::Message(message) = &event {
                let _ = self.connection.send(message.clone());
            }
            if let WebSocketEvent::Close(_) | WebSocketEvent::Failed(_) = &event {
                self.connection.respond_to_close();
            }
            self.events.push(event);
        }
        self.sent()
    }

    /// The bytes to send.
    pub(crate) fn sent(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        while !self.connection.output().is_empty() {
            let output = self.connection.output();
            sent.extend_from_slice(output);
            let len = output.len();
            self.connection.consume_output(len);
        }
        sent
    }

    /// Feeds bytes in pieces of a size, and returns the frames of the response.
    pub(crate) fn responses(&mut self, bytes: &[u8], size: usize) -> Vec<Frame> {
        let pieces = bytes.chunks(size);
        let sent: Vec<u8> = pieces.flat_map(|piece| self.feed(piece)).collect();
        Frame::read_all(&sent)
    }
}
