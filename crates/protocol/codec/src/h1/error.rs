//! The protocol errors of HTTP/1.1 and their status codes (RFC 9112, RFC 9110 section 15).

use std::fmt;

use http::StatusCode;

/// Why a message was rejected. The connection has to be closed, because the start of the next message is
/// unknown or cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Http1Error {
    /// The connection starts with the HTTP/2 preface (RFC 9113 section 3.4): the client has prior
    /// knowledge. No byte of the preface was consumed.
    Http2Preface,
    /// The first line is not a request line (RFC 9112 section 3): another protocol on this port, such
    /// as TLS, or the rest of an earlier message that was framed differently.
    RequestLine,
    /// The first line belongs to another protocol, such as a wrong preface of HTTP/2, whose client would
    /// not understand an HTTP response.
    OtherProtocol,
    /// The protocol version is neither 1.0 nor 1.1.
    Version,
    /// The request target is in no form that the method allows (RFC 9112 section 3.2).
    Target,
    /// The request line is longer than the limit for the target allows.
    TargetTooLong,
    /// The head or the trailer section is larger than the limit: mostly too many cookies.
    HeadTooLarge,
    /// The head or the trailer section has more field lines than the limit.
    TooManyFields,
    /// `Connection` names more fields than legitimate clients do: an attempt to have fields removed, or
    /// to keep the server busy.
    TooManyConnectionOptions,
    /// A line ends with LF alone (RFC 9112 section 2.2): a hand-written client, or an attempt at
    /// request smuggling.
    BareLineFeed,
    /// A field name is empty or not a token, or the line has no colon.
    FieldName,
    /// White space stands before the colon of a field line (RFC 9112 section 5.1): an attempt at
    /// request smuggling.
    SpaceBeforeColon,
    /// A field line continues on the next line (RFC 9112 section 5.2): a very old client, or an
    /// attempt at request smuggling.
    LineFolding,
    /// A field value contains a control character, such as NUL or a bare CR (RFC 9110 section 5.5).
    FieldValue,
    /// An HTTP/1.1 request has no `Host` (RFC 9112 section 3.2).
    HostMissing,
    /// A request has several `Host` fields: an attempt to be routed by one and handled by another.
    HostRepeated,
    /// A request has several `Authorization` fields: one may be checked and another one used.
    AuthorizationRepeated,
    /// The value of `Host` is not `host [":" port]`.
    HostInvalid,
    /// A `Content-Length` is not one decimal number of at most 64 bits (RFC 9110 section 8.6), or
    /// there are several: an attempt at request smuggling.
    ContentLength,
    /// A request has both `Content-Length` and `Transfer-Encoding` (RFC 9112 section 6.1): an
    /// attempt at request smuggling.
    LengthWithTransferEncoding,
    /// `Transfer-Encoding` is not exactly `chunked`, is repeated, or comes in an HTTP/1.0 request
    /// (RFC 9112 section 6.1): an attempt at request smuggling.
    TransferEncoding,
    /// `Transfer-Encoding` names a coding before the final `chunked`, which is not supported.
    TransferCoding,
    /// A CONNECT request announces a body, which it cannot have (RFC 9110 section 9.3.6).
    ConnectBody,
    /// `Expect` has another value than `100-continue` (RFC 9110 section 10.1.1).
    Expectation,
    /// A chunk size is not a hexadecimal number of at most 16 digits (RFC 9112 section 7.1).
    ChunkSize,
    /// A chunk extension contains a control character or is longer than legitimate ones (RFC 9112 section
    /// 7.1.1): an attempt at request smuggling, or at keeping the server busy.
    ChunkExtension,
    /// The data of a chunk is not followed by CRLF: the chunk size is wrong.
    ChunkEnd,
    /// A trailer field would change framing or routing (RFC 9110 section 6.5.1).
    TrailerField,
    /// The first line of a response is not a status line (RFC 9112 section 4): another protocol, or the
    /// rest of an earlier message.
    StatusLine,
    /// A server sent data without a request, mostly bytes after the end of its response. They would be
    /// taken for the response to the next request.
    UnexpectedResponse,
    /// A server switched to a protocol that the request did not offer (RFC 9110 section 15.2.2).
    UnexpectedUpgrade,
    /// A server sent more interim responses than the limit: it is faulty or hostile.
    TooManyInterim,
    /// The connection ended before a response was complete.
    Truncated,
}

impl Http1Error {
    /// The status of the error response, if one can still be sent. For the errors of an origin it is
    /// 502.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge | Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Http2Preface | Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::StatusLine
            | Self::UnexpectedResponse
            | Self::UnexpectedUpgrade
            | Self::TooManyInterim
            | Self::Truncated => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for Http1Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http2Preface => "the client sent an HTTP/2 preface on an HTTP/1.1 connection",
            Self::RequestLine => "the first line is not `method target HTTP/1.1`",
            Self::OtherProtocol => "the first line belongs to another protocol than HTTP",
            Self::Version => "the major version of the protocol must be 1",
            Self::Target => {
                "the request target must be /path, http://host/path, host:port for CONNECT, or *"
            }
            Self::TargetTooLong => "the request target is longer than this server takes",
            Self::HeadTooLarge => "the field section is larger than this server takes",
            Self::TooManyFields => "the field section has more lines than this server takes",
            Self::TooManyConnectionOptions => "Connection names more fields than this server takes",
            Self::BareLineFeed => "a line must end with CR LF, not with LF alone",
            Self::FieldName => "a field line must be `name: value`, and the name a token",
            Self::SpaceBeforeColon => "no white space may stand before the colon of a field line",
            Self::LineFolding => "a field line must not continue on the next line",
            Self::FieldValue => "a field value must not hold control characters",
            Self::HostMissing => "an HTTP/1.1 request must have a Host field",
            Self::HostRepeated => "a request must have one Host field",
            Self::AuthorizationRepeated => "a request must have one Authorization field at most",
            Self::HostInvalid => "a Host field must be host or host:port",
            Self::ContentLength => "there must be one Content-Length, a decimal number",
            Self::LengthWithTransferEncoding => {
                "Content-Length and Transfer-Encoding exclude each other"
            }
            Self::TransferEncoding => {
                "there must be one Transfer-Encoding, `chunked`, and only in HTTP/1.1"
            }
            Self::TransferCoding => "the only supported transfer coding is chunked",
            Self::ConnectBody => "a CONNECT request must not have a body",
            Self::Expectation => "the only supported expectation is 100-continue",
            Self::ChunkSize => "a chunk size must be a hexadecimal number of at most 16 digits",
            Self::ChunkExtension => "a chunk extension is too long or holds control characters",
            Self::ChunkEnd => "the data of a chunk must be followed by CR LF",
            Self::TrailerField => "a trailer field must not change framing or routing",
            Self::StatusLine => "the first line is not `HTTP/1.1 status reason`",
            Self::UnexpectedResponse => "the server sent data without a request",
            Self::UnexpectedUpgrade => "the server switched to a protocol that was not offered",
            Self::TooManyInterim => "the server sent too many interim responses",
            Self::Truncated => "the connection ended before the response was complete",
        })
    }
}

impl std::error::Error for Http1Error {}
