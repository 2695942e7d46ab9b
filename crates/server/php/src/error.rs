//! Errors of requests to workers, and of the start of a pool.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apus_codec::fastcgi::FastCgiError;
use apus_http::BodyError;

use crate::wire::WireError;

/// Why a request got no response from a worker.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerError {
    /// All workers are busy, and the queue is full: the load is too high, or there are too few workers.
    QueueFull,
    /// All workers were busy for too long.
    QueueTimedOut,
    /// The application does not boot.
    Boot {
        /// The output of PHP.
        message: Arc<str>,
        /// The time until the next attempt.
        retry_after: Duration,
    },
    /// The server stops.
    Stopping,
    /// The worker was killed because the request exceeded the execution limit.
    TimedOut,
    /// The worker's process ended, and the request could not be sent to another worker.
    Crashed,
    /// The worker refused the request, with this message.
    Refused(Arc<str>),
    /// The connection to the worker failed.
    Io(io::Error),
    /// The worker violated the wire protocol.
    Wire(WireError),
    /// The head of the response is invalid.
    Head(FastCgiError),
    /// The client did not send the whole body.
    RequestBody(BodyError),
    /// The header fields of the request do not fit in a frame.
    Oversized,
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull => f.write_str("all workers are busy and too many requests wait"),
            Self::QueueTimedOut => f.write_str("all workers were busy for too long"),
            Self::Boot { message, .. } => write!(f, "the application does not boot: {message}"),
            Self::Stopping => f.write_str("the server stops"),
            Self::TimedOut => f.write_str("PHP worked on the request for too long and was killed"),
            Self::Crashed => f.write_str("the worker's process ended while it had the request"),
            Self::Refused(message) => write!(f, "the worker refused the request: {message}"),
            Self::Io(error) => write!(f, "the connection to the worker failed: {error}"),
            Self::Wire(error) => write!(f, "the worker violated the wire protocol: {error}"),
            Self::Head(error) => write!(f, "the head of the worker's response is invalid: {error}"),
            Self::RequestBody(error) => {
                write!(f, "the client did not send the whole body: {error}")
            }
            Self::Oversized => f.write_str("the header fields of the request are too long"),
        }
    }
}

impl std::error::Error for WorkerError {}

/// Why a pool cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolStartError {
    /// The application's script cannot be found.
    Script(PathBuf, io::Error),
    /// The folder for sockets cannot be created or written to.
    Folder(PathBuf, io::Error),
    /// PHP cannot be started.
    Program(io::Error),
    /// The thread of the supervisor cannot be started.
    Thread(io::Error),
}

impl fmt::Display for PoolStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script(path, error) => {
                write!(f, "the application's script {}: {error}", path.display())
            }
            Self::Folder(path, error) => {
                write!(f, "the folder of PHP workers {}: {error}", path.display())
            }
            Self::Program(error) => write!(f, "PHP cannot be started: {error}"),
            Self::Thread(error) => {
                write!(f, "the thread for PHP workers cannot be started: {error}")
            }
        }
    }
}

impl std::error::Error for PoolStartError {}
