//! A header field on the command line, such as `Accept: text/html`.

/// The name and the value of a field.
///
/// # Errors
/// There is no colon.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err("expected a name, a colon and a value, such as 'Accept: text/html'".to_owned()),
    }
}
