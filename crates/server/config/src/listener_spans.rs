//! The places of listen addresses in a configuration, for errors of the engine about them.

use std::error::Error;

use apus_net::{EngineStartError, ListenAddress};

use super::diagnostics::{Diagnostics, Finding};
use super::plan::ServerPlan;
use super::source::{SourceFiles, SourceSpan};

/// The listen addresses of a configuration with their places.
#[derive(Default)]
pub struct ListenerSpans {
    sources: SourceFiles,
    spans: Vec<(ListenAddress, SourceSpan)>,
}

impl ListenerSpans {
    /// The spans of the listeners of `plan`.
    pub fn of(plan: &ServerPlan) -> Self {
        let listeners = plan.sites.iter().flat_map(|site| &site.listeners);
        Self {
            sources: plan.warnings.sources.clone(),
            spans: listeners
                .map(|listener| (listener.address.clone(), listener.span.clone()))
                .collect(),
        }
    }

    /// The error about an address that cannot be listened on, at the first place that names it;
    /// `None` if the error is about something else.
    pub fn explain(&self, error: &EngineStartError) -> Option<Diagnostics> {
        let refused = error.address()?;
        let (_, span) = self.spans.iter().find(|(named, _)| named == refused)?;
        let cause = error
            .source()
            .map_or_else(String::new, <dyn Error>::to_string);
        let mut finding = Finding::error(
            span,
            format!("cannot listen on {refused}: {cause}"),
            "expected an address that can be listened on",
        );
        if let Some(advice) = error.advice() {
            finding = finding.help(advice);
        }
        Some(Diagnostics {
            sources: self.sources.clone(),
            findings: vec![finding],
        })
    }
}
