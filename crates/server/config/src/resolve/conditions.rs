//! Conditions: their names, their lists, and the places of mistakes in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use apus_conditions::{
    Condition, ConditionList, Definitions, FactStage, GeoDatabases, Mistake, NetworkSet,
    RequestMaps, TableField, TextSet, names_in,
};
use apus_http::Network;
use apus_layers::{InvalidLimitKey, LimitKey};
use jiff::tz::TimeZone;

use super::maps;
use super::value_files::{MAX_INVALID_LINES, text_of_file};
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw;
use crate::raw::rules::NamedList;
use crate::source::{Setting, SourceSpan};
use crate::value::{FilePath, OneOrMore, Text};
use crate::when::When;

/// The names that conditions may use.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    definitions: Definitions,
    geo: Arc<GeoDatabases>,
    /// The zone of times, if it is not that of the system.
    zone: Option<TimeZone>,
    maps: Option<RequestMaps>,
}

impl Conditions {
    /// The zone of times and calendars.
    pub(super) fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or_else(TimeZone::system)
    }

    /// Those of `[global]`.
    pub(super) fn resolve(raw: &raw::Global, reader: &mut ConfigReader<'_>) -> Self {
        let mut conditions = Self::default();
        if let Some(name) = &raw.time_zone {
            match TimeZone::get(&name.0) {
                Ok(zone) => {
                    conditions.definitions.set_zone(zone.clone());
                    conditions.zone = Some(zone);
                }
                Err(_) => reader.report(Finding::error(
                    &name.span,
                    format!("there is no time zone `{}`", shown(&name.0)),
                    "expected a name of the IANA database, as \"Europe/Berlin\" or \"UTC\"",
                )),
            }
        }
        conditions.geo = Arc::new(geo_databases(&raw.geo_databases, reader));
        (conditions.definitions).set_geo_databases(Arc::clone(&conditions.geo));
        let bots = raw.bots.0.iter().map(|bot| bot.name.0.clone());
        conditions.definitions.set_bots(bots);
        for (name, raw_list) in &raw.lists.0 {
            let definitions = &mut conditions.definitions;
            match (named_list(raw_list, reader), &raw_list.value) {
                (Some(list), NamedList::Values(_)) => definitions.define_list(&name.0, list),
                (Some(list), NamedList::File(_)) => {
                    definitions.define_changing_list(&name.0, list);
                }
                // What is wrong with it was said once: conditions with it are no further mistakes.
                (None, raw) => definitions.define_changing_list(&name.0, absent_list(raw)),
            }
        }
        conditions.maps = maps::resolve(&raw.maps, &conditions.geo, reader);
        if let Some(maps) = &conditions.maps {
            conditions.definitions.define_maps(maps);
        }
        let variables = reader.template_names.variables.iter().cloned();
        conditions.definitions.define_variables(variables);
        let limits = reader.template_names.limits.clone();
        conditions.definitions.define_limits(limits);
        let named: BTreeMap<&str, (&Setting<Text>, &Setting<When>)> = raw
            .conditions
            .0
            .iter()
            .map(|(name, when)| (&*name.0, (name, when)))
            .collect();
        let mut order = DefinitionOrder {
            named: &named,
            states: BTreeMap::new(),
            conditions: &mut conditions,
        };
        for name in named.keys() {
            order.define(name, reader);
        }
        conditions
    }

    /// The databases of places.
    pub(super) fn geo(&self) -> &Arc<GeoDatabases> {
        &self.geo
    }

    /// The maps of all sites.
    pub(super) fn maps(&self) -> Option<&RequestMaps> {
        self.maps.as_ref()
    }

    /// Whether a condition so far asks for the state of a limit.
    pub(super) fn ask_for_limits(&self) -> bool {
        self.definitions.asks_for_limits()
    }

    /// The facts that requests are counted by.
    pub(super) fn limit_key<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<LimitKey, InvalidLimitKey> {
        LimitKey::parse_with(names, |name| self.definitions.fact(name))
    }

    /// The networks of a list that a key names by `@NAME`. An unknown name and a list of texts are reported.
    pub(super) fn networks(
        &self,
        name: &str,
        span: &SourceSpan,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Arc<NetworkSet>> {
        let message = match self.definitions.list(name) {
            Some(ConditionList::Networks(networks)) => return Some(networks.clone()),
            Some(ConditionList::Texts(_)) => format!("the list `{}` has texts", shown(name)),
            None => format!("there is no list `{}`", shown(name)),
        };
        reader.report(Finding::error(
            span,
            message,
            "expected a list of networks of [global.lists]",
        ));
        None
    }

    /// Compiles a condition whose facts have to be known at a stage.
    pub(super) fn compile(
        &self,
        when: &Setting<When>,
        stage: FactStage,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Condition> {
        let compiled = match &when.value {
            When::Text(text) => self.definitions.compile(text, stage),
            When::Table(fields) => {
                let fields: Vec<TableField> =
                    fields.iter().map(|(field, _)| field.clone()).collect();
                self.definitions.compile_table(&fields, stage)
            }
        };
        let mistakes = match compiled {
            Ok(condition) => return Some(condition),
            Err(mistakes) => mistakes,
        };
        for mistake in mistakes {
            let place = place(when, &mistake, reader);
            reader.report(Finding::error(&place, mistake.message, "in this condition"));
        }
        None
    }
}

/// The databases of places. What is wrong with one is said once: conditions about its facts are no further mistakes.
fn geo_databases(files: &OneOrMore<FilePath>, reader: &mut ConfigReader<'_>) -> GeoDatabases {
    let mut databases = Vec::new();
    for file in &files.0 {
        match reader.files.geo_database(&file.value.0) {
            Ok(database) => databases.push(database),
            Err(error) => {
                let path = file.value.0.display();
                reader.report(Finding::error(
                    &file.span,
                    format!("{path}: {error}"),
                    "expected a database in the format MaxMind DB",
                ));
            }
        }
    }
    let found = databases.len();
    let databases = GeoDatabases::new(databases);
    if found == files.0.len() {
        databases
    } else {
        databases.incomplete()
    }
}

/// A list of values, or of those of a file.
fn named_list(list: &Setting<NamedList>, reader: &mut ConfigReader<'_>) -> Option<ConditionList> {
    let (file, reads_networks) = match &list.value {
        NamedList::Values(values) => return fixed_list(values, &list.span, reader),
        NamedList::File(keys) => match (&keys.networks, &keys.texts) {
            (Some(file), None) => (file, true),
            (None, Some(file)) => (file, false),
            _ => {
                reader.report(Finding::error(
                    &list.span,
                    "a list has one file",
                    "expected either `networks` or `texts`",
                ));
                return None;
            }
        },
    };
    let text = text_of_file(file, reader)?;
    let list = if reads_networks {
        let networks = read_networks(&text);
        report_lines(&networks.1, file, reader);
        ConditionList::Networks(Arc::new(NetworkSet::new(networks.0)))
    } else {
        match TextSet::new(read_texts(&text)) {
            Ok(list) => ConditionList::Texts(Arc::new(list)),
            Err(error) => {
                reader.report(Finding::error(
                    &file.span,
                    error.to_string(),
                    "in this file",
                ));
                return None;
            }
        }
    };
    Some(list)
}

/// An empty list of the kind that a list with a mistake was meant to be.
fn absent_list(raw: &NamedList) -> ConditionList {
    let has_networks = match raw {
        NamedList::Values(values) => {
            let mut values = values.0.iter();
            values.any(|value| value.0.parse::<Network>().is_ok())
        }
        NamedList::File(keys) => keys.networks.is_some(),
    };
    if let (false, Ok(texts)) = (has_networks, TextSet::new([""; 0])) {
        ConditionList::Texts(Arc::new(texts))
    } else {
        ConditionList::Networks(Arc::default())
    }
}

/// Networks if all values are some, else texts.
fn fixed_list(
    values: &OneOrMore<Text>,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<ConditionList> {
    let networks: Vec<Option<Network>> =
        values.0.iter().map(|value| value.0.parse().ok()).collect();
    if let (false, Some(networks)) = (
        networks.is_empty(),
        networks.iter().copied().collect::<Option<Vec<_>>>(),
    ) {
        return Some(ConditionList::Networks(Arc::new(NetworkSet::new(networks))));
    }
    if let Some(at) = networks.iter().position(Option::is_none)
        && networks.iter().any(Option::is_some)
    {
        let wrong = values.0.get(at).map_or(span, |value| &value.span);
        reader.report(
            Finding::error(
                wrong,
                "not a network",
                "the others in this list are networks",
            )
            .help("write networks and texts in two lists"),
        );
        return None;
    }
    match TextSet::new(values.0.iter().map(|value| &value.0)) {
        Ok(list) => Some(ConditionList::Texts(Arc::new(list))),
        Err(error) => {
            reader.report(Finding::error(span, error.to_string(), "in this list"));
            None
        }
    }
}

/// A line of a list that is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InvalidLine {
    /// Its number, from 1.
    number: usize,
    /// What it says.
    text: String,
}

/// The networks of a file, and the lines that are none.
fn read_networks(text: &str) -> (Vec<Network>, Vec<InvalidLine>) {
    let (mut networks, mut invalid) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        match line.parse() {
            Ok(network) => networks.push(network),
            Err(_) => invalid.push(InvalidLine {
                number,
                text: line.chars().take(60).collect(),
            }),
        }
    }
    (networks, invalid)
}

/// The texts of a file.
fn read_texts(text: &str) -> impl Iterator<Item = &str> {
    lines(text).map(|(_, line)| line)
}

/// The lines with their numbers, without what is behind `#` at the beginning of a line or behind white space, and without white
/// space around them.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.trim_start_matches('\u{feff}')
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let comment = line.char_indices().find(|(at, character)| {
                *character == '#'
                    && line
                        .get(..*at)
                        .is_none_or(|before| before.is_empty() || before.ends_with([' ', '\t']))
            });
            let line = match comment {
                Some((at, _)) => line.get(..at).unwrap_or_default(),
                None => line,
            };
            (index.saturating_add(1), line.trim())
        })
        .filter(|(_, line)| !line.is_empty())
}

fn report_lines(invalid: &[InvalidLine], file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    for line in invalid.iter().take(MAX_INVALID_LINES) {
        let message = format!(
            "line {} is no network: `{}`",
            line.number,
            shown(&line.text)
        );
        reader.report(Finding::error(&file.span, message, "in this file"));
    }
    if let Some(more @ 1..) = invalid.len().checked_sub(MAX_INVALID_LINES) {
        let message = format!("{more} more lines are no networks");
        reader.report(Finding::error(&file.span, message, "in this file"));
    }
}

/// The order in which conditions are compiled: those that one names come before it.
struct DefinitionOrder<'a> {
    named: &'a BTreeMap<&'a str, (&'a Setting<Text>, &'a Setting<When>)>,
    states: BTreeMap<String, DefinitionState>,
    conditions: &'a mut Conditions,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DefinitionState {
    Begun,
    Done,
}

impl DefinitionOrder<'_> {
    fn define(&mut self, name: &str, reader: &mut ConfigReader<'_>) {
        let Some((key, when)) = self.named.get(name).copied() else {
            return;
        };
        match self.states.get(name) {
            Some(DefinitionState::Done) => return,
            Some(DefinitionState::Begun) => {
                reader.report(Finding::error(
                    &key.span,
                    format!("the condition `{}` is about itself", shown(name)),
                    "its condition leads back to it",
                ));
                let _ = (self.conditions.definitions).define(name, Condition::always());
                return;
            }
            None => {}
        }
        self.states.insert(name.to_owned(), DefinitionState::Begun);
        let used = match &when.value {
            When::Text(text) => names_in(text),
            When::Table(fields) => fields.iter().map(|(field, _)| field.fact.clone()).collect(),
        };
        for used in used {
            self.define(&used, reader);
        }
        self.states.insert(name.to_owned(), DefinitionState::Done);
        let compiled = self.conditions.compile(when, FactStage::Response, reader);
        // What is wrong with it was said once: conditions with its name are no further mistakes.
        let condition = compiled.unwrap_or_else(Condition::always);
        if self.conditions.definitions.define(name, condition).is_err() {
            reader.report(Finding::error(
                &key.span,
                format!("a condition cannot be named `{}`", shown(name)),
                "expected letters, digits, `-` and `_`, and not the name of a fact",
            ));
        }
    }
}

/// Where a mistake is in the file: in the text of the condition, if it stands there as it is.
fn place(when: &Setting<When>, mistake: &Mistake, reader: &ConfigReader<'_>) -> SourceSpan {
    match &when.value {
        When::Table(fields) => {
            let field = fields.get(mistake.place.start);
            match field.filter(|_| mistake.place.len() == 1) {
                Some((_, span)) => span.clone(),
                None => when.span.clone(),
            }
        }
        When::Text(text) => {
            let written = reader
                .sources
                .get(&when.span)
                .and_then(|source| source.text.get(when.span.bytes.clone()));
            let start = written.and_then(|written| written.find(text.as_str()));
            let Some(start) = start.and_then(|at| when.span.bytes.start.checked_add(at)) else {
                return when.span.clone();
            };
            SourceSpan {
                file: when.span.file,
                bytes: start.saturating_add(mistake.place.start)
                    ..start.saturating_add(mistake.place.end),
            }
        }
    }
}
