//! `ConditionIndex`: of many conditions, those that may hold for a request, without asking each of them.

use std::collections::HashMap;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::expression::{Condition, Expression, Question, Test};
use crate::fact::{Fact, FactKind, ValueType};
use crate::facts::Facts;
use crate::network_index::NetworkIndex;
use crate::network_set::NetworkSet;
use crate::prefix_tree::PrefixTree;

/// Conditions by what has to be so for each of them to hold: the beginning of the path, a network, a value, a part of one, a regular expression. A
/// condition without such a need is always among the candidates.
#[derive(Debug, Default)]
pub struct ConditionIndex {
    always: Vec<usize>,
    /// The path, if a condition needs the beginning of it.
    prefixes: Option<(Fact, PrefixTree)>,
    networks: Option<NetworkIndex>,
    values: Vec<(Fact, ByValue)>,
    parts: Vec<(Fact, AhoCorasick, Vec<usize>)>,
    regexes: Vec<(Fact, RegexSet, Vec<usize>)>,
}

/// Conditions by the value that they need.
#[derive(Debug, Default)]
struct ByValue {
    conditions: HashMap<Box<[u8]>, Vec<usize>>,
    /// A bit for each length of the values, the last one for all above. Most other values have another length, and are not hashed.
    lengths: u64,
}

impl ByValue {
    fn insert(&mut self, value: &[u8], number: usize) {
        self.lengths |= length_bit(value);
        self.conditions
            .entry(value.into())
            .or_default()
            .push(number);
    }

    fn get(&self, value: &[u8]) -> &[usize] {
        if self.lengths & length_bit(value) == 0 {
            return &[];
        }
        self.conditions.get(value).map_or(&[], Vec::as_slice)
    }
}

fn length_bit(value: &[u8]) -> u64 {
    1 << value.len().min(63)
}

/// What has to be so for a condition to hold.
enum Need<'a> {
    Path(&'a [u8]),
    Networks(&'a Arc<NetworkSet>),
    Value(&'a Fact, &'a [u8]),
    Part(&'a Fact, &'a [u8]),
    Regex(&'a Fact, &'a str),
}

/// What conditions need of the values of facts, and the numbers of the conditions.
struct ByFact<'a, T>(Vec<(&'a Fact, Vec<T>, Vec<usize>)>);

impl<T> Default for ByFact<'_, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'a, T> ByFact<'a, T> {
    fn push(&mut self, fact: &'a Fact, need: T, number: usize) {
        match self.0.iter_mut().find(|(known, ..)| *known == fact) {
            Some((_, needs, numbers)) => {
                needs.push(need);
                numbers.push(number);
            }
            None => self.0.push((fact, vec![need], vec![number])),
        }
    }
}

impl ConditionIndex {
    /// The index of these conditions; `None` always holds.
    pub fn new<'a>(conditions: impl IntoIterator<Item = Option<&'a Condition>>) -> Self {
        let mut index = Self::default();
        let mut prefixes = PrefixTree::default();
        let mut networks: Vec<(Arc<NetworkSet>, usize)> = Vec::new();
        let mut parts = ByFact::<&[u8]>::default();
        let mut regexes = ByFact::<&str>::default();
        for (number, condition) in conditions.into_iter().enumerate() {
            let Some(needs) = condition.and_then(needs) else {
                index.always.push(number);
                continue;
            };
            for need in needs {
                match need {
                    Need::Path(prefix) => prefixes.insert(prefix, number),
                    Need::Networks(set) => networks.push((Arc::clone(set), number)),
                    Need::Value(fact, value) => index.value(fact, value, number),
                    Need::Part(fact, part) => parts.push(fact, part, number),
                    Need::Regex(fact, pattern) => regexes.push(fact, pattern, number),
                }
            }
        }
        if !prefixes.is_empty() {
            let path = Fact::parse(FactKind::RequestPath.name());
            index.prefixes = path.map(|path| (path, prefixes));
        }
        if !networks.is_empty() {
            index.networks = Some(NetworkIndex::new(networks));
        }
        for (fact, parts, numbers) in parts.0 {
            match AhoCorasick::new(parts) {
                Ok(set) => index.parts.push((fact.clone(), set, numbers)),
                Err(_) => index.always.extend(numbers),
            }
        }
        for (fact, patterns, numbers) in regexes.0 {
            index.regexes(fact, &patterns, &numbers);
        }
        index.always.sort_unstable();
        index.always.dedup();
        index
    }

    /// Adds regular expressions of a fact, as one set if they are not too large together.
    fn regexes(&mut self, fact: &Fact, patterns: &[&str], numbers: &[usize]) {
        match RegexSetBuilder::new(patterns).build() {
            Ok(set) => self.regexes.push((fact.clone(), set, numbers.into())),
            Err(_) if patterns.len() > 1 => {
                let (left, right) = patterns.split_at(patterns.len() / 2);
                let (left_numbers, right_numbers) = numbers.split_at(left.len());
                self.regexes(fact, left, left_numbers);
                self.regexes(fact, right, right_numbers);
            }
            Err(_) => self.always.extend(numbers),
        }
    }

    fn value(&mut self, fact: &Fact, value: &[u8], number: usize) {
        let at = self.values.iter().position(|(known, _)| known == fact);
        let at = at.unwrap_or_else(|| {
            self.values.push((fact.clone(), ByValue::default()));
            self.values.len().saturating_sub(1)
        });
        if let Some((_, values)) = self.values.get_mut(at) {
            values.insert(value, number);
        }
    }

    /// The positions of the conditions that may hold, in ascending order, in place of what the list has.
    pub fn candidates(&self, facts: &dyn Facts, found: &mut Vec<usize>) {
        found.clear();
        found.extend_from_slice(&self.always);
        if let Some((path, prefixes)) = &self.prefixes {
            // Of its values, the first one begins with all others.
            facts.any_text(path, &mut |path| {
                prefixes.push_prefixes(&path, found);
                true
            });
        }
        if let Some(networks) = &self.networks {
            networks.push_sets_of(facts.address(), found);
        }
        for (fact, values) in &self.values {
            facts.any_text(fact, &mut |value| {
                found.extend_from_slice(values.get(&value));
                false
            });
        }
        for (fact, set, numbers) in &self.parts {
            facts.any_text(fact, &mut |value| {
                if set.is_match(&*value) {
                    let matching = set.find_overlapping_iter(&*value);
                    found
                        .extend(matching.filter_map(|part| numbers.get(part.pattern().as_usize())));
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

/// The most texts of one condition that are searched for with those of others: a list has its own search.
const MAX_PARTS: usize = 64;

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
        Question::Contains(texts) if is_text && texts.whole.len() <= MAX_PARTS => {
            let texts = texts.whole.iter();
            Some(texts.map(|text| Need::Part(fact, text)).collect())
        }
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
            Self::Part(..) | Self::Regex(..) => 3,
        }
    }
}
