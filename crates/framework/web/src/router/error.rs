//! `RouteError`: an invalid route, and its place in the source.

use std::fmt;
use std::panic::Location;

use super::pattern::RoutePatternError;

/// An invalid route, mount, host or name. Its [`fmt::Debug`] output is its message, since a `main` that
/// returns it prints that.
#[derive(Clone)]
pub struct RouteError {
    /// The path, the host or the name.
    what: String,
    at: &'static Location<'static>,
    why: RouteErrorKind,
}

#[derive(Clone, Debug)]
pub(crate) enum RouteErrorKind {
    Pattern(RoutePatternError),
    /// The tree of the router does not accept the path.
    Tree(String),
    Twice {
        method: Option<String>,
        other: &'static Location<'static>,
    },
    MountTwice(&'static Location<'static>),
    /// The mounted service has an error.
    Mounted(String),
    NotNormal,
    NameTwice(&'static Location<'static>),
    NameOfNothing,
    Host(String),
    /// A layer or the handler needs something that the route does not have.
    Handler(String),
}

impl RouteError {
    pub(crate) fn new(what: &str, at: &'static Location<'static>, why: RouteErrorKind) -> Self {
        Self {
            what: what.to_owned(),
            at,
            why,
        }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, at, why } = self;
        match why {
            RouteErrorKind::Pattern(error) => write!(
                f,
                "the path {what:?} is not a valid path of a route: {error}"
            )?,
            RouteErrorKind::Tree(error) => write!(
                f,
                "the path {what:?} is not a valid path of a route: {error}"
            )?,
            RouteErrorKind::Twice {
                method: Some(method),
                other,
            } => write!(
                f,
                "{method} {what} already has a handler, which was added at {other}"
            )?,
            RouteErrorKind::Twice { other, .. } => write!(
                f,
                "{what} already has a handler for all methods, which was added at {other}"
            )?,
            RouteErrorKind::MountTwice(other) => write!(
                f,
                "{what:?} already has a mounted service, which was added at {other}"
            )?,
            RouteErrorKind::Mounted(error) => {
                write!(
                    f,
                    "the service that is mounted under {what:?} is invalid: {error}\nmounted"
                )?;
            }
            RouteErrorKind::NotNormal => write!(
                f,
                "{what:?} cannot be mounted under: the path must start with a slash, and have no \
                 empty segments and no dots for segments"
            )?,
            RouteErrorKind::NameTwice(other) => write!(
                f,
                "another route is named {what:?} already, which was added at {other}"
            )?,
            RouteErrorKind::NameOfNothing => {
                write!(f, "the name {what:?} is given before any route was added")?;
            }
            RouteErrorKind::Handler(mistake) => write!(f, "{what}: {mistake}")?,
            RouteErrorKind::Host(error) => {
                write!(f, "{what:?} is not a valid name of a host: {error}")?
            }
        }
        write!(f, "\n  at {at}")
    }
}

impl fmt::Debug for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RouteError {}

/// All errors of the routes of an application, printed like [`RouteError`].
#[derive(Clone)]
pub struct RouteErrors(pub(crate) Vec<RouteError>);

impl RouteErrors {
    /// The errors in the order of the source.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RouteError> {
        self.0.iter()
    }
}

impl fmt::Display for RouteErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            fmt::Display::fmt(error, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RouteErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RouteErrors {}
