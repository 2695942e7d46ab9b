//! Error codes (RFC 9000 section 20), and how a connection ends.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;

/// An error code of the transport (RFC 9000 section 20.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransportErrorCode(u64);

impl TransportErrorCode {
    /// NO_ERROR
    pub const NO_ERROR: Self = Self(0x0);
    /// INTERNAL_ERROR
    pub const INTERNAL_ERROR: Self = Self(0x1);
    /// CONNECTION_REFUSED
    pub const CONNECTION_REFUSED: Self = Self(0x2);
    /// FLOW_CONTROL_ERROR
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// STREAM_LIMIT_ERROR
    pub const STREAM_LIMIT_ERROR: Self = Self(0x4);
    /// STREAM_STATE_ERROR
    pub const STREAM_STATE_ERROR: Self = Self(0x5);
    /// FINAL_SIZE_ERROR
    pub const FINAL_SIZE_ERROR: Self = Self(0x6);
    /// FRAME_ENCODING_ERROR
    pub const FRAME_ENCODING_ERROR: Self = Self(0x7);
    /// TRANSPORT_PARAMETER_ERROR
    pub const TRANSPORT_PARAMETER_ERROR: Self = Self(0x8);
    /// CONNECTION_ID_LIMIT_ERROR
    pub const CONNECTION_ID_LIMIT_ERROR: Self = Self(0x9);
    /// PROTOCOL_VIOLATION
    pub const PROTOCOL_VIOLATION: Self = Self(0xa);
    /// INVALID_TOKEN
    pub const INVALID_TOKEN: Self = Self(0xb);
    /// APPLICATION_ERROR
    pub const APPLICATION_ERROR: Self = Self(0xc);
    /// CRYPTO_BUFFER_EXCEEDED
    pub const CRYPTO_BUFFER_EXCEEDED: Self = Self(0xd);
    /// KEY_UPDATE_ERROR
    pub const KEY_UPDATE_ERROR: Self = Self(0xe);
    /// AEAD_LIMIT_REACHED
    pub const AEAD_LIMIT_REACHED: Self = Self(0xf);
    /// VERSION_NEGOTIATION_ERROR (RFC 9368 section 10.2)
    pub const VERSION_NEGOTIATION_ERROR: Self = Self(0x11);

    /// The code of an alert of TLS (RFC 9001 section 4.8).
    pub const fn crypto(alert: u8) -> Self {
        Self(0x100 | alert as u64)
    }
}

impl From<TransportErrorCode> for u64 {
    fn from(code: TransportErrorCode) -> Self {
        code.0
    }
}

impl From<u64> for TransportErrorCode {
    fn from(code: u64) -> Self {
        Self(code)
    }
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An error by which this end closes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    /// Its code.
    pub code: TransportErrorCode,
    /// The type of the frame that was wrong, if it was one.
    pub frame: Option<u64>,
    /// What was wrong.
    pub reason: String,
}

impl TransportError {
    /// An error with this code.
    pub fn new(code: TransportErrorCode, reason: impl Into<String>) -> Self {
        Self {
            code,
            frame: None,
            reason: reason.into(),
        }
    }

    pub(crate) fn flow_control(reason: &str) -> Self {
        Self::new(TransportErrorCode::FLOW_CONTROL_ERROR, reason)
    }

    pub(crate) fn stream_limit(reason: &str) -> Self {
        Self::new(TransportErrorCode::STREAM_LIMIT_ERROR, reason)
    }

    pub(crate) fn stream_state(reason: &str) -> Self {
        Self::new(TransportErrorCode::STREAM_STATE_ERROR, reason)
    }

    pub(crate) fn final_size(reason: &str) -> Self {
        Self::new(TransportErrorCode::FINAL_SIZE_ERROR, reason)
    }

    pub(crate) fn frame_encoding(reason: &str) -> Self {
        Self::new(TransportErrorCode::FRAME_ENCODING_ERROR, reason)
    }

    pub(crate) fn transport_parameter(reason: &str) -> Self {
        Self::new(TransportErrorCode::TRANSPORT_PARAMETER_ERROR, reason)
    }

    pub(crate) fn protocol_violation(reason: &str) -> Self {
        Self::new(TransportErrorCode::PROTOCOL_VIOLATION, reason)
    }

    pub(crate) fn internal(reason: &str) -> Self {
        Self::new(TransportErrorCode::INTERNAL_ERROR, reason)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(frame) = self.frame {
            write!(f, " in a frame of type {frame:#x}")?;
        }
        if self.reason.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.reason)
        }
    }
}

impl std::error::Error for TransportError {}

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The peer supports no version that this end does (RFC 9000 section 6.2).
    VersionMismatch,
    /// The peer broke the protocol, or the handshake failed at this end.
    Transport(TransportError),
    /// The transport of the peer closed it.
    Peer {
        /// The error code.
        code: u64,
        /// The text that the peer sent.
        reason: Bytes,
    },
    /// The application of the peer closed it.
    Application {
        /// The error code.
        code: u64,
        /// The text that the peer sent.
        reason: Bytes,
    },
    /// The peer sent a stateless reset (RFC 9000 section 10.3).
    Reset,
    /// No packet came for the idle timeout (RFC 9000 section 10.1).
    TimedOut,
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionMismatch => f.write_str("the peer supports no common version"),
            Self::Transport(error) => error.fmt(f),
            Self::Peer { code, reason } => {
                let reason = String::from_utf8_lossy(reason);
                write!(f, "closed by the peer: {code:#x} {reason}")
            }
            Self::Application { code, reason } => {
                let reason = String::from_utf8_lossy(reason);
                write!(
                    f,
                    "closed by the application of the peer: {code:#x} {reason}"
                )
            }
            Self::Reset => f.write_str("reset by the peer"),
            Self::TimedOut => f.write_str("the idle timeout has passed"),
        }
    }
}

impl std::error::Error for ConnectionEnd {}

impl From<TransportError> for ConnectionEnd {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

/// Why a connection cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint accepts and opens no more connections.
    EndpointStopping,
    /// The name of the server is no valid DNS name or IP address.
    InvalidServerName(String),
    /// The address is of another family than the socket, or has no port.
    InvalidRemoteAddress(SocketAddr),
    /// The configuration of TLS cannot be used for QUIC.
    Tls(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndpointStopping => f.write_str("the endpoint is stopping"),
            Self::InvalidServerName(name) => write!(f, "invalid server name: {name}"),
            Self::InvalidRemoteAddress(address) => write!(f, "invalid remote address: {address}"),
            Self::Tls(error) => write!(f, "TLS for QUIC: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}
