//! Why a request to an origin got no response, with all that its sender needs to decide on a retry.

use std::error::Error;
use std::fmt;
use std::io;

use apus_http::{Body, BodyError};

/// Why there is no response. Its text names the phase and the cause.
#[derive(Debug)]
pub struct RequestFailure {
    /// How far the request was.
    pub phase: RequestPhase,
    /// The cause.
    pub cause: FailureCause,
    /// Whether the origin may have seen any of the request. If not, it can be sent again with any method.
    pub request_sent: bool,
    /// The body of the request, if nothing of it was taken, to be sent again.
    pub body: Option<Body>,
}

/// How far a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestPhase {
    /// The socket was being connected.
    Connect,
    /// The TLS handshake was in progress.
    Tls,
    /// The request was being sent.
    Send,
    /// The request was sent, and the head of the response awaited.
    Head,
    /// The body of the response was being read.
    Body,
}

/// Why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FailureCause {
    /// The socket failed: refused, reset, unreachable.
    Io(io::Error),
    /// The origin was too slow.
    TimedOut,
    /// The origin closed the connection in order, but too early. A connection that was used before mostly had
    /// been idle for too long.
    Closed,
    /// The origin broke the protocol, or has a certificate that cannot be trusted.
    Protocol(Box<dyn Error + Send + Sync>),
    /// The origin reported that it did not process the request (RFC 9113 section 8.7, RFC 9114 section 4.1.1), or the connection has
    /// no free stream.
    Refused,
    /// The origin reset the stream.
    Reset,
    /// The request is for a tunnel, as of WebSocket, and the origin does not support extended CONNECT over
    /// HTTP/2 (RFC 8441 section 3) or HTTP/3 (RFC 9220 section 3).
    NoTunnel,
    /// The request itself cannot be sent: the fault is not the origin's.
    Request(Box<dyn Error + Send + Sync>),
    /// So few file descriptors are left that they are reserved for clients and files: the fault is ours.
    NoDescriptors,
    /// The body of the request broke off: the fault is its source's, not the origin's.
    Source(BodyError),
}

impl RequestFailure {
    /// A failure before anything was sent.
    pub(crate) fn unsent(phase: RequestPhase, cause: FailureCause) -> Self {
        Self {
            phase,
            cause,
            request_sent: false,
            body: None,
        }
    }
}

impl RequestPhase {
    /// The word for it in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Head => "head",
            Self::Body => "body",
        }
    }
}

impl fmt::Display for RequestPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TimedOut => f.write_str("the origin took too long"),
            Self::Closed => f.write_str("the origin closed the connection"),
            Self::Protocol(error) | Self::Request(error) => error.fmt(f),
            Self::Refused => f.write_str("the origin refused the request unread"),
            Self::Reset => f.write_str("the origin reset the stream"),
            Self::NoTunnel => f.write_str("the origin supports no extended CONNECT"),
            Self::NoDescriptors => f.write_str("too few file descriptors are left"),
            Self::Source(error) => write!(f, "the body of the request broke off: {error}"),
        }
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.phase {
            RequestPhase::Connect => "cannot connect",
            RequestPhase::Tls => "no TLS connection",
            RequestPhase::Send => "the request could not be sent",
            RequestPhase::Head => "no response",
            RequestPhase::Body => "the response broke off",
        };
        write!(f, "{what}: {}", self.cause)
    }
}

impl Error for RequestFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            FailureCause::Io(error) => Some(error),
            FailureCause::Protocol(error) | FailureCause::Request(error) => Some(&**error),
            FailureCause::Source(error) => Some(error),
            FailureCause::TimedOut
            | FailureCause::Closed
            | FailureCause::Refused
            | FailureCause::Reset
            | FailureCause::NoTunnel
            | FailureCause::NoDescriptors => None,
        }
    }
}
