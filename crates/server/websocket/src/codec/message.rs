//! Messages, and messages that are encoded once for many connections (RFC 6455 section 5.6).

use bytes::Bytes;
use bytestring::ByteString;

use super::deflate;
use super::extension::{Compression, Window};
use super::frame::{Opcode, whole_frame};

/// A message of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// UTF-8 text.
    Text(ByteString),
    /// Binary data.
    Binary(Bytes),
}

impl Message {
    /// A text message.
    pub fn text(text: impl Into<ByteString>) -> Self {
        Self::Text(text.into())
    }

    /// A binary message.
    pub fn binary(bytes: impl Into<Bytes>) -> Self {
        Self::Binary(bytes.into())
    }

    /// The text of a text message.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }

    /// The payload.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// The payload, without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// The length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    pub(super) fn opcode(&self) -> Opcode {
        match self {
            Self::Text(_) => Opcode::Text,
            Self::Binary(_) => Opcode::Binary,
        }
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&'static str> for Message {
    fn from(text: &'static str) -> Self {
        Self::Text(ByteString::from_static(text))
    }
}

impl From<ByteString> for Message {
    fn from(text: ByteString) -> Self {
        Self::Text(text)
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self::binary(bytes)
    }
}

/// A server's message, encoded once for any number of connections. Clones share its bytes, also between
/// threads.
#[derive(Clone, Debug)]
pub struct PreparedMessage {
    plain: Bytes,
    /// The compressed frame, for connections without context takeover and with the largest window.
    compressed: Option<Bytes>,
}

impl PreparedMessage {
    /// Encodes a message, and its compressed form, too, if `compression` is given and makes it shorter.
    pub fn new(message: &Message, compression: Option<&Compression>) -> Self {
        let compressed = compression
            .filter(|compression| message.len() >= compression.min_length)
            .and_then(|compression| {
                deflate::deflate_standalone(
                    message.as_bytes(),
                    Window::SHARED.bits,
                    compression.level,
                )
            });
        Self {
            plain: whole_frame(message.opcode(), false, message.as_bytes()),
            compressed: compressed.map(|bytes| whole_frame(message.opcode(), true, &bytes)),
        }
    }

    /// The frame for a connection without compression.
    pub fn as_bytes(&self) -> &[u8] {
        &self.plain
    }

    /// The frame for a connection with this compression window, if any.
    pub(super) fn bytes_for(&self, window: Option<Window>) -> Bytes {
        match &self.compressed {
            Some(compressed) if window == Some(Window::SHARED) => compressed.clone(),
            _ => self.plain.clone(),
        }
    }
}
