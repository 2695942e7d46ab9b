//! `NameRegex`: a server name that is a regular expression.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// Why it is invalid.
pub type InvalidNameRegex = regex::Error;

/// A regular expression for the names of hosts, whatever their case.
#[derive(Clone, Debug)]
pub(crate) struct NameRegex(Regex);

impl NameRegex {
    pub(crate) fn parse(pattern: &str) -> Result<Self, InvalidNameRegex> {
        RegexBuilder::new(pattern)
            .case_insensitive(true)
            .build()
            .map(Self)
    }

    pub(crate) fn matches(&self, host: &str) -> bool {
        self.0.is_match(host)
    }
}

impl fmt::Display for NameRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
