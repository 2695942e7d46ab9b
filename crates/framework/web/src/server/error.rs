//! `StartError`: why an application does not start, in words.

use std::error::Error;
use std::fmt;
use std::io;

use apus_net::EngineStartError;

use crate::router::RouteErrors;

/// Why an application does not start. Its [`fmt::Debug`] output is its message, since a `main` that returns it
/// prints that:
///
/// ```text
/// Error: the application has 1 mistake
///
/// GET /users/{id}: the handler takes Path<(u32, u32)>, which takes 2 parameters, and the path has {id}
///   at src/main.rs:12:10
/// ```
///
/// Other errors of a `main` convert to it by `?`: errors of `std::io`, and of what the framework opens or reads before
/// the server starts, such as databases, templates and settings; all others by [`StartError::other`].
#[non_exhaustive]
pub enum StartError {
    /// The application has mistakes; see [`App::check`](crate::App::check).
    Application(RouteErrors),
    /// The service that is served is not valid.
    Service(Box<dyn Error + Send + Sync>),
    /// The server has no address to listen on.
    NoAddress,
    /// A text is not an address, or a host name cannot be resolved.
    Address(io::Error),
    /// The server cannot listen on an address, or start a worker.
    Listen(EngineStartError),
    /// The control socket cannot be opened.
    ControlSocket(Box<dyn Error + Send + Sync>),
    /// A certificate or a TLS setting is not valid.
    #[cfg(feature = "tls")]
    Tls(Box<dyn Error + Send + Sync>),
    /// The system refused something else, for example a thread.
    Io(io::Error),
    /// Another error of a `main`.
    Other(Box<dyn Error + Send + Sync>),
}

impl StartError {
    /// Another error, for a `main` that returns a `StartError`.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// The mistakes of a service.
    pub(super) fn of_check(error: Box<dyn Error + Send + Sync>) -> Self {
        match error.downcast::<RouteErrors>() {
            Ok(errors) => Self::Application(*errors),
            Err(other) => Self::Service(other),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(errors) => {
                let count = errors.iter().len();
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "the application has {count} mistake{plural}\n\n{errors}")
            }
            Self::Service(error) => write!(f, "the service is not valid: {error}"),
            Self::NoAddress => f.write_str("a server needs an address to listen on"),
            Self::Address(error) => write!(f, "the address to listen on is not valid: {error}"),
            Self::Listen(error) => error.fmt(f),
            Self::ControlSocket(error) => write!(f, "the control socket cannot be opened: {error}"),
            #[cfg(feature = "tls")]
            Self::Tls(error) => write!(f, "the TLS settings are not valid: {error}"),
            Self::Io(error) => error.fmt(f),
            Self::Other(error) => {
                error.fmt(f)?;
                write_causes(&**error, f)
            }
        }
    }
}

/// Writes the causes of an error that its message does not contain.
fn write_causes(error: &(dyn Error + 'static), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for cause in apus_handler::error::causes(error).into_iter().skip(1) {
        write!(f, ": {cause}")?;
    }
    Ok(())
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The message contains the causes, so there is no further source.
impl Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<EngineStartError> for StartError {
    fn from(error: EngineStartError) -> Self {
        Self::Listen(error)
    }
}

impl From<RouteErrors> for StartError {
    fn from(errors: RouteErrors) -> Self {
        Self::Application(errors)
    }
}

/// Errors of what a `main` opens or reads before the server starts.
macro_rules! other {
    ($($(#[$feature:meta])? $error:ty,)*) => {$(
        $(#[$feature])?
        impl From<$error> for StartError {
            fn from(error: $error) -> Self {
                Self::other(error)
            }
        }
    )*};
}

other! {
    #[cfg(feature = "tls")]
    apus_transport::tls::CertificateError,
    #[cfg(feature = "i18n")]
    apus_i18n::TranslationError,
    #[cfg(feature = "jobs")]
    apus_jobs::CronError,
    #[cfg(feature = "mail")]
    apus_mail::MailError,
    #[cfg(feature = "proxy")]
    apus_proxy::InvalidOrigin,
    #[cfg(feature = "redis")]
    apus_redis::RedisError,
    #[cfg(feature = "settings")]
    apus_settings::SettingsError,
    #[cfg(feature = "sql")]
    apus_database::DbError,
    #[cfg(feature = "storage")]
    apus_storage::StorageError,
}
