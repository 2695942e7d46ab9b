//! What happens on a connection, and how it ends.

use std::fmt;

use apus_quic_protocol::{ConnectionEnd, StreamEvent, StreamReadError, StreamWriteError};
use bytes::Bytes;

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuicEvent {
    /// The handshake is complete. A client whose early data was rejected has to send it again: its streams are gone.
    Connected {
        /// Whether the server accepted the early data of this client.
        early_data_accepted: bool,
    },
    /// Something on a stream.
    Stream(StreamEvent),
    /// The connection has ended. No other event follows.
    Closed(QuicCloseReason),
}

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuicCloseReason {
    /// This end closed it.
    Local,
    /// The application of the peer closed it.
    Application {
        /// The error code of the application.
        code: u64,
        /// The text that the peer sent.
        reason: Bytes,
    },
    /// The transport or the TLS of the peer closed it (RFC 9000 section 20.1).
    Peer {
        /// The error code: an alert of TLS is 0x100 and its description.
        code: u64,
        /// The text that the peer sent.
        reason: Bytes,
    },
    /// The peer broke the protocol, or the handshake failed here.
    Transport {
        /// The error code that the peer got.
        code: u64,
        /// The cause.
        reason: String,
    },
    /// The peer does not know the connection: it sent a stateless reset (RFC 9000 section 10.3).
    Reset,
    /// No packet came for the idle timeout.
    IdleTimeout,
    /// The handshake took too long: the peer does not respond, or is slow.
    HandshakeTimeout,
    /// The peer supports no version of QUIC that this end does.
    NoCommonVersion,
    /// This endpoint has no connection IDs left.
    NoConnectionIds,
    /// It gave way to others: it was half-open longer than others, or held more data that nobody has read.
    Evicted,
}

impl From<ConnectionEnd> for QuicCloseReason {
    fn from(error: ConnectionEnd) -> Self {
        match error {
            ConnectionEnd::VersionMismatch => Self::NoCommonVersion,
            ConnectionEnd::Transport(error) => Self::Transport {
                code: error.code.into(),
                reason: error.reason,
            },
            ConnectionEnd::Peer { code, reason } => Self::Peer { code, reason },
            ConnectionEnd::Application { code, reason } => Self::Application { code, reason },
            ConnectionEnd::Reset => Self::Reset,
            ConnectionEnd::TimedOut => Self::IdleTimeout,
        }
    }
}

impl fmt::Display for QuicCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this end"),
            Self::Application { code, reason } => {
                let reason = String::from_utf8_lossy(reason);
                write!(
                    f,
                    "closed by the application of the peer: {code:#x} {reason}"
                )
            }
            Self::Peer { code, reason } => {
                let reason = String::from_utf8_lossy(reason);
                write!(f, "closed by the peer: {code:#x} {reason}")
            }
            Self::Transport { code, reason } => {
                write!(f, "an error of the transport: {code:#x} {reason}")
            }
            Self::Reset => f.write_str("the peer does not know the connection any more"),
            Self::IdleTimeout => f.write_str("the peer was silent for the idle timeout"),
            Self::HandshakeTimeout => f.write_str("the handshake took too long"),
            Self::NoCommonVersion => f.write_str("the peer supports no common version of QUIC"),
            Self::NoConnectionIds => f.write_str("no connection IDs are left"),
            Self::Evicted => f.write_str("it gave way to other connections"),
        }
    }
}

impl std::error::Error for QuicCloseReason {}

/// The state of a stream after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRead {
    /// No more data has come. [`StreamEvent::Readable`] follows when there is some.
    Blocked,
    /// The limit is reached. There may be more data; no event follows until it is read.
    Limited,
    /// All data of the stream has been read. The stream is over.
    Finished,
}

/// Why a stream cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer reset the stream that is read.
    Reset {
        /// The error code of the application.
        code: u64,
    },
    /// The peer does not read the stream that is written.
    Stopped {
        /// The error code of the application.
        code: u64,
    },
    /// The stream is not open: it has been finished, reset or stopped, or never existed.
    Closed,
}

impl From<StreamReadError> for StreamError {
    fn from(error: StreamReadError) -> Self {
        match error {
            StreamReadError::Reset { code } => Self::Reset { code },
            StreamReadError::Closed => Self::Closed,
        }
    }
}

impl From<StreamWriteError> for StreamError {
    fn from(error: StreamWriteError) -> Self {
        match error {
            StreamWriteError::Stopped { code } => Self::Stopped { code },
            StreamWriteError::Closed => Self::Closed,
        }
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset { code } => write!(f, "the peer reset the stream: {code:#x}"),
            Self::Stopped { code } => write!(f, "the peer does not read the stream: {code:#x}"),
            Self::Closed => f.write_str("the stream is not open"),
        }
    }
}

impl std::error::Error for StreamError {}
