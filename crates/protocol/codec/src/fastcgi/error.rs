//! The errors of FastCGI responses: protocol violations, and rejections by the application's server.

use std::fmt;

/// Why a response is invalid or missing. The connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastCgiError {
    /// A record does not have version 1: the server uses another protocol, such as HTTP.
    Version,
    /// A record has a type that an application never sends, or the identifier of another request: a faulty
    /// server, or the rest of an earlier response.
    UnexpectedRecord,
    /// The content of a record does not have the length that its type requires.
    RecordLength,
    /// Data arrived after the end of the request or of its output.
    DataAfterEnd,
    /// The response ended, with this exit status of the application, before its head was complete:
    /// mostly a program that crashed.
    NoHead(u32),
    /// The server does not multiplex requests over one connection (`FCGI_CANT_MPX_CONN`), although there
    /// was only one.
    CannotMultiplex,
    /// The server is out of some resource (`FCGI_OVERLOADED`).
    Overloaded,
    /// The server is not a Responder (`FCGI_UNKNOWN_ROLE`), but an authorizer or a filter.
    UnknownRole,
    /// The server ended the request with a status that the protocol does not define.
    ProtocolStatus(u8),
    /// The header block is larger than the limit: mostly too many cookies.
    HeadTooLarge,
    /// The header block has more lines than the limit.
    TooManyFields,
    /// No line of the header block is a field: mostly output before the head.
    NoField,
    /// A complete header block does not end with a line, or has an empty one.
    Incomplete,
    /// The status is not a final one.
    Status,
    /// The request ended before the announced length of the body: a script that counts wrongly, or that failed.
    ShortBody,
    /// The response is truncated: the connection ended before the request did.
    Truncated,
}

impl FastCgiError {
    /// Whether the server rejected the request before the application saw it, so that the request can be
    /// sent to another server.
    pub fn is_rejection(&self) -> bool {
        matches!(
            self,
            Self::CannotMultiplex | Self::Overloaded | Self::UnknownRole
        )
    }

    /// Whether the script made the mistake, not its server, which kept to the protocol. Other scripts are not
    /// affected.
    pub fn is_of_script(&self) -> bool {
        matches!(
            self,
            Self::NoHead(_)
                | Self::HeadTooLarge
                | Self::TooManyFields
                | Self::NoField
                | Self::Incomplete
                | Self::Status
                | Self::ShortBody
        )
    }
}

impl fmt::Display for FastCgiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "a record does not have FastCGI version 1",
            Self::UnexpectedRecord => "a record belongs to no request",
            Self::RecordLength => "a record does not have the length that its type requires",
            Self::DataAfterEnd => "data arrived after the end of the response",
            Self::NoHead(status) => {
                return write!(
                    f,
                    "the application ended with status {status} before its response head was complete"
                );
            }
            Self::CannotMultiplex => {
                "the server says that it cannot serve several requests at once (FCGI_CANT_MPX_CONN)"
            }
            Self::Overloaded => "the server says that it is overloaded (FCGI_OVERLOADED)",
            Self::UnknownRole => "the server is no Responder (FCGI_UNKNOWN_ROLE)",
            Self::ProtocolStatus(status) => {
                return write!(f, "the server ended the request with status {status}");
            }
            Self::HeadTooLarge => "the header block is larger than the limit",
            Self::TooManyFields => "the header block has more lines than the limit",
            Self::NoField => "no line of the header block is `name: value`",
            Self::Incomplete => "the header block is incomplete",
            Self::Status => "the status must be a final one",
            Self::ShortBody => "the body is shorter than its Content-Length",
            Self::Truncated => "the response is truncated",
        })
    }
}

impl std::error::Error for FastCgiError {}
