//! Why a response is not stored.

use std::fmt;

/// Why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The configuration says so for this request.
    Configured,
    /// The method is not GET.
    Method,
    /// It was not asked for often enough yet.
    TooFewUses,
    /// The request says `no-store`.
    RequestNoStore,
    /// The request says something that can change the answer and is not part of the key: it has
    /// content, or names another method or target in a field.
    UnkeyedInput,
    /// Responses of this status are not stored.
    Status,
    /// It says `must-understand`, and the status has no meaning that is known here.
    NotUnderstood,
    /// It says `no-store`.
    NoStore,
    /// It says `private`.
    Private,
    /// It has another answer sent in its place, for this request (`X-Accel-Redirect`, `X-Sendfile`).
    InternalRedirect,
    /// It sets a cookie.
    SetCookie,
    /// The request has `Authorization`, and the origin did not declare the answer for all.
    Authorization,
    /// The client showed a certificate, and the origin did not declare the answer for all.
    ClientCertificate,
    /// The request has a session cookie, and the origin did not declare the answer for all.
    SessionCookie,
    /// `Vary: *`, or a `Vary` that cannot be read.
    VaryAny,
    /// `Vary` names more fields than is sensible.
    VaryTooMany,
    /// `Vary` names a field that tells who the client is: no two clients are sent the same.
    VaryClient,
    /// It is encoded in a way that is not known here.
    UnknownCoding,
    /// It is a part that cannot be joined with others.
    Part,
    /// Nobody names a lifetime, and none can be guessed.
    NoLifetime,
    /// It is stale already and can be neither validated nor sent stale.
    Useless,
    /// It is larger than the configuration allows.
    TooLarge,
    /// It is not of the type that its path promises.
    Disguised,
}

impl Refusal {
    /// Whether it is for what one client sent or is sent: it says nothing against storing the answer
    /// to another.
    pub fn is_of_request(self) -> bool {
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured => "the configuration says not to store",
            Self::Method => "only answers to GET are stored",
            Self::TooFewUses => "not asked for often enough yet",
            Self::RequestNoStore => "the request says no-store",
            Self::UnkeyedInput => "the request says what is not part of the key",
            Self::Status => "answers of this status are not stored",
            Self::NotUnderstood => "must-understand with an unknown status",
            Self::NoStore => "the response says no-store",
            Self::Private => "the response says private",
            Self::InternalRedirect => "the response has another one sent in its place",
            Self::SetCookie => "the response sets a cookie",
            Self::Authorization => "the request has Authorization",
            Self::ClientCertificate => "the client showed a certificate",
            Self::SessionCookie => "the request has a session cookie",
            Self::VaryAny => "the response varies by anything",
            Self::VaryTooMany => "the response varies by too many fields",
            Self::VaryClient => "the response varies by who the client is",
            Self::UnknownCoding => "the response is encoded in an unknown way",
            Self::Part => "a part that cannot be joined with others",
            Self::NoLifetime => "nothing tells how long the response is fresh",
            Self::Useless => "stale on arrival and without a validator",
            Self::TooLarge => "larger than the configuration allows",
            Self::Disguised => "the type is not what the path promises",
        })
    }
}
