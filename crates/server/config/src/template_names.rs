//! The names that templates and conditions of a configuration may use.

use std::collections::{BTreeMap, BTreeSet};

use apus_conditions::FactStage;

/// The names that templates and conditions may use.
#[derive(Debug, Default)]
pub(crate) struct TemplateNames {
    pub(crate) maps: BTreeSet<String>,
    /// The variables that rules set.
    pub(crate) variables: BTreeSet<String>,
    /// The rates and quotas of the server and of sites, and when their keys are known.
    pub(crate) limits: BTreeMap<String, FactStage>,
}
