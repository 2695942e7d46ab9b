//! The errors of sessions and of their stores.

use std::fmt;

use apus_handler::{Error, HttpError};
use apus_http::{HeaderValue, StatusCode, header};

/// A session that could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// The store failed.
    Store(StoreError),
    /// A value has another type, or cannot be serialized as JSON.
    Value {
        /// Its name.
        name: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// The values are too long together.
    TooLarge {
        /// Their length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Concurrent requests changed the session on each attempt to write it.
    Contended,
    /// The system has no random bytes.
    NoRandomness,
}

impl SessionError {
    pub(super) fn value(name: &str, error: serde_json::Error) -> Self {
        Self::Value {
            name: name.to_owned(),
            error,
        }
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Value { name, error } => {
                write!(f, "the value {name:?} of the session: {error}")
            }
            Self::TooLarge { bytes, max } => {
                write!(
                    f,
                    "the session has {bytes} bytes, more than the limit of {max}"
                )
            }
            Self::Contended => {
                f.write_str("concurrent requests changed the session on each attempt to write it")
            }
            Self::NoRandomness => f.write_str("the system has no random bytes"),
        }
    }
}

/// A store that cannot be reached is a 503 with `Retry-After`, other errors are a 500.
impl HttpError for SessionError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn into_error(self) -> Error {
        let error = Error::of(self.status());
        match &self {
            Self::Store(_) => error.header(header::RETRY_AFTER, RETRY_AFTER),
            _ => error,
        }
        .caused_by(self)
    }
}

/// The time after which a client may try again, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Value { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The error of a store.
pub struct StoreError(Box<dyn std::error::Error + Send + Sync>);

impl StoreError {
    /// An error with its cause.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of sessions: {}", self.0)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}
