//! `ServeError`: why a server does not start, or a reload fails.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use apus_config::ListenerSpans;
use apus_control::ControlError;
use apus_net::EngineStartError;

use crate::application_log::ApplicationLogError;
use crate::load::LoadError;
use crate::privileges::PrivilegesError;

/// A server cannot start, or a reload fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration has errors, or a file of it cannot be opened.
    Load(LoadError),
    /// The level of the log is invalid.
    Logging(ApplicationLogError),
    /// Another server runs for the same source, or the control socket cannot be created.
    Control(ControlError),
    /// An address cannot be listened on, or a worker cannot be started.
    Start(EngineStartError),
    /// The runtime of the control thread cannot be created.
    Runtime(io::Error),
    /// It cannot drop root.
    Privileges(PrivilegesError),
    /// The user of the server cannot read the folder to serve.
    Unreadable(PathBuf, String, io::Error),
}

impl From<PrivilegesError> for ServeError {
    fn from(error: PrivilegesError) -> Self {
        match error {
            PrivilegesError::Load(error) => Self::Load(error),
            PrivilegesError::Control(error) => Self::Control(error),
            other => Self::Privileges(other),
        }
    }
}

impl From<LoadError> for ServeError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<ApplicationLogError> for ServeError {
    fn from(error: ApplicationLogError) -> Self {
        Self::Logging(error)
    }
}

impl From<ControlError> for ServeError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

impl ServeError {
    /// The error of a plan that cannot be applied, with the place of its address in the file.
    pub(crate) fn start(error: EngineStartError, listening: &ListenerSpans) -> Self {
        match listening.explain(&error) {
            Some(mistake) => Self::Load(LoadError::mistakes(mistake)),
            None => Self::Start(error),
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Logging(error) => error.fmt(f),
            Self::Control(error) => match error {
                ControlError::AlreadyRunning(_) => {
                    write!(f, "{error}; `apus reload` applies a changed configuration")
                }
                ControlError::Unsafe(_) => write!(f, "{error}, with `control_socket`"),
                _ => error.fmt(f),
            },
            Self::Start(error) => error.fmt(f),
            Self::Runtime(error) => write!(f, "the control thread cannot start: {error}"),
            Self::Privileges(error) => error.fmt(f),
            Self::Unreadable(folder, user, error) => write!(
                f,
                "the server runs as the user `{user}`, which cannot read {}: {error}; let this user read \
                 the folder and enter its parents, or select another user with --user",
                folder.display()
            ),
        }
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Load(error) => Some(error),
            Self::Logging(error) => Some(error),
            Self::Control(error) => Some(error),
            Self::Start(error) => Some(error),
            Self::Runtime(error) | Self::Unreadable(_, _, error) => Some(error),
            Self::Privileges(error) => Some(error),
        }
    }
}
