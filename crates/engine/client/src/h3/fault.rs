//! Why an HTTP/3 connection to an origin ends.

use std::error::Error;
use std::fmt;
use std::io;

use apus_h3::{H3Error, H3ErrorCode};
use apus_quic::QuicCloseReason;

use crate::streams::CloseReason;

/// A violation of the protocol, by which the connection ended.
#[derive(Clone, Debug)]
pub(super) enum Http3Fault {
    /// By the origin, in HTTP/3.
    Codec(H3Error),
    /// In QUIC, or by this end according to the origin.
    Quic(QuicCloseReason),
}

impl fmt::Display for Http3Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(error) => error.fmt(f),
            Self::Quic(reason) => reason.fmt(f),
        }
    }
}

impl Error for Http3Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Codec(error) => Some(error),
            Self::Quic(reason) => Some(reason),
        }
    }
}

impl From<QuicCloseReason> for CloseReason<Http3Fault> {
    fn from(reason: QuicCloseReason) -> Self {
        let io = |kind| Self::Io(io::Error::new(kind, reason.to_string()));
        match &reason {
            QuicCloseReason::Local => Self::Closed,
            QuicCloseReason::Application { code, .. }
                // 0 is no code of HTTP/3 (RFC 9114 section 8.1), but what a program sends that closes QUIC without
                // one.
                if *code == 0 || *code == H3ErrorCode::NO_ERROR.0 =>
            {
                Self::Closed
            }
            QuicCloseReason::HandshakeTimeout => Self::TimedOut,
            // As with a reset over TCP, a request over another connection may succeed.
            QuicCloseReason::Reset => io(io::ErrorKind::ConnectionReset),
            QuicCloseReason::IdleTimeout => io(io::ErrorKind::ConnectionAborted),
            QuicCloseReason::NoConnectionIds => io(io::ErrorKind::Other),
            _ => Self::Protocol(Http3Fault::Quic(reason)),
        }
    }
}
