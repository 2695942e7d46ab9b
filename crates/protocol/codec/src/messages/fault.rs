//! Why a field section is not a message, or not one that is processed.

use std::fmt;

use http::StatusCode;

/// Why a message is malformed (RFC 9113 section 8.1.1, RFC 9114 section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFault {
    /// A field name or value has a forbidden byte (RFC 9114 section 4.2).
    FieldSyntax,
    /// A connection-specific field of HTTP/1.1 (RFC 9114 section 4.2).
    ConnectionField,
    /// A pseudo-header field is unknown, repeated, missing or out of place (RFC 9114 section 4.3).
    PseudoField,
    /// The target, the authority or the method is invalid (RFC 9114 section 4.3.1).
    Target,
    /// `Host` and `:authority` disagree (RFC 9114 section 4.3.1).
    Host,
    /// Content-Length is not a number, or not the length of the body (RFC 9114 section 4.1.2).
    ContentLength,
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FieldSyntax => "a field name or value contains a forbidden byte",
            Self::ConnectionField => "connection-specific fields are not allowed",
            Self::PseudoField => "a pseudo-header field is unknown, repeated, missing or misplaced",
            Self::Target => "the target or the method of the request is invalid",
            Self::Host => "host and :authority are not the same",
            Self::ContentLength => "content-length is not the length of the body",
        })
    }
}

impl std::error::Error for MessageFault {}

/// Why a field section is not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionError {
    /// It breaks the protocol.
    Malformed(MessageFault),
    /// It exceeds a limit of this end, or asks for what is not supported.
    Refused(HeadRefusal),
}

/// Why a request gets an error response before it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadRefusal {
    /// The target is longer than the limit.
    TargetTooLong,
    /// The field section is larger than the limit.
    HeadTooLarge,
    /// There are more field lines than the limit.
    TooManyFields,
    /// An `Expect` that is not `100-continue` (RFC 9110 section 10.1.1).
    Expectation,
    /// There are several `Authorization` fields: one may be checked and another one used.
    AuthorizationRepeated,
}

impl HeadRefusal {
    /// The status of the error response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge | Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::AuthorizationRepeated => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for HeadRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TargetTooLong => "the request target is too long",
            Self::HeadTooLarge => "the request's fields are too large",
            Self::TooManyFields => "the request has too many fields",
            Self::Expectation => "the only supported expectation is 100-continue",
            Self::AuthorizationRepeated => "the request has more than one Authorization field",
        })
    }
}
