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
    /// A line of the header block is not `name: value`: mostly output before the head.
    FieldName,
    /// A field value contains CR or NUL: an attempt at response splitting.
    FieldValue,
    /// A field continues on the next line, which CGI does not allow (RFC 3875 section 6.3).
    LineFolding,
    /// The response starts with a status line of HTTP (RFC 3875 section 5). PHP does so when
    /// `cgi.rfc2616_headers` or `cgi.nph` is set.
    NonParsedHeader,
    /// `Status` is not a final status, or there are two different ones.
    Status,
    /// `Content-Length` is not a decimal number of at most 64 bits, or there are two different ones.
    ContentLength,
    /// The response is truncated: the connection or the request ended before the announced length of the
    /// body.
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
            Self::FieldName => "a line of the header block is not `name: value`",
            Self::FieldValue => "a field value must not contain CR or NUL",
            Self::LineFolding => "a field must not continue on the next line",
            Self::NonParsedHeader => {
                "the response starts with an HTTP status line: is cgi.rfc2616_headers set?"
            }
            Self::Status => "there must be one Status, a final status of three digits",
            Self::ContentLength => "there must be one Content-Length, a decimal number",
            Self::Truncated => "the response is truncated",
        })
    }
}

impl std::error::Error for FastCgiError {}
