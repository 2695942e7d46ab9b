//! A header field on the command line, such as `Accept: text/html`.

use std::fmt;

/// The name and the value of a field.
///
/// # Errors
/// There is no colon.
pub(crate) fn field(text: &str) -> Result<(String, String), InvalidFieldArgument> {
    match text.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(InvalidFieldArgument),
    }
}

/// The error for a text without a colon.
#[derive(Debug)]
pub(crate) struct InvalidFieldArgument;

impl fmt::Display for InvalidFieldArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a name, a colon and a value, such as 'Accept: text/html'")
    }
}

impl std::error::Error for InvalidFieldArgument {}
