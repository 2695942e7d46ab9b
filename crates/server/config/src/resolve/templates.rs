//! Templates that name what is not there, and the names that there are.

use std::collections::{BTreeMap, BTreeSet};

use apus_conditions::{Fact, FactStage};
use apus_sites::Template;

use crate::diagnostics::{Finding, nearest};
use crate::keys::{ConfigReader, shown};
use crate::raw;
use crate::raw::layers::Limit;
use crate::raw::rules::Rule;
use crate::source::{Setting, SourceSpan};
use crate::template_names::TemplateNames;
use crate::value::{List, Map, Text};

/// The names in a file.
pub(super) fn names(global: &raw::Global, sites: &[Setting<raw::Site>]) -> TemplateNames {
    let maps = global.maps.0.iter().map(|(name, _)| name.0.clone());
    let mut names = TemplateNames {
        maps: maps.collect(),
        variables: BTreeSet::new(),
        limits: BTreeMap::new(),
    };
    add_limits(&mut names, &global.limits);
    add_rules(&mut names, &global.rules, &global.chains);
    for site in sites {
        add_limits(&mut names, &site.keys.limits);
        add_rules(&mut names, &site.rules, &site.chains);
        for location in &site.locations.0 {
            add_rules(&mut names, &location.rules, &Map::default());
        }
    }
    names
}

/// Adds the rates and quotas, whose state conditions may ask for. Among those of one name, the key that is known last counts.
fn add_limits(names: &mut TemplateNames, limits: &List<Limit>) {
    let can_be_read = |limit: &&Setting<Limit>| limit.rate.is_some() || limit.quota.is_some();
    for limit in limits.0.iter().filter(can_be_read) {
        let facts = limit.key.0.iter();
        let facts = facts.filter_map(|fact| Fact::parse(&fact.value.0));
        let stage = facts.map(|fact| fact.stage()).max();
        let stage = stage.unwrap_or(FactStage::Request);
        let known = names.limits.entry(limit.name.0.clone());
        let known = known.or_insert(stage);
        *known = stage.max(*known);
    }
}

fn add_rules(names: &mut TemplateNames, rules: &List<Rule>, chains: &Map<Text, List<Rule>>) {
    let chains = chains.0.iter().flat_map(|(_, rules)| &rules.0);
    for rule in rules.0.iter().chain(chains) {
        let set = rule.set.0.iter();
        names.variables.extend(set.map(|(name, _)| name.0.clone()));
    }
}

/// Reports variables that no rule sets.
pub(super) fn check_variables<'a>(
    names: impl IntoIterator<Item = &'a str>,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) {
    for name in names {
        let known = &reader.template_names.variables;
        if name.is_empty() || known.contains(name) {
            continue;
        }
        let finding = Finding::error(
            span,
            format!("no rule sets `{}`", shown(name)),
            format!("`$var_{}` is its value", shown(name)),
        );
        let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        let finding = match near {
            Some(near) => finding.help(format!("did you mean `$var_{near}`?")),
            None => finding.help("`set` of a rule sets variables"),
        };
        reader.report(finding);
    }
}

/// Reports maps of a template that do not exist.
pub(super) fn check_maps<'a>(
    maps: impl IntoIterator<Item = &'a str>,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) {
    for name in maps {
        let known = &reader.template_names.maps;
        if name.is_empty() || known.contains(name) {
            continue;
        }
        let finding = Finding::error(
            span,
            format!("there is no map `{}`", shown(name)),
            format!("`$map_{}` is its value", shown(name)),
        );
        let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        let finding = match near {
            Some(near) => finding.help(format!("did you mean `$map_{near}`?")),
            None => finding.help("[global.maps] has the maps"),
        };
        reader.report(finding);
    }
}

/// Reports the maps and variables in a template that do not exist.
pub(super) fn check_text(text: &str, span: &SourceSpan, reader: &mut ConfigReader<'_>) {
    let names = Template::names_in(text);
    let named = |prefix: &'static str| {
        let names = names.iter();
        names.filter_map(move |name| name.strip_prefix(prefix))
    };
    check_maps(named("map_"), span, reader);
    check_variables(named("var_"), span, reader);
}

/// The same of a template that was parsed.
pub(super) fn check_template(
    template: &Template,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) {
    check_maps(template.maps(), span, reader);
    check_variables(template.variables_of_rules(), span, reader);
}
