//! `JobError`: why a queue cannot take or give a job.

use std::error::Error;
use std::fmt;

use apus_handler::HttpError;
use apus_http::{HeaderValue, StatusCode, header};

/// Why a queue cannot take or give a job.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError {
    /// The store cannot be reached, or rejects a command. It is a 503.
    Store(Box<dyn Error + Send + Sync>),
    /// The job has no form in JSON.
    Payload(serde_json::Error),
    /// A job can be part of a transaction only if the queue is in a database.
    NotInDatabase,
    /// The queue is in memory, and has no room for another job. It is a 503.
    Full,
    /// A thread cannot be started.
    Thread(std::io::Error),
}

impl JobError {
    #[cfg(any(feature = "sql", feature = "redis"))]
    pub(crate) fn store(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Store(cause.into())
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(cause) => write!(f, "the store of jobs: {cause}"),
            Self::Payload(cause) => write!(f, "the job has no form in JSON: {cause}"),
            Self::NotInDatabase => f.write_str("the queue is not in a database"),
            Self::Full => f.write_str("the queue in memory has no room for another job"),
            Self::Thread(cause) => write!(f, "no thread for jobs can be started: {cause}"),
        }
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(cause) => cause.source(),
            Self::Payload(cause) => cause.source(),
            Self::NotInDatabase | Self::Full => None,
            Self::Thread(cause) => cause.source(),
        }
    }
}

impl HttpError for JobError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Store(_) | Self::Full => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn into_error(self) -> apus_handler::Error {
        let status = self.status();
        let error = apus_handler::Error::of(status).caused_by(self);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                error.header(header::RETRY_AFTER, HeaderValue::from_static("5"))
            }
            _ => error,
        }
    }
}
