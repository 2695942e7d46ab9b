//! `UnreadableField`: the field of a request that serde could not read.

use std::fmt;

use serde_path_to_error::Error;

/// A field of JSON, a form or a query that has no value, or one of another type.
#[derive(Clone, Debug)]
pub struct UnreadableField {
    path: String,
    message: String,
    is_missing: bool,
}

impl UnreadableField {
    /// The field of an error of serde.
    pub(super) fn of<E: fmt::Display>(error: &Error<E>) -> Self {
        Self::new(error.path().to_string(), error.inner().to_string())
    }

    /// The field of an error of `serde_json`, whose message ends with the place in the text.
    pub(super) fn of_json(error: &Error<serde_json::Error>) -> Self {
        let inner = error.inner();
        let message = inner.to_string();
        let place = format!(" at line {} column {}", inner.line(), inner.column());
        let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
        Self::new(error.path().to_string(), message)
    }

    /// An error about a name is one of the structure that has the name, or does not have it: its field is in the
    /// message.
    fn new(path: String, message: String) -> Self {
        let structure = if path == "." { "" } else { &*path };
        for (start, text) in [
            ("missing field `", "is missing"),
            ("unknown field `", "is not known"),
            ("duplicate field `", "is there more than once"),
        ] {
            let rest = message.strip_prefix(start);
            if let Some((name, _)) = rest.and_then(|rest| rest.split_once('`')) {
                return Self {
                    path: match structure.strip_suffix(name) {
                        // An unknown name is in the path already.
                        Some(before) if before.is_empty() || before.ends_with('.') => path,
                        _ if structure.is_empty() => name.to_owned(),
                        _ => format!("{structure}.{name}"),
                    },
                    message: text.to_owned(),
                    is_missing: text == "is missing",
                };
            }
        }
        Self {
            path: structure.to_owned(),
            message,
            is_missing: false,
        }
    }

    /// Its path, as `items[0].count`; empty for the whole value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong with it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether it has no value.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }
}
