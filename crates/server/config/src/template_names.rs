//! The names that templates of a configuration may use.

use std::collections::BTreeSet;

/// The names that templates may use.
#[derive(Debug, Default)]
pub(crate) struct TemplateNames {
    pub(crate) maps: BTreeSet<String>,
    /// The variables that rules set.
    pub(crate) variables: BTreeSet<String>,
}
