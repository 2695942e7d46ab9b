//! `Constraint` without the feature `regex`: no path of a route has one.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct Constraint(Infallible);

/// There are no regular expressions.
#[derive(Debug)]
pub(super) struct RegexIsOff;

impl fmt::Display for RegexIsOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it needs the feature `regex` of apus")
    }
}

impl Constraint {
    /// # Errors
    /// Always: the mistake of the application names the feature.
    pub(super) fn new(_: &str) -> Result<Self, RegexIsOff> {
        Err(RegexIsOff)
    }

    pub(super) fn escape(_: &str) -> &'static str {
        ""
    }

    pub(super) fn as_str(&self) -> &str {
        match self.0 {}
    }

    pub(super) fn matches(&self, _: &str) -> bool {
        match self.0 {}
    }

    pub(super) fn groups(&self, _: &str) -> Option<Vec<Range<usize>>> {
        match self.0 {}
    }
}
