//! Why a response is not stored.

use std::fmt;

/// Why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// The configuration excludes this request.
    Configured,
    /// The method is not GET.
    Method,
    /// It was not requested often enough yet.
    TooFewUses,
    /// The request has `no-store`.
    RequestNoStore,
    /// The request has a property that may change the response and is not part of the key: a body,
    /// or a field that names another method or target.
    UnkeyedInput,
    /// Responses of this status are not stored.
    Status,
    /// The response has `must-understand`, and the cache does not implement the status.
    NotUnderstood,
    /// The response has `no-store`.
    NoStore,
    /// The response has `private`.
    Private,
    /// The response redirects internally (`X-Accel-Redirect`, `X-Sendfile`), which depends on the
    /// request.
    InternalRedirect,
    /// The response sets a cookie.
    SetCookie,
    /// The request has `Authorization`, and the origin did not declare the response as shared.
    Authorization,
    /// The client presented a certificate, and the origin did not declare the response as shared.
    ClientCertificate,
    /// The request has a session cookie, and the origin did not declare the response as shared.
    SessionCookie,
    /// `Vary: *`, or an invalid `Vary`.
    VaryAny,
    /// `Vary` names too many fields.
    VaryTooMany,
    /// `Vary` names a field that identifies the client, so that no other client could get the
    /// response.
    VaryClient,
    /// The response has an unknown content coding.
    UnknownCoding,
    /// A partial response that cannot be combined with others.
    Part,
    /// There is no lifetime, neither set nor heuristic.
    NoLifetime,
    /// The response is stale on arrival, has no validator, and may not be sent stale.
    StaleOnArrival,
    /// The response is larger than the configuration allows.
    TooLarge,
    /// The media type does not fit the extension of the path.
    UnexpectedType,
}

impl StoreRefusal {
    /// Whether the reason is about this request only, so that the response to another one may be
    /// stored.
    pub fn is_about_request(self) -> bool {
        matches!(
            self,
            Self::Configured
                | Self::Method
                | Self::TooFewUses
                | Self::RequestNoStore
                | Self::UnkeyedInput
                | Self::SetCookie
                | Self::Authorization
                | Self::ClientCertificate
                | Self::SessionCookie
        )
    }
}

impl fmt::Display for StoreRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured => "the configuration excludes the request",
            Self::Method => "only responses to GET are stored",
            Self::TooFewUses => "the response was not requested often enough yet",
            Self::RequestNoStore => "the request has no-store",
            Self::UnkeyedInput => {
                "the request may change the response by something that is not part of the key"
            }
            Self::Status => "responses with this status are not stored",
            Self::NotUnderstood => {
                "the response has must-understand and a status that is not implemented"
            }
            Self::NoStore => "the response has no-store",
            Self::Private => "the response has private",
            Self::InternalRedirect => "the response redirects internally, or asks for a challenge",
            Self::SetCookie => "the response sets a cookie",
            Self::Authorization => "the request has Authorization",
            Self::ClientCertificate => "the client presented a certificate",
            Self::SessionCookie => "the request has a session cookie",
            Self::VaryAny => "the response has Vary: *",
            Self::VaryTooMany => "Vary names too many fields",
            Self::VaryClient => "Vary names a field that identifies the client",
            Self::UnknownCoding => "the response has an unknown content coding",
            Self::Part => "the partial response cannot be combined with others",
            Self::NoLifetime => "the response has no freshness lifetime",
            Self::StaleOnArrival => "the response is stale on arrival and has no validator",
            Self::TooLarge => "the response is larger than the configuration allows",
            Self::UnexpectedType => "the media type does not fit the extension of the path",
        })
    }
}
