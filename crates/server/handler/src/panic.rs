//! `PanicError`: a panic of a handler or a layer, as the source of an [`Error`].

use std::any::Any;
use std::fmt;

use apus_http::StatusCode;

use crate::error::Error;

/// A panic of a handler or a layer: the source of the [`Error`] of its request, with status 500.
#[derive(Clone, Debug)]
pub struct PanicError {
    message: String,
}

impl PanicError {
    /// Of the value of a panic.
    pub fn new(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&'static str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self {
            message: text.unwrap_or("a value that is no text").to_owned(),
        }
    }

    /// The message of the panic, which is meant for the log.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error of the request.
    pub fn into_error(self) -> Error {
        Error::of(StatusCode::INTERNAL_SERVER_ERROR).caused_by(self)
    }
}

impl fmt::Display for PanicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a panic: {}", self.message)
    }
}

impl std::error::Error for PanicError {}
