//! Routes that cannot be: what is wrong, and where it was written.

use std::fmt;
use std::panic::Location;

use super::pattern::InvalidPattern;

/// A route, a mount or a name that an application cannot have. What it is as [`fmt::Debug`], which is how a
/// `main` that returns it shows it, is what it tells people.
#[derive(Clone)]
pub struct RouteError {
    /// The path, the host or the name.
    what: String,
    at: &'static Location<'static>,
    why: Why,
}

#[derive(Clone, Debug)]
pub(crate) enum Why {
    Pattern(InvalidPattern),
    /// The router's tree has no place for it.
    Tree(String),
    Twice {
        method: Option<String>,
        other: &'static Location<'static>,
    },
    MountTwice(&'static Location<'static>),
    /// What is mounted has an error of its own.
    Mounted(String),
    NotNormal,
    NameTwice(&'static Location<'static>),
    NameOfNothing,
    Host(String),
}

impl RouteError {
    pub(crate) fn new(what: &str, at: &'static Location<'static>, why: Why) -> Self {
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
            Why::Pattern(error) => write!(f, "the path {what:?} cannot be a route: {error}")?,
            Why::Tree(error) => write!(f, "the path {what:?} cannot be a route: {error}")?,
            Why::Twice {
                method: Some(method),
                other,
            } => write!(
                f,
                "{method} {what} already has a handler, which was added at {other}"
            )?,
            Why::Twice { other, .. } => write!(
                f,
                "{what} already has a handler for all methods, which was added at {other}"
            )?,
            Why::MountTwice(other) => write!(
                f,
                "something is mounted under {what:?} already, which was added at {other}"
            )?,
            Why::Mounted(error) => {
                write!(
                    f,
                    "what is mounted under {what:?} cannot be: {error}\nmounted"
                )?;
            }
            Why::NotNormal => write!(
                f,
                "{what:?} cannot be mounted under: the path must start with a slash, and have no \
                 empty segments and no dots for segments"
            )?,
            Why::NameTwice(other) => write!(
                f,
                "another route is named {what:?} already, which was added at {other}"
            )?,
            Why::NameOfNothing => {
                write!(f, "the name {what:?} is given before any route was added")?;
            }
            Why::Host(error) => write!(f, "the host {what:?} is no name of a host: {error}")?,
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

/// All that is wrong with the routes of an application; shown as [`RouteError`] is.
#[derive(Clone)]
pub struct RouteErrors(pub(crate) Vec<RouteError>);

impl RouteErrors {
    /// Each of them, in the order in which they were written.
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
