//! The names under which failed requests are counted.

use std::fmt;
use std::io;

use apus_codec::h1::Http1Error;
use apus_transport::descriptors;
use serde::{Serialize, Serializer};

/// What became of a request that got no good response. No such request is part of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LoadFailure {
    /// The server refused the connection: nobody listens.
    ConnectRefused,
    /// The connection could not be opened within the time limit.
    ConnectTimeout,
    /// The connection could not be opened for another reason.
    Connect,
    /// This machine has no descriptor or port left for a connection.
    NoDescriptors,
    /// TLS failed, mostly in the handshake.
    Tls,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection instead of responding.
    ClosedBeforeResponse,
    /// The server closed the connection in the middle of a response.
    ClosedInResponse,
    /// The response was not complete within the time limit.
    Timeout,
    /// The response broke the protocol.
    Malformed,
    /// The server reset the stream of the request (HTTP/2, HTTP/3).
    StreamReset,
    /// The server did not process the request, because it was shutting the connection down (HTTP/2,
    /// HTTP/3).
    GoAway,
    /// The status was not expected.
    WrongStatus,
    /// A header field had another value, or was missing.
    WrongHeader,
    /// The body had another length.
    WrongLength,
    /// The body had other bytes.
    WrongBody,
    /// A value in the body had another value, or was missing (JSON).
    WrongValue,
    /// The status of a call of gRPC was not 0 (OK).
    GrpcStatus,
    /// A message to all connections did not reach one of them.
    NotDelivered,
    /// The response had nothing of what a later request of the scenario needs.
    NothingCaptured,
    /// The request was due in an open loop and was never sent, because no connection became free in time.
    NotSent,
    /// The socket failed in another way.
    Io,
}

impl LoadFailure {
    /// All kinds, in the order in which they are reported.
    pub const ALL: [Self; 22] = [
        Self::ConnectRefused,
        Self::ConnectTimeout,
        Self::Connect,
        Self::NoDescriptors,
        Self::Tls,
        Self::Reset,
        Self::ClosedBeforeResponse,
        Self::ClosedInResponse,
        Self::Timeout,
        Self::Malformed,
        Self::StreamReset,
        Self::GoAway,
        Self::WrongStatus,
        Self::WrongHeader,
        Self::WrongLength,
        Self::WrongBody,
        Self::WrongValue,
        Self::GrpcStatus,
        Self::NotDelivered,
        Self::NothingCaptured,
        Self::NotSent,
        Self::Io,
    ];

    /// The name in reports for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::Connect => "connect_failed",
            Self::NoDescriptors => "no_descriptors",
            Self::Tls => "tls_failed",
            Self::Reset => "connection_reset",
            Self::ClosedBeforeResponse => "closed_before_response",
            Self::ClosedInResponse => "closed_in_response",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed_response",
            Self::StreamReset => "stream_reset",
            Self::GoAway => "goaway",
            Self::WrongStatus => "wrong_status",
            Self::WrongHeader => "wrong_header",
            Self::WrongLength => "wrong_length",
            Self::WrongBody => "wrong_body",
            Self::WrongValue => "wrong_value",
            Self::GrpcStatus => "grpc_status",
            Self::NotDelivered => "not_delivered",
            Self::NothingCaptured => "nothing_captured",
            Self::NotSent => "not_sent",
            Self::Io => "io_error",
        }
    }

    /// The name in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::ConnectRefused => "connection refused",
            Self::ConnectTimeout => "connection not opened in time",
            Self::Connect => "connection not opened",
            Self::NoDescriptors => "no descriptor or port left on this machine",
            Self::Tls => "TLS failed",
            Self::Reset => "connection reset",
            Self::ClosedBeforeResponse => "connection closed before the response",
            Self::ClosedInResponse => "connection closed in the middle of a response",
            Self::Timeout => "no complete response in time",
            Self::Malformed => "malformed response",
            Self::StreamReset => "stream reset",
            Self::GoAway => "not processed because of GOAWAY",
            Self::WrongStatus => "wrong status",
            Self::WrongHeader => "wrong header field",
            Self::WrongLength => "wrong length of the body",
            Self::WrongBody => "wrong body",
            Self::WrongValue => "wrong value in the body",
            Self::GrpcStatus => "the status of gRPC is not OK",
            Self::NotDelivered => "message not delivered to a connection",
            Self::NothingCaptured => "nothing to capture",
            Self::NotSent => "due, but never sent",
            Self::Io => "failure of the socket",
        }
    }

    /// Whether the server sent a whole response that was not the expected one.
    pub(crate) fn is_of_a_response(self) -> bool {
        matches!(
            self,
            Self::WrongStatus
                | Self::WrongHeader
                | Self::WrongLength
                | Self::WrongBody
                | Self::WrongValue
                | Self::GrpcStatus
                | Self::NothingCaptured
        )
    }

    /// The kind of an error while a connection is opened.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::ConnectRefused,
            io::ErrorKind::TimedOut => Self::ConnectTimeout,
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::AddrNotAvailable => Self::NoDescriptors,
            _ if descriptors::is_exhausted(error) => Self::NoDescriptors,
            _ => Self::Connect,
        }
    }

    /// The kind of an error of an open connection.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Reset,
            // What rustls says about the other end.
            io::ErrorKind::InvalidData => Self::Tls,
            _ => Self::Io,
        }
    }

    /// The kind of an error of the HTTP/1.1 codec.
    pub(crate) fn of_http1(error: Http1Error) -> Self {
        match error {
            Http1Error::Truncated => Self::ClosedInResponse,
            _ => Self::Malformed,
        }
    }
}

impl Serialize for LoadFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Failed requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct FailureCount {
    /// What happened.
    pub kind: LoadFailure,
    /// How often.
    pub count: u64,
    /// What was said about the first one.
    pub cause: Option<String>,
}

impl FailureCount {
    /// Whether this was said about the first one.
    pub(crate) fn is_about(&self, words: &str) -> bool {
        self.cause
            .as_ref()
            .is_some_and(|cause| cause.contains(words))
    }
}

impl fmt::Display for FailureCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.words())?;
        match &self.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}
