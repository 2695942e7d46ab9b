//! Why a request has no answer of a worker.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apus_codec::fastcgi::ProtocolError;
use apus_http::BodyError;

use crate::wire::WireError;

/// Why a request has no answer of a worker.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// All workers are busy, and as many requests wait as may: too many of them, or too few workers.
    QueueFull,
    /// All workers were busy for too long.
    QueueTimedOut,
    /// The application does not boot.
    Boot {
        /// What PHP said.
        message: Arc<str>,
        /// When it is tried again.
        retry_after: Duration,
    },
    /// The server stops.
    Stopping,
    /// The worker was killed because PHP worked on the request for too long.
    TimedOut,
    /// The worker's process ended, and the request could not be given to another.
    Crashed,
    /// The worker refused the request: what it said.
    Refused(Arc<str>),
    /// The connection to the worker failed.
    Io(io::Error),
    /// The worker broke the wire.
    Wire(WireError),
    /// The head of the answer is none.
    Head(ProtocolError),
    /// The client did not send its request whole.
    Content(BodyError),
    /// The fields of the request are more than a frame holds.
    Oversized,
}

impl fmt::Display for Failure {
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
            Self::Wire(error) => write!(f, "the worker broke the wire: {error}"),
            Self::Head(error) => write!(f, "the head of the worker's answer is none: {error}"),
            Self::Content(error) => write!(f, "the client did not send its request whole: {error}"),
            Self::Oversized => {
                f.write_str("the fields of the request are more than a worker is told")
            }
        }
    }
}

impl std::error::Error for Failure {}

/// Why a pool cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The application's script is not there.
    Script(PathBuf, io::Error),
    /// The folder for sockets cannot be made or written to.
    Folder(PathBuf, io::Error),
    /// PHP cannot be started.
    Program(io::Error),
    /// The system has no thread to spare.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script(path, error) => {
                write!(f, "the application's script {}: {error}", path.display())
            }
            Self::Folder(path, error) => {
                write!(f, "the folder of PHP workers {}: {error}", path.display())
            }
            Self::Program(error) => write!(f, "PHP cannot be started: {error}"),
            Self::Thread(error) => write!(f, "no thread for PHP workers: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
