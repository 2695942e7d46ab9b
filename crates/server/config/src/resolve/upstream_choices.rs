//! The groups of origins that rules choose for requests.

use super::upstream::{GroupReference, SiteUpstreams};
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::plan::HandlerPlan;
use crate::raw::rules::Rule;
use crate::raw::{Location, Site};
use crate::source::{Setting, SourceSpan};
use crate::string_type::origin::UpstreamName;

/// A group that a rule of a site chooses.
pub(super) struct UpstreamChoice<'a> {
    pub(super) upstream: &'a Setting<UpstreamName>,
    pub(super) group: GroupReference,
}

/// What rules of a site choose.
pub(super) struct RuleChoices<'a> {
    pub(super) upstreams: Vec<UpstreamChoice<'a>>,
    /// Whether a rule chooses a group or a location, so that keys of caches have what was chosen.
    pub(super) are_in_keys: bool,
}

impl<'a> RuleChoices<'a> {
    /// Those of all rules of a site. Wrong ones are reported, and left out.
    pub(super) fn of_site(
        site: &'a Setting<Site>,
        groups: &SiteUpstreams<'_>,
        reader: &mut ConfigReader<'_>,
    ) -> Self {
        let mut upstreams = Vec::new();
        let mut are_in_keys = false;
        for rule in rules(site) {
            are_in_keys |= rule.location.is_some() || rule.upstream.is_some();
            let Some(upstream) = &rule.upstream else {
                continue;
            };
            if upstream.path.is_some() {
                reader.report(
                    Finding::error(
                        &upstream.span,
                        "a path in the `upstream` of a rule",
                        "the location of the request says what path the origin gets",
                    )
                    .help("`rewrite` of the rule gives the request another path"),
                );
                continue;
            }
            if let Some(group) = groups.of_upstream(upstream, reader) {
                upstreams.push(UpstreamChoice { upstream, group });
            }
        }
        Self {
            upstreams,
            are_in_keys,
        }
    }

    /// The name of the group that stands here; `None` if it was reported.
    pub(super) fn group(&self, span: &SourceSpan) -> Option<&str> {
        let mut choices = self.upstreams.iter();
        let choice = choices.find(|choice| choice.upstream.span == *span)?;
        Some(&choice.group.name)
    }

    /// Each group once.
    pub(super) fn groups(&self) -> impl Iterator<Item = &UpstreamChoice<'a>> {
        self.upstreams
            .iter()
            .enumerate()
            .filter_map(|(at, choice)| {
                let mut before = self.upstreams.iter().take(at);
                before
                    .all(|other| other.group.name != choice.group.name)
                    .then_some(choice)
            })
    }

    /// Reports choices in a site of which nothing proxies.
    pub(super) fn check_site<'h>(
        &self,
        mut handlers: impl Iterator<Item = &'h HandlerPlan>,
        reader: &mut ConfigReader<'_>,
    ) {
        if handlers.any(|handler| matches!(handler, HandlerPlan::Proxy(_))) {
            return;
        }
        for choice in &self.upstreams {
            report_useless(
                &choice.upstream.span,
                "neither the site nor a location has an `upstream` that it could replace",
                reader,
            );
        }
    }
}

/// Reports choices of a location that does not proxy.
pub(super) fn check_location(
    location: &Location,
    handler: &HandlerPlan,
    reader: &mut ConfigReader<'_>,
) {
    if matches!(handler, HandlerPlan::Proxy(_)) {
        return;
    }
    for rule in &location.rules.0 {
        // Then it is for another location.
        let moves = rule.location.is_some() || rule.rewrite.is_some();
        if let Some(upstream) = rule.upstream.as_ref().filter(|_| !moves) {
            report_useless(
                &upstream.span,
                "this location has no `upstream` that it could replace",
                reader,
            );
        }
    }
}

fn report_useless(span: &SourceSpan, why: &str, reader: &mut ConfigReader<'_>) {
    reader.report(Finding::error(span, "`upstream` has no effect", why));
}

/// The rules of a site, of its chains and of its locations.
fn rules(site: &Site) -> impl Iterator<Item = &Setting<Rule>> {
    let chains = site.chains.0.iter().flat_map(|(_, rules)| &rules.0);
    let locations = site.locations.0.iter();
    let of_locations = locations.flat_map(|location| &location.rules.0);
    site.rules.0.iter().chain(chains).chain(of_locations)
}
