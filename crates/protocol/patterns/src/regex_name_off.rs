//! `NameRegex` without the feature `regex`: there is no value of it.

use std::convert::Infallible;
use std::fmt;

/// Why there is none.
#[derive(Clone, Debug)]
pub struct InvalidNameRegex;

impl fmt::Display for InvalidNameRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it needs the feature `regex`")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NameRegex(Infallible);

impl NameRegex {
    pub(crate) fn parse(_: &str) -> Result<Self, InvalidNameRegex> {
        Err(InvalidNameRegex)
    }

    pub(crate) fn matches(&self, _: &str) -> bool {
        match self.0 {}
    }
}

impl fmt::Display for NameRegex {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}
