//! The application log: text on a terminal, JSON otherwise.

use std::io::{self, IsTerminal};
use std::{env, fmt};

use apus_log_limit::LogLimit;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::recent_errors::RecentErrors;

/// The variable that overrides the level of the configuration: `debug`, or `warn,apus_net=trace`.
pub const LEVEL_VARIABLE: &str = "APUS_LOG";

/// Lines that may wait for a slow reader; further ones are dropped.
const WAITING_LINES: usize = 4096;

const DEFAULT_LEVEL: &str = "info";

/// The levels at which libraries log their errors only.
const QUIET_LEVELS: [&str; 2] = ["info", "warn"];

/// rustls warns in each handshake in which a client sends a name that is none.
const LIBRARIES: &str = ",rustls=error";

/// The application log. A separate thread writes messages to standard error, so that a slow reader
/// blocks no worker; buffered messages are written when this is dropped.
pub struct ApplicationLog {
    errors: RecentErrors,
    filter: reload::Handle<EnvFilter, Registry>,
    _writer: WorkerGuard,
}

impl ApplicationLog {
    /// Starts the log of this process.
    ///
    /// # Errors
    /// The level cannot be parsed, or the process has a log already.
    pub fn start(level: Option<&str>) -> Result<Self, ApplicationLogError> {
        let is_terminal = io::stderr().is_terminal();
        let (filter, handle) = reload::Layer::new(filter(level)?);
        let (output, guard) = NonBlockingBuilder::default()
            .buffered_lines_limit(WAITING_LINES)
            .finish(io::stderr());
        let lines = tracing_subscriber::fmt::layer().with_writer(output);
        let lines = if is_terminal {
            let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            lines.with_ansi(colours).with_target(false).boxed()
        } else {
            lines.json().flatten_event(true).with_ansi(false).boxed()
        };
        let errors = RecentErrors::default();
        tracing_subscriber::registry()
            .with(filter)
            .with(LogLimit::new())
            .with(lines)
            .with(errors.clone())
            .try_init()?;
        Ok(Self {
            errors,
            filter: handle,
            _writer: guard,
        })
    }

    /// The last warnings and errors.
    pub(crate) fn errors(&self) -> &RecentErrors {
        &self.errors
    }

    /// Changes the level, as a reload may.
    ///
    /// # Errors
    /// The level cannot be parsed; the old one stays.
    pub fn set_level(&self, level: Option<&str>) -> Result<(), ApplicationLogError> {
        let filter = filter(level)?;
        // The subscriber lives as long as the process, so this cannot fail.
        let _ = self.filter.reload(filter);
        Ok(())
    }
}

impl fmt::Debug for ApplicationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplicationLog").finish_non_exhaustive()
    }
}

fn filter(level: Option<&str>) -> Result<EnvFilter, ApplicationLogError> {
    let variable = env::var(LEVEL_VARIABLE)
        .ok()
        .filter(|value| !value.is_empty());
    let from_variable = variable.is_some();
    let mut directives = variable
        .as_deref()
        .or(level)
        .unwrap_or(DEFAULT_LEVEL)
        .to_owned();
    if QUIET_LEVELS.contains(&directives.to_ascii_lowercase().as_str()) {
        directives.push_str(LIBRARIES);
    }
    EnvFilter::builder()
        .parse(&directives)
        .map_err(|source| ApplicationLogError::Level {
            text: directives.clone(),
            from_variable,
            source,
        })
}

/// The log cannot be started or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ApplicationLogError {
    /// The level is invalid.
    Level {
        /// The given text.
        text: String,
        /// Whether it comes from the environment.
        from_variable: bool,
        /// The cause.
        source: ParseError,
    },
    /// The process has a log already.
    Started(TryInitError),
}

impl From<TryInitError> for ApplicationLogError {
    fn from(error: TryInitError) -> Self {
        Self::Started(error)
    }
}

impl fmt::Display for ApplicationLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level {
                text,
                from_variable,
                source,
            } => {
                let place = if *from_variable {
                    LEVEL_VARIABLE
                } else {
                    "the log level"
                };
                write!(
                    f,
                    "{place} is \"{text}\", which is not a log level ({source}); use error, warn, info, \
                     debug or trace, or levels by module: warn,apus_net=trace"
                )
            }
            Self::Started(error) => write!(f, "the log cannot be initialised: {error}"),
        }
    }
}

impl std::error::Error for ApplicationLogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Level { source, .. } => Some(source),
            Self::Started(error) => Some(error),
        }
    }
}
