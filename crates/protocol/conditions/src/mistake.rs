//! Mistakes in the text of a condition, each with its place.

use std::fmt;
use std::ops::Range;

/// A mistake in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it is, in bytes of the text.
    pub place: Range<usize>,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Mistake {
    pub(crate) fn new(place: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}
