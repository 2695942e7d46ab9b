//! The errors of HTTP/3 connections and streams, and their codes (RFC 9114 section 8, RFC 9204 section 6).

use std::fmt;

use apus_codec::flood::Flood;
use apus_codec::messages::MessageFault;

/// An error code of a connection or a stream (RFC 9114 section 8.1, RFC 9204 section 6).
///
/// A peer can send any number; unknown codes mean the same as `H3_NO_ERROR`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct H3ErrorCode(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal,)*) => {
        impl H3ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// No error: a graceful shutdown, or a request body that is not needed.
    NO_ERROR = 0x100, "H3_NO_ERROR",
    /// A violation of the protocol without a more specific code.
    GENERAL_PROTOCOL_ERROR = 0x101, "H3_GENERAL_PROTOCOL_ERROR",
    /// The sender had an internal error.
    INTERNAL_ERROR = 0x102, "H3_INTERNAL_ERROR",
    /// The peer opened a stream that it may not open.
    STREAM_CREATION_ERROR = 0x103, "H3_STREAM_CREATION_ERROR",
    /// A stream that the connection needs was closed.
    CLOSED_CRITICAL_STREAM = 0x104, "H3_CLOSED_CRITICAL_STREAM",
    /// A frame is not allowed in this state or on this stream.
    FRAME_UNEXPECTED = 0x105, "H3_FRAME_UNEXPECTED",
    /// A frame has an invalid layout or size.
    FRAME_ERROR = 0x106, "H3_FRAME_ERROR",
    /// The peer behaves as an attack does.
    EXCESSIVE_LOAD = 0x107, "H3_EXCESSIVE_LOAD",
    /// A stream or push identifier is used incorrectly.
    ID_ERROR = 0x108, "H3_ID_ERROR",
    /// SETTINGS has an error.
    SETTINGS_ERROR = 0x109, "H3_SETTINGS_ERROR",
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a, "H3_MISSING_SETTINGS",
    /// The request was refused before any processing; it may be retried.
    REQUEST_REJECTED = 0x10b, "H3_REQUEST_REJECTED",
    /// The request or its response is no longer needed.
    REQUEST_CANCELLED = 0x10c, "H3_REQUEST_CANCELLED",
    /// The client's stream ended before its request did.
    REQUEST_INCOMPLETE = 0x10d, "H3_REQUEST_INCOMPLETE",
    /// A message is malformed.
    MESSAGE_ERROR = 0x10e, "H3_MESSAGE_ERROR",
    /// The connection of a CONNECT was reset.
    CONNECT_ERROR = 0x10f, "H3_CONNECT_ERROR",
    /// HTTP/1.1 is needed for this request.
    VERSION_FALLBACK = 0x110, "H3_VERSION_FALLBACK",
    /// A field section cannot be decompressed.
    QPACK_DECOMPRESSION_FAILED = 0x200, "QPACK_DECOMPRESSION_FAILED",
    /// The encoder stream has an error.
    QPACK_ENCODER_STREAM_ERROR = 0x201, "QPACK_ENCODER_STREAM_ERROR",
    /// The decoder stream has an error.
    QPACK_DECODER_STREAM_ERROR = 0x202, "QPACK_DECODER_STREAM_ERROR",
}

impl fmt::Debug for H3ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for H3ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// Why a connection has to be closed, with [`code`](Self::code).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum H3Error {
    /// The peer broke the protocol: it is faulty, or uses another protocol.
    Protocol(H3Fault),
    /// The peer exhausted a budget that legitimate peers never come near: an attack.
    Flood(Flood),
}

impl H3Error {
    /// The code of the CONNECTION_CLOSE frame.
    pub fn code(self) -> H3ErrorCode {
        match self {
            Self::Protocol(fault) => fault.code(),
            Self::Flood(_) => H3ErrorCode::EXCESSIVE_LOAD,
        }
    }
}

impl fmt::Display for H3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(fault) => fault.fmt(f),
            Self::Flood(flood) => flood.fmt(f),
        }
    }
}

impl std::error::Error for H3Error {}

impl From<H3Fault> for H3Error {
    fn from(fault: H3Fault) -> Self {
        Self::Protocol(fault)
    }
}

impl From<Flood> for H3Error {
    fn from(flood: Flood) -> Self {
        Self::Flood(flood)
    }
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $code:ident, $text:literal,)*) => {
        /// A violation of the protocol by the peer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum H3Fault {
            $($(#[$doc])* $name,)*
            /// A message is malformed (section 4.1.2).
            Message(MessageFault),
        }

        impl H3Fault {
            /// The error code that is sent to the peer.
            pub fn code(self) -> H3ErrorCode {
                match self {
                    $(Self::$name => H3ErrorCode::$code,)*
                    Self::Message(_) => H3ErrorCode::MESSAGE_ERROR,
                }
            }
        }

        impl fmt::Display for H3Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                    Self::Message(fault) => return fault.fmt(f),
                })
            }
        }

        impl std::error::Error for H3Fault {}
    };
}

faults! {
    /// A bidirectional stream that a server opened (section 6.1).
    ServerStream: STREAM_CREATION_ERROR, "a server must not open bidirectional streams",
    /// A second control or QPACK stream (section 6.2.1, RFC 9204 section 4.2).
    SecondCriticalStream: STREAM_CREATION_ERROR, "a second control or QPACK stream was opened",
    /// A push stream of a client (section 6.2.2).
    ClientPush: STREAM_CREATION_ERROR, "a client must not open push streams",
    /// A push identifier, although this end allowed none (sections 4.6 and 7.2.7).
    PushId: ID_ERROR, "a push identifier was not allowed",
    /// The control stream or a QPACK stream ended (section 6.2.1, RFC 9204 section 4.2).
    ClosedCriticalStream: CLOSED_CRITICAL_STREAM, "a control or QPACK stream was closed",
    /// The control stream does not begin with SETTINGS (section 6.2.1).
    MissingSettings: MISSING_SETTINGS, "the control stream does not begin with SETTINGS",
    /// A frame on a stream or at a place where its type is not allowed (section 7.2).
    UnexpectedFrame: FRAME_UNEXPECTED, "a frame is not allowed on its stream, or at its place",
    /// A frame type of HTTP/2 (section 7.2.8).
    Http2Frame: FRAME_UNEXPECTED, "a frame has a type that only HTTP/2 has",
    /// A frame whose length does not fit its content, or that is cut off by the end of its stream (section 7.1).
    FrameSize: FRAME_ERROR, "a frame has an invalid size",
    /// A setting of HTTP/2 (section 7.2.4.1).
    Http2Setting: SETTINGS_ERROR, "SETTINGS has a setting that only HTTP/2 has",
    /// A setting occurs twice (section 7.2.4).
    RepeatedSetting: SETTINGS_ERROR, "SETTINGS has a setting twice",
    /// A setting has an invalid value (RFC 9220 section 3).
    SettingValue: SETTINGS_ERROR, "a setting has an invalid value",
    /// GOAWAY with an identifier of another type, or one that is greater than before (section 5.2).
    GoAwayId: ID_ERROR, "GOAWAY has an invalid identifier",
    /// MAX_PUSH_ID is lower than before (section 7.2.7).
    MaxPushId: ID_ERROR, "MAX_PUSH_ID is lower than before",
    /// A PRIORITY_UPDATE with an invalid identifier (RFC 9218 section 7.2).
    PriorityUpdate: ID_ERROR, "PRIORITY_UPDATE names an invalid stream",
    /// A field section cannot be decompressed (RFC 9204 section 2.2).
    Decompression: QPACK_DECOMPRESSION_FAILED, "a field section cannot be decompressed",
    /// More streams wait for inserts than this end allows (RFC 9204 section 2.1.2).
    BlockedStreams: QPACK_DECOMPRESSION_FAILED, "too many streams wait for inserts",
    /// An instruction of the encoder stream is invalid (RFC 9204 section 4.3).
    EncoderStream: QPACK_ENCODER_STREAM_ERROR, "an instruction of the QPACK encoder is invalid",
    /// An instruction of the decoder stream is invalid (RFC 9204 section 4.4).
    DecoderStream: QPACK_DECODER_STREAM_ERROR, "an instruction of the QPACK decoder is invalid",
    /// The client's stream ended before the head of its request did (section 4.1).
    RequestIncomplete: REQUEST_INCOMPLETE, "the stream ended before the request did",
    /// The server's stream ended before its response began (section 4.1).
    ResponseIncomplete: MESSAGE_ERROR, "the stream ended before the response did",
    /// The head of a response, or a trailer section, is larger than the limits.
    HeadTooLarge: REQUEST_CANCELLED, "a field section is larger than allowed",
}

impl From<MessageFault> for H3Fault {
    fn from(fault: MessageFault) -> Self {
        Self::Message(fault)
    }
}
