//! The errors of HTTP/2 connections and streams, and their codes (RFC 9113 sections 5.4 and 7).

use std::fmt;

use crate::flood::Flood;
use crate::messages::MessageFault;

/// An error code of RST_STREAM or GOAWAY (RFC 9113 section 7).
///
/// A peer can send any number; unknown codes mean the same as `INTERNAL_ERROR`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// No error: a graceful shutdown, or a request body that is not needed.
    NO_ERROR = 0x0,
    /// A protocol error without a more specific code.
    PROTOCOL_ERROR = 0x1,
    /// The sender had an internal error.
    INTERNAL_ERROR = 0x2,
    /// The peer sent more than the windows allow.
    FLOW_CONTROL_ERROR = 0x3,
    /// Settings were not acknowledged in time.
    SETTINGS_TIMEOUT = 0x4,
    /// A frame came for a stream that was half-closed.
    STREAM_CLOSED = 0x5,
    /// A frame has a size that its type does not allow.
    FRAME_SIZE_ERROR = 0x6,
    /// The stream was refused before any processing; the request may be retried.
    REFUSED_STREAM = 0x7,
    /// The stream is no longer needed.
    CANCEL = 0x8,
    /// The header compression state is broken.
    COMPRESSION_ERROR = 0x9,
    /// The connection of a CONNECT was reset.
    CONNECT_ERROR = 0xa,
    /// The peer behaves as an attack does.
    ENHANCE_YOUR_CALM = 0xb,
    /// The transport is not secure enough.
    INADEQUATE_SECURITY = 0xc,
    /// HTTP/1.1 is needed for this request.
    HTTP_1_1_REQUIRED = 0xd,
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// Why a connection has to be closed. The GOAWAY with its code is encoded already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer broke the protocol: it is faulty, or uses another protocol.
    Protocol(Fault),
    /// The peer exhausted a budget that legitimate peers never come near: an attack.
    Flood(Flood),
}

impl ConnectionError {
    /// The code of the GOAWAY.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Protocol(fault) => fault.code(),
            Self::Flood(_) => ErrorCode::ENHANCE_YOUR_CALM,
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(fault) => fault.fmt(f),
            Self::Flood(flood) => flood.fmt(f),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<Fault> for ConnectionError {
    fn from(fault: Fault) -> Self {
        Self::Protocol(fault)
    }
}

impl From<MessageFault> for Fault {
    fn from(fault: MessageFault) -> Self {
        match fault {
            MessageFault::FieldSyntax => Self::FieldSyntax,
            MessageFault::ConnectionField => Self::ConnectionField,
            MessageFault::PseudoField => Self::PseudoField,
            MessageFault::Target => Self::Target,
            MessageFault::Host => Self::Host,
            MessageFault::ContentLength => Self::ContentLength,
        }
    }
}

impl From<Flood> for ConnectionError {
    fn from(flood: Flood) -> Self {
        Self::Flood(flood)
    }
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $code:ident, $text:literal,)*) => {
        /// A violation of the protocol by the peer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// The error code that is sent to the peer.
            pub fn code(self) -> ErrorCode {
                match self {
                    $(Self::$name => ErrorCode::$code,)*
                }
            }
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }

        impl std::error::Error for Fault {}
    };
}

faults! {
    /// The connection does not start with the preface (section 3.4).
    Preface: PROTOCOL_ERROR, "the connection preface is not HTTP/2's",
    /// The first frame is not SETTINGS (section 3.4).
    FirstFrame: PROTOCOL_ERROR, "the first frame is not SETTINGS",
    /// A frame is larger than the limit, or has a length that its type does not allow (section 4.2).
    FrameSize: FRAME_SIZE_ERROR, "a frame has an invalid size",
    /// A frame has a stream identifier that its type does not allow.
    StreamZero: PROTOCOL_ERROR, "a frame has a stream identifier that its type does not allow",
    /// A frame for an idle stream (section 5.1).
    IdleStream: PROTOCOL_ERROR, "a frame names a stream that was never opened",
    /// A stream identifier is even, or lower than one before (section 5.1.1).
    StreamIdentifier: PROTOCOL_ERROR, "a stream identifier is out of order",
    /// A frame for a stream that the peer has ended (section 5.1).
    StreamClosed: STREAM_CLOSED, "a frame arrived on a stream that had ended",
    /// Another frame in the middle of a field block (section 4.3).
    Interleaved: PROTOCOL_ERROR, "a field block is interrupted by another frame",
    /// CONTINUATION without HEADERS before it (section 6.10).
    Continuation: PROTOCOL_ERROR, "CONTINUATION without HEADERS",
    /// The padding is longer than the frame (section 6.1).
    Padding: PROTOCOL_ERROR, "padding is longer than its frame",
    /// A field block cannot be decompressed (RFC 7541).
    Compression: COMPRESSION_ERROR, "a field block cannot be decompressed",
    /// A stream depends on itself (RFC 7540 section 5.3.1).
    SelfDependency: PROTOCOL_ERROR, "a stream depends on itself",
    /// A setting has an invalid value (section 6.5.2).
    SettingValue: PROTOCOL_ERROR, "a setting has an invalid value",
    /// SETTINGS_INITIAL_WINDOW_SIZE past 2^31-1, or a window grown past it (section 6.9.1).
    WindowOverflow: FLOW_CONTROL_ERROR, "a flow-control window grew past 2^31-1",
    /// A WINDOW_UPDATE of zero (section 6.9).
    WindowIncrement: PROTOCOL_ERROR, "WINDOW_UPDATE with an increment of zero",
    /// More data than the windows allow (section 6.9.1).
    WindowExceeded: FLOW_CONTROL_ERROR, "more data came than the window allows",
    /// PUSH_PROMISE, which a client must not send, and which this end disabled for servers (section 8.4).
    Push: PROTOCOL_ERROR, "PUSH_PROMISE is not allowed",
    /// An acknowledgement of SETTINGS that were not sent (section 6.5.3).
    SettingsAck: PROTOCOL_ERROR, "the acknowledged settings were never sent",
    /// A PRIORITY_UPDATE with an invalid stream identifier (RFC 9218 section 7.1).
    PriorityUpdate: PROTOCOL_ERROR, "PRIORITY_UPDATE names an invalid stream",
    /// A field name or value that HTTP/2 does not allow (section 8.2.1).
    FieldSyntax: PROTOCOL_ERROR, "a field name or value contains a forbidden byte",
    /// A connection-specific field of HTTP/1.1 (section 8.2.2).
    ConnectionField: PROTOCOL_ERROR, "connection-specific fields are not allowed in HTTP/2",
    /// A pseudo-header field is unknown, repeated, missing or out of place (section 8.3).
    PseudoField: PROTOCOL_ERROR, "a pseudo-header field is unknown, repeated, missing or misplaced",
    /// The target, the authority or the method is invalid (section 8.3.1).
    Target: PROTOCOL_ERROR, "the target or the method of the request is invalid",
    /// `Host` and `:authority` disagree (section 8.3.1).
    Host: PROTOCOL_ERROR, "host and :authority are not the same",
    /// The head of a response, or a trailer section, is larger than the limits (at a client).
    HeadTooLarge: CANCEL, "a field section is larger than allowed",
    /// Content-Length is not a number, or not the length of the body (section 8.1.1).
    ContentLength: PROTOCOL_ERROR, "content-length is not the length of the body",
    /// A trailer section that does not end the stream, or has pseudo-header fields (section 8.1).
    Trailers: PROTOCOL_ERROR, "a trailer section must end its stream and must not have pseudo-header fields",
}
