//! `Constraint`: the regular expression of a path with constraints.

use std::ops::Range;

use regex::Regex;

#[derive(Clone, Debug)]
pub(super) struct Constraint(Regex);

impl Constraint {
    /// # Errors
    /// It is no regular expression; with the reason.
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        Regex::new(text).map(Self)
    }

    /// The regular expression that matches a text literally.
    pub(super) fn escape(text: &str) -> String {
        regex::escape(text)
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }

    /// The ranges of its groups if it matches a path.
    pub(super) fn groups(&self, path: &str) -> Option<Vec<Range<usize>>> {
        let found = self.0.captures(path)?;
        let groups = found.iter().skip(1).flatten();
        Some(groups.map(|group| group.range()).collect())
    }
}
