//! Protocol violations of a peer, with their close codes (RFC 6455 section 7.4.1).

use std::fmt;

use super::close_code::CloseCode;

/// A violation of RFC 6455 or RFC 7692 by the peer, or of our limits. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebSocketProtocolError {
    /// A reserved bit is set that no negotiated extension uses: the peer compresses without negotiation, or
    /// the bytes are not a frame.
    ReservedBits,
    /// The opcode is reserved.
    ReservedOpcode,
    /// A frame of a client is not masked.
    Unmasked,
    /// A frame of a server is masked.
    Masked,
    /// A length is not in its shortest form, or has its highest bit set.
    LengthEncoding,
    /// A control frame is fragmented.
    FragmentedControl,
    /// A control frame has a payload of more than 125 bytes.
    LongControl,
    /// A continuation frame comes without a message to continue.
    UnexpectedContinuation,
    /// A message begins before the previous one ended.
    InterruptedMessage,
    /// Text is not UTF-8.
    InvalidUtf8,
    /// The payload of a close frame is one byte.
    ClosePayload,
    /// The close code must not be sent.
    CloseCode,
    /// The compressed data is invalid.
    Compression,
    /// A frame is longer than the limit.
    FrameTooLong,
    /// A message is longer than the limit, before or after decompression.
    MessageTooLong,
}

impl WebSocketProtocolError {
    /// The close code for the peer (RFC 6455 section 7.4.1).
    pub fn code(self) -> CloseCode {
        match self {
            Self::InvalidUtf8 | Self::Compression => CloseCode::INVALID_PAYLOAD,
            Self::FrameTooLong | Self::MessageTooLong => CloseCode::TOO_BIG,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::ReservedBits => "a reserved bit is set that no negotiated extension uses",
            Self::ReservedOpcode => "the opcode is reserved",
            Self::Unmasked => "frames of a client must be masked",
            Self::Masked => "frames of a server must not be masked",
            Self::LengthEncoding => "the length is not in its shortest form",
            Self::FragmentedControl => "control frames must not be fragmented",
            Self::LongControl => "control frames must not be longer than 125 bytes",
            Self::UnexpectedContinuation => "there is no message to continue",
            Self::InterruptedMessage => "a message begins before the previous one ended",
            Self::InvalidUtf8 => "text must be UTF-8",
            Self::ClosePayload => "the payload of a close frame must not be one byte",
            Self::CloseCode => "the close code must not be sent",
            Self::Compression => "the compressed data is invalid",
            Self::FrameTooLong => "the frame is longer than allowed",
            Self::MessageTooLong => "the message is longer than allowed",
        }
    }

    /// The reason in a close frame.
    pub(super) fn reason(self) -> &'static str {
        self.text()
    }
}

impl fmt::Display for WebSocketProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for WebSocketProtocolError {}
