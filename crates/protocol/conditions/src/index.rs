//! `ConditionIndex`: of many conditions, those that may hold for a request, without asking each of them.

use std::collections::HashMap;
use std::sync::Arc;

use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::expression::{Condition, Expression, Question, Test};
use crate::fact::{Fact, FactKind, ValueType};
use crate::facts::Facts;
use crate::network_set::NetworkSet;

/// Conditions by what has to be so for each of them to hold: the beginning of the path, a network, a value, a regular expression. A
/// condition without such a need is always among the candidates.
#[derive(Debug, Default)]
pub struct ConditionIndex {
    always: Vec<usize>,
    prefixes: Vec<NeededPrefix>,
    /// All networks together, and those of each condition.
    networks: Option<(NetworkSet, Vec<NeededNetworks>)>,
    values: Vec<(Fact, ByValue)>,
    regexes: Vec<(Fact, RegexSet, Vec<usize>)>,
}

/// The networks that a condition needs.
type NeededNetworks = (Arc<NetworkSet>, usize);

/// Conditions by the value that they need.
type ByValue = HashMap<Box<[u8]>, Vec<usize>>;

/// The beginning of paths that conditions need. They are sorted by their text.
#[derive(Debug)]
struct NeededPrefix {
    text: Box<[u8]>,
    conditions: Vec<usize>,
    /// The longest other prefix that this one begins with.
    parent: Option<usize>,
}

/// What has to be so for a condition to hold.
enum Need<'a> {
    Path(&'a [u8]),
    Networks(&'a Arc<NetworkSet>),
    Value(&'a Fact, &'a [u8]),
    Regex(&'a Fact, &'a str),
}

impl ConditionIndex {
    /// The index of these conditions; `None` always holds.
    pub fn new<'a>(conditions: impl IntoIterator<Item = Option<&'a Condition>>) -> Self {
        let mut index = Self::default();
        let mut prefixes: HashMap<&[u8], Vec<usize>> = HashMap::new();
        let mut networks: Vec<NeededNetworks> = Vec::new();
        let mut regexes: Vec<(&Fact, Vec<&str>, Vec<usize>)> = Vec::new();
        for (number, condition) in conditions.into_iter().enumerate() {
            let Some(needs) = condition.and_then(needs) else {
                index.always.push(number);
                continue;
            };
            for need in needs {
                match need {
                    Need::Path(prefix) => prefixes.entry(prefix).or_default().push(number),
                    Need::Networks(set) => networks.push((Arc::clone(set), number)),
                    Need::Value(fact, value) => index.value(fact, value, number),
                    Need::Regex(fact, pattern) => {
                        match regexes.iter_mut().find(|(known, ..)| *known == fact) {
                            Some((_, patterns, numbers)) => {
                                patterns.push(pattern);
                                numbers.push(number);
                            }
                            None => regexes.push((fact, vec![pattern], vec![number])),
                        }
                    }
                }
            }
        }
        index.prefixes = sorted(prefixes);
        if !networks.is_empty() {
            let all = NetworkSet::union(networks.iter().map(|(set, _)| &**set));
            index.networks = Some((all, networks));
        }
        for (fact, patterns, numbers) in regexes {
            match RegexSetBuilder::new(patterns).build() {
                Ok(set) => index.regexes.push((fact.clone(), set, numbers)),
                // Too large together: they are asked one by one.
                Err(_) => index.always.extend(numbers),
            }
        }
        index.always.sort_unstable();
        index
    }

    fn value(&mut self, fact: &Fact, value: &[u8], number: usize) {
        let at = self.values.iter().position(|(known, _)| known == fact);
        let at = at.unwrap_or_else(|| {
            self.values.push((fact.clone(), HashMap::new()));
            self.values.len().saturating_sub(1)
        });
        if let Some((_, values)) = self.values.get_mut(at) {
            values.entry(value.into()).or_default().push(number);
        }
    }

    /// The positions of the conditions that may hold, in ascending order, in place of what the list has.
    pub fn candidates(&self, facts: &dyn Facts, found: &mut Vec<usize>) {
        found.clear();
        found.extend_from_slice(&self.always);
        if !self.prefixes.is_empty()
            && let Some(path) = Fact::parse(FactKind::RequestPath.name())
        {
            facts.any_text(&path, &mut |path| {
                self.push_prefixes(&path, found);
                true
            });
        }
        if let Some((all, networks)) = &self.networks {
            let client = facts.address();
            if all.has_client(client) {
                let own = networks.iter().filter(|(set, _)| set.has_client(client));
                found.extend(own.map(|(_, number)| *number));
            }
        }
        for (fact, values) in &self.values {
            facts.any_text(fact, &mut |value| {
                if let Some(numbers) = values.get(&*value) {
                    found.extend_from_slice(numbers);
                }
                false
            });
        }
        for (fact, set, numbers) in &self.regexes {
            facts.any_text(fact, &mut |value| {
                if set.is_match(&value) {
                    let matching = set.matches(&value).into_iter();
                    found.extend(matching.filter_map(|at| numbers.get(at)));
                }
                false
            });
        }
        if found.len() > self.always.len() {
            found.sort_unstable();
            found.dedup();
        }
    }

    /// Adds the conditions of all prefixes of a path.
    fn push_prefixes(&self, path: &[u8], found: &mut Vec<usize>) {
        // The last one that is not behind the path is the longest prefix, or one of the next has it as a parent.
        let end = self
            .prefixes
            .partition_point(|prefix| &*prefix.text <= path);
        let mut at = end.checked_sub(1);
        while let Some(prefix) = at.and_then(|at| self.prefixes.get(at)) {
            if path.starts_with(&prefix.text) {
                found.extend_from_slice(&prefix.conditions);
            }
            at = prefix.parent;
        }
    }
}

fn sorted(prefixes: HashMap<&[u8], Vec<usize>>) -> Vec<NeededPrefix> {
    let mut sorted: Vec<NeededPrefix> = prefixes
        .into_iter()
        .map(|(text, conditions)| NeededPrefix {
            text: text.into(),
            conditions,
            parent: None,
        })
        .collect();
    sorted.sort_unstable_by(|one, two| one.text.cmp(&two.text));
    // The prefixes that the text at hand begins with, the longest last.
    let mut open: Vec<usize> = Vec::new();
    for at in 0..sorted.len() {
        while let (Some(last), Some(prefix)) = (open.last(), sorted.get(at)) {
            let is_prefix = sorted
                .get(*last)
                .is_some_and(|last| prefix.text.starts_with(&last.text));
            if is_prefix {
                break;
            }
            open.pop();
        }
        if let Some(prefix) = sorted.get_mut(at) {
            prefix.parent = open.last().copied();
        }
        open.push(at);
    }
    sorted
}

/// One of these has to be so; `None` if nothing is known.
fn needs(condition: &Condition) -> Option<Vec<Need<'_>>> {
    match &*condition.0 {
        Expression::Test(test) => of_test(test),
        Expression::Not(_) => None,
        // All have to hold, so one of them is enough to know: the one that is looked up at least cost.
        Expression::All(parts) => {
            let known = parts.iter().filter_map(needs);
            known.min_by_key(|needs| needs.iter().map(Need::cost).max())
        }
        Expression::Any(parts) => {
            let each: Option<Vec<_>> = parts.iter().map(needs).collect();
            each.map(|each| each.into_iter().flatten().collect())
        }
    }
}

fn of_test(test: &Test) -> Option<Vec<Need<'_>>> {
    let fact = &test.fact;
    let is_path = fact.kind() == FactKind::RequestPath;
    let is_text = matches!(
        fact.kind().value_type(),
        ValueType::Text | ValueType::Word(_) | ValueType::Path | ValueType::Host
    ) && fact.kind() != FactKind::Weekday
        // The index does not look addresses up.
        && !fact.kind().is_geo();
    match &test.question {
        Question::Networks(set) => Some(vec![Need::Networks(set)]),
        Question::IsOneOf(values) if is_path => {
            Some(values.iter().map(|value| Need::Path(value)).collect())
        }
        Question::StartsWith(parts) if is_path => {
            Some(parts.iter().map(|part| Need::Path(part)).collect())
        }
        Question::Globs(globs) if is_path => {
            Some(globs.iter().map(|glob| Need::Path(&glob.prefix)).collect())
        }
        Question::IsOneOf(values) if is_text => Some(
            values
                .iter()
                .map(|value| Need::Value(fact, value))
                .collect(),
        ),
        Question::Regex(regex) if is_text => Some(vec![Need::Regex(fact, regex.as_str())]),
        _ => None,
    }
}

impl Need<'_> {
    fn cost(&self) -> u8 {
        match self {
            // All paths begin with it.
            Self::Path([] | [b'/']) => 4,
            Self::Path(_) => 0,
            Self::Networks(_) => 1,
            Self::Value(..) => 2,
            Self::Regex(..) => 3,
        }
    }
}
