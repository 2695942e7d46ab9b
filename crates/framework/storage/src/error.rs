//! `StorageError`: why an object cannot be stored or read.

use std::error::Error;
use std::fmt;
use std::io;

use apus_handler::HttpError;
use apus_http::{BodyError, HeaderValue, StatusCode, header};

/// Why an object cannot be stored or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// The object is larger than [`Storage::max_bytes`](crate::Storage::max_bytes). It is a 413.
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// The body of the object broke off: a client that gave up, mostly. Nothing was stored.
    Body(BodyError),
    /// The folder cannot be read or written.
    Folder(io::Error),
    /// The settings are not valid.
    Settings(String),
    /// The object store cannot be reached.
    Unreachable(Box<dyn Error + Send + Sync>),
    /// The object store rejected a request.
    Rejected {
        /// The status of its response.
        status: StatusCode,
        /// The code and message of its response.
        message: String,
    },
    /// The response of the object store is not what S3 sends.
    Response(String),
    /// The folder has no URL; see [`Storage::served_at`](crate::Storage::served_at).
    NoUrl,
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => write!(f, "the file has more than {max} bytes"),
            Self::Body(cause) => write!(f, "the file broke off: {cause}"),
            Self::Folder(cause) => write!(f, "the folder of the storage: {cause}"),
            Self::Settings(problem) => write!(f, "the settings of the storage: {problem}"),
            Self::Unreachable(cause) => write!(f, "the object store: {cause}"),
            Self::Rejected { status, message } => {
                write!(f, "the object store responded {status}: {message}")
            }
            Self::Response(problem) => write!(f, "the response of the object store: {problem}"),
            Self::NoUrl => f.write_str("the folder is not served: `Storage::served_at` is missing"),
        }
    }
}

impl Error for StorageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Body(cause) => cause.source(),
            Self::Folder(cause) => cause.source(),
            Self::Unreachable(cause) => cause.source(),
            _ => None,
        }
    }
}

impl HttpError for StorageError {
    fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(cause) => cause.status(),
            Self::Unreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Rejected { status, .. } if status.is_server_error() => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn into_error(self) -> apus_handler::Error {
        let status = self.status();
        let error = match self.detail() {
            Some(detail) => apus_handler::Error::new(status, detail),
            None => apus_handler::Error::of(status),
        };
        let error = error.caused_by(self);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                error.header(header::RETRY_AFTER, HeaderValue::from_static("5"))
            }
            _ => error,
        }
    }
}
