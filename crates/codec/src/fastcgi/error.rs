//! What is wrong with an application's answer, and what its server says instead of one.

use std::fmt;

/// Why an answer was refused, or is none. The connection is at its end then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A record is not of version 1: another protocol is spoken there, such as HTTP.
    Version,
    /// A record has a type that an application never sends, or a request that there is not: a faulty
    /// server, or leftovers of another request.
    Unasked,
    /// The content of a record has not the length that its type has.
    RecordLength,
    /// Something came for the request behind its end, or behind the end of its output.
    BehindEnd,
    /// The answer ended, with this status of the application, before its head was whole: mostly a
    /// program that died.
    NoHead(u32),
    /// The server cannot serve several requests over one connection (`FCGI_CANT_MPX_CONN`); there was
    /// only one.
    CannotMultiplex,
    /// The server is out of some resource (`FCGI_OVERLOADED`).
    Overloaded,
    /// The server has no Responder (`FCGI_UNKNOWN_ROLE`): it is there for authorizers or filters.
    UnknownRole,
    /// The server ended the request in a way that the protocol does not know.
    ProtocolStatus(u8),
    /// The header block is larger than the limit: mostly too many cookies.
    HeadTooLarge,
    /// The header block has more lines than the limit.
    TooManyFields,
    /// A line of the header block is not `name: value`: mostly output that came before the head.
    FieldName,
    /// A field value holds a CR or a NUL: an attempt to split the answer.
    FieldValue,
    /// A field goes on over several lines, which CGI does not allow (RFC 3875 section 6.3).
    LineFolding,
    /// The answer begins with a status line of HTTP (RFC 3875 section 5). PHP does so when
    /// `cgi.rfc2616_headers` or `cgi.nph` is set.
    NonParsedHeader,
    /// `Status` is not a final status, or there are two different ones.
    Status,
    /// `Content-Length` is not a decimal number of at most 64 bits, or there are two different ones.
    ContentLength,
    /// The answer broke off: the connection ended, or the request did before the content was as long as
    /// its length says.
    Truncated,
}

impl ProtocolError {
    /// Whether the server says that the application did not get to see the request, which so can be
    /// sent elsewhere.
    pub fn is_rejection(&self) -> bool {
        matches!(
            self,
            Self::CannotMultiplex | Self::Overloaded | Self::UnknownRole
        )
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "a record is not of FastCGI version 1",
            Self::Unasked => "a record came that nobody asked for",
            Self::RecordLength => "a record has not the length that its type has",
            Self::BehindEnd => "something came behind the end of the answer",
            Self::NoHead(status) => {
                return write!(
                    f,
                    "the application ended with status {status} and without a whole head"
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
            Self::HeadTooLarge => "the header block is larger than is taken",
            Self::TooManyFields => "the header block has more lines than are taken",
            Self::FieldName => "a line of the header block is not `name: value`",
            Self::FieldValue => "a field value must not hold CR or NUL",
            Self::LineFolding => "a field must not go on over several lines",
            Self::NonParsedHeader => {
                "the answer begins with a status line of HTTP: is cgi.rfc2616_headers set?"
            }
            Self::Status => "Status must be there once, as a final status of three digits",
            Self::ContentLength => "Content-Length must be there once, as one decimal number",
            Self::Truncated => "the answer broke off before it was whole",
        })
    }
}

impl std::error::Error for ProtocolError {}
