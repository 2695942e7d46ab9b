//! Why there is no certificate, in words.

use std::fmt;
use std::time::Duration;

use instant_acme::Problem;

use crate::authority_client::ClockError;
use crate::store::CertificateStoreError;

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueError {
    text: String,
    kind: IssueErrorKind,
    retry_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IssueErrorKind {
    RateLimited,
    BadNonce,
    AlreadyRevoked,
    NoAccount,
    NotReady,
    Other,
}

impl IssueError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            kind: IssueErrorKind::Other,
            retry_after: Duration::ZERO,
        }
    }

    /// This machine or DNS is not ready for an order, so that the authority was not asked.
    pub(crate) fn not_ready(text: impl Into<String>) -> Self {
        Self {
            kind: IssueErrorKind::NotReady,
            ..Self::new(text)
        }
    }

    /// Whether this machine or DNS is not ready for an order, which may be mended at any time.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.kind == IssueErrorKind::NotReady
    }

    /// Whether the authority does not know the account any more.
    pub(crate) fn is_without_account(&self) -> bool {
        self.kind == IssueErrorKind::NoAccount
    }

    /// Whether the reason may be what the authority was asked for: it is no nonce, rate, account or fault of this machine.
    pub(crate) fn is_of_the_request(&self) -> bool {
        self.kind == IssueErrorKind::Other
    }

    /// How long the authority wants to be left alone; zero if it does not say.
    pub(crate) fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// The same, from an authority that wants to be left alone for so long.
    pub(crate) fn with_retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Whether the authority has forgotten its nonce, so that the same can be tried at once (RFC 8555 section 6.5).
    pub(crate) fn is_bad_nonce(&self) -> bool {
        self.kind == IssueErrorKind::BadNonce
    }

    /// Whether the certificate that was to be revoked has been revoked before (RFC 8555 section 7.6).
    pub(crate) fn is_already_revoked(&self) -> bool {
        self.kind == IssueErrorKind::AlreadyRevoked
    }

    /// The failures of several authorities.
    pub(crate) fn of_several(text: String, is_rate_limited: bool) -> Self {
        let kind = if is_rate_limited {
            IssueErrorKind::RateLimited
        } else {
            IssueErrorKind::Other
        };
        Self {
            kind,
            ..Self::new(text)
        }
    }

    /// Whether the authority refuses more orders for now.
    pub fn is_rate_limited(&self) -> bool {
        self.kind == IssueErrorKind::RateLimited
    }
}

impl From<instant_acme::Error> for IssueError {
    fn from(error: instant_acme::Error) -> Self {
        use instant_acme::Error;
        let text = match &error {
            Error::Api(problem) => problem_words(problem),
            Error::Timeout(_) => "the authority did not decide in time".to_owned(),
            error => causes(error),
        };
        let problem_type = match &error {
            Error::Api(problem) => problem.r#type.as_deref().unwrap_or_default(),
            _ => "",
        };
        let kind = match problem_type.rsplit(':').next() {
            Some("rateLimited") => IssueErrorKind::RateLimited,
            Some("badNonce") => IssueErrorKind::BadNonce,
            Some("alreadyRevoked") => IssueErrorKind::AlreadyRevoked,
            Some("accountDoesNotExist") => IssueErrorKind::NoAccount,
            _ => match &error {
                Error::Other(other) if other.is::<ClockError>() => IssueErrorKind::NotReady,
                _ => IssueErrorKind::Other,
            },
        };
        Self {
            kind,
            ..Self::new(text)
        }
    }
}

impl From<CertificateStoreError> for IssueError {
    fn from(error: CertificateStoreError) -> Self {
        Self::not_ready(error.to_string())
    }
}

impl From<rcgen::Error> for IssueError {
    fn from(error: rcgen::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for IssueError {}

/// A problem of the authority in words (RFC 8555 section 6.7).
pub(crate) fn problem_words(problem: &Problem) -> String {
    let kind = problem
        .r#type
        .as_deref()
        .and_then(|kind| kind.rsplit(':').next());
    let mut text = match (&problem.detail, kind) {
        (Some(detail), Some(kind)) => format!("{detail} ({kind})"),
        (Some(detail), None) => detail.clone(),
        (None, Some(kind)) => kind.to_owned(),
        (None, None) => "the authority gives no reason".to_owned(),
    };
    for part in &problem.subproblems {
        text += &format!("; {part}");
    }
    text
}

/// An error with its causes, each once.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text += ": ";
            text += &cause_text;
        }
        next = cause.source();
    }
    text
}
