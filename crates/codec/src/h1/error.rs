//! What is wrong with a message, and the status that says so (RFC 9112, RFC 9110 section 15).

use std::fmt;

use http::StatusCode;

/// Why a message was refused. The connection is at its end then: where the next message would start
/// is not known, or not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The connection opens with the preface of HTTP/2 (RFC 9113 section 3.4): a client with prior
    /// knowledge. Nothing of the preface was consumed.
    Http2Preface,
    /// The first line is no request line (RFC 9112 section 3): another protocol on this port, such
    /// as TLS, or leftovers of an earlier message that was framed differently.
    RequestLine,
    /// The first line is a request line of another protocol, such as RTSP or SIP: its client would
    /// not understand an answer of this one.
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
    /// `Connection` names more fields than any honest client has reason to: an attempt to have fields
    /// vanish, or to keep the server busy.
    TooManyConnectionOptions,
    /// A line ends with LF alone (RFC 9112 section 2.2): a hand-written client, or an attempt at
    /// request smuggling.
    BareLineFeed,
    /// A field name is empty or not a token, or the line has no colon.
    FieldName,
    /// White space stands before the colon of a field line (RFC 9112 section 5.1): an attempt at
    /// request smuggling.
    SpaceBeforeColon,
    /// A field line goes on over several lines (RFC 9112 section 5.2): a very old client, or an
    /// attempt at request smuggling.
    LineFolding,
    /// A field value holds a control byte, such as NUL or a CR alone (RFC 9110 section 5.5).
    FieldValue,
    /// An HTTP/1.1 request has no `Host` (RFC 9112 section 3.2).
    HostMissing,
    /// A request has several `Host` lines: an attempt to be routed and handled differently.
    HostRepeated,
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
    /// A CONNECT request announces content, which it cannot have (RFC 9110 section 9.3.6).
    ConnectContent,
    /// `Expect` asks for something else than `100-continue` (RFC 9110 section 10.1.1).
    Expectation,
    /// A chunk size is no hexadecimal number of at most 16 digits (RFC 9112 section 7.1).
    ChunkSize,
    /// A chunk extension holds a control byte or is longer than any honest one (RFC 9112 section
    /// 7.1.1): an attempt at request smuggling, or at keeping the server busy.
    ChunkExtension,
    /// The data of a chunk is not followed by CRLF: a faulty length.
    ChunkEnd,
    /// A trailer field would change framing or routing (RFC 9110 section 6.5.1).
    TrailerField,
    /// The first line of a response is no status line (RFC 9112 section 4): another protocol, or
    /// leftovers of an earlier message.
    StatusLine,
    /// A server said something that nobody asked for: mostly bytes behind the length that its
    /// response had. They would be taken for the response to the next request.
    UnaskedResponse,
    /// A server switched protocols and was not asked to (RFC 9110 section 15.2.2).
    UnaskedSwitch,
    /// Interim responses without end: a faulty or hostile server.
    TooManyInterim,
    /// The connection ended before a response was whole.
    Truncated,
}

impl ProtocolError {
    /// The status to answer with, if an answer can still be sent. For what only a server can do wrong
    /// it is a gateway's.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge | Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Http2Preface | Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::StatusLine
            | Self::UnaskedResponse
            | Self::UnaskedSwitch
            | Self::TooManyInterim
            | Self::Truncated => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http2Preface => "an HTTP/2 preface came where HTTP/1.1 is spoken",
            Self::RequestLine => "the first line is not `method target HTTP/1.1`",
            Self::OtherProtocol => "the first line is of another protocol than HTTP",
            Self::Version => "the protocol version must be HTTP/1.1 or HTTP/1.0",
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
            Self::LineFolding => "a field line must not go on over several lines",
            Self::FieldValue => "a field value must not hold control characters",
            Self::HostMissing => "an HTTP/1.1 request must have a Host field",
            Self::HostRepeated => "a request must have one Host field",
            Self::HostInvalid => "a Host field must be host or host:port",
            Self::ContentLength => "Content-Length must be there once, as one decimal number",
            Self::LengthWithTransferEncoding => {
                "Content-Length and Transfer-Encoding exclude each other"
            }
            Self::TransferEncoding => {
                "Transfer-Encoding must be there once, as `chunked`, in HTTP/1.1 only"
            }
            Self::TransferCoding => "no transfer coding but chunked is supported",
            Self::ConnectContent => "a CONNECT request has no content",
            Self::Expectation => "no expectation but 100-continue can be met",
            Self::ChunkSize => "a chunk size must be a hexadecimal number of at most 16 digits",
            Self::ChunkExtension => "a chunk extension is too long or holds control characters",
            Self::ChunkEnd => "the data of a chunk must be followed by CR LF",
            Self::TrailerField => "a trailer field must not change framing or routing",
            Self::StatusLine => "the first line is not `HTTP/1.1 status reason`",
            Self::UnaskedResponse => "the server sent more than it was asked for",
            Self::UnaskedSwitch => "the server switched protocols unasked",
            Self::TooManyInterim => "the server sent interim responses without end",
            Self::Truncated => "the connection ended before the response was whole",
        })
    }
}

impl std::error::Error for ProtocolError {}
