//! Why a load cannot begin.

use std::error::Error;
use std::fmt;

/// Why a load cannot begin. Failures during a load are counted instead.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// The plan contradicts itself, or one of its values is not possible.
    Plan(Box<dyn Error + Send + Sync>),
    /// A host is not this machine, and nobody said that it may be loaded.
    NotLocal {
        /// The host of the URL.
        host: String,
        /// Its address.
        address: String,
    },
    /// The first request, which is sent before the load, got no response.
    Unreachable {
        /// The URL.
        url: String,
        /// What happened.
        cause: String,
    },
    /// A server of a comparison cannot be started, measured or stopped.
    Server(String),
    /// A process or a port was named whose numbers cannot be read.
    Process(String),
    /// The system denied a thread, a runtime or a timer.
    System(std::io::Error),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Process(message) | Self::Server(message) => f.write_str(message),
            Self::NotLocal { host, address } => write!(
                f,
                "{host} ({address}) is not this machine; a load on somebody else's server is an attack on it. \
                 If you may load this host, say so with --i-own-this-host"
            ),
            Self::Unreachable { url, cause } => {
                write!(f, "no response from {url}, so no load was sent: {cause}")
            }
            Self::System(error) => write!(f, "the load cannot be generated: {error}"),
        }
    }
}

impl BenchError {
    /// The error for a plan, or a file of one.
    pub(crate) fn plan(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Plan(error.into())
    }
}

impl Error for BenchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Its own text is the one of this error.
            Self::Plan(error) => error.source(),
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for BenchError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}
