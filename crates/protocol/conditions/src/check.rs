//! From what is written to what is evaluated: names are looked up, types are compared, and values are compiled.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::ops::RangeInclusive;
use std::sync::Arc;

use apus_http::Network;
use apus_patterns::{Glob, ServerName, ServerNames};
use regex::bytes::Regex;

use crate::expression::{Condition, Expression, Question, Test};
use crate::fact::{FACTS, Fact, Unit, ValueType};
use crate::mistake::Mistake;
use crate::network_set::NetworkSet;
use crate::number::parse_number;
use crate::possible::contradiction;
use crate::syntax::{ComparisonSyntax, Operator, Spanned, Syntax, Value, parse};

/// The conditions and lists that have names.
#[derive(Debug, Default)]
pub struct Definitions {
    conditions: BTreeMap<String, Condition>,
    lists: BTreeMap<String, List>,
}

/// A list of values, which a condition names with `@`.
#[derive(Clone, Debug)]
pub enum List {
    /// Networks, for `client`.
    Networks(Arc<NetworkSet>),
    /// Texts, for other facts.
    Texts(Arc<Vec<String>>),
}

impl Definitions {
    /// Gives a condition a name.
    ///
    /// # Errors
    /// The name is a fact or a word of the language, or has other characters than letters, digits, `_` and `-`.
    pub fn define(&mut self, name: &str, condition: Condition) -> Result<(), InvalidName> {
        let is_word = !name.is_empty()
            && name.chars().all(|character| {
                character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
            })
            && name.starts_with(|first: char| first.is_ascii_alphabetic());
        if !is_word || Fact::parse(name).is_some() || !matches!(parse(name), Ok(Syntax::Name(_))) {
            return Err(InvalidName);
        }
        self.conditions.insert(name.to_owned(), condition);
        Ok(())
    }

    /// Gives a list a name.
    pub fn define_list(&mut self, name: &str, list: List) {
        self.lists.insert(name.to_owned(), list);
    }

    /// Compiles a condition.
    ///
    /// # Errors
    /// All mistakes in it, each with its place.
    pub fn compile(&self, text: &str) -> Result<Condition, Vec<Mistake>> {
        let syntax = parse(text).map_err(|mistake| vec![mistake])?;
        let mut checker = Checker {
            definitions: self,
            mistakes: Vec::new(),
        };
        let compiled = checker.condition(&syntax);
        if let Some(why) = compiled.as_ref().and_then(contradiction) {
            checker.mistakes.push(Mistake::new(0..text.len(), why));
        }
        match compiled {
            Some(condition) if checker.mistakes.is_empty() => Ok(condition),
            _ => Err(checker.mistakes),
        }
    }
}

/// A name that a condition cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

struct Checker<'a> {
    definitions: &'a Definitions,
    mistakes: Vec<Mistake>,
}

impl Checker<'_> {
    /// `None` after a mistake, which was noted.
    fn condition(&mut self, syntax: &Syntax) -> Option<Condition> {
        let expression = match syntax {
            // All parts are checked, so that all mistakes are found at once.
            Syntax::Any(parts) => Expression::Any(self.parts(parts)?),
            Syntax::All(parts) => Expression::All(self.parts(parts)?),
            Syntax::Not(inner) => Expression::Not(self.condition(inner)?),
            Syntax::Name(name) => return self.name(name),
            Syntax::Exists(name) => Expression::Test(Test {
                fact: self.existing(name)?,
                question: Question::Exists,
            }),
            Syntax::Comparison(comparison) => self.comparison(comparison)?,
        };
        Some(Condition(Arc::new(expression)))
    }

    fn parts(&mut self, parts: &[Syntax]) -> Option<Vec<Condition>> {
        let checked: Vec<_> = parts.iter().map(|part| self.condition(part)).collect();
        checked.into_iter().collect()
    }

    /// A flag, or a condition with a name.
    fn name(&mut self, name: &Spanned<String>) -> Option<Condition> {
        if let Some(condition) = self.definitions.conditions.get(&name.value) {
            return Some(condition.clone());
        }
        let fact = self.fact(name)?;
        if fact.kind().value_type() != ValueType::Flag {
            return self.mistake(
                &name.place,
                format!("`{fact}` is not true or false: compare it, or ask `{fact} exists`"),
            );
        }
        Some(Condition(Arc::new(Expression::Test(Test {
            fact,
            question: Question::IsTrue,
        }))))
    }

    fn existing(&mut self, name: &Spanned<String>) -> Option<Fact> {
        let fact = self.fact(name)?;
        match fact.kind().value_type() {
            ValueType::Flag => self.mistake(
                &name.place,
                format!("`{fact}` is true or false, and always known"),
            ),
            ValueType::Address => self.mistake(&name.place, "a request always has a client"),
            _ => Some(fact),
        }
    }

    fn fact(&mut self, name: &Spanned<String>) -> Option<Fact> {
        let found = Fact::parse(&name.value);
        if found.is_none() {
            let message = match nearest(&name.value, self.definitions) {
                Some(near) => format!(
                    "unknown fact or condition `{}`; did you mean `{near}`?",
                    name.value
                ),
                None => format!("unknown fact or condition `{}`", name.value),
            };
            self.mistakes
                .push(Mistake::new(name.place.clone(), message));
        }
        found
    }

    fn mistake<T>(&mut self, place: &Range<usize>, message: impl Into<String>) -> Option<T> {
        self.mistakes.push(Mistake::new(place.clone(), message));
        None
    }

    fn comparison(&mut self, comparison: &ComparisonSyntax) -> Option<Expression> {
        let fact = self.fact(&comparison.fact)?;
        let operator = comparison.operator.value;
        if comparison.is_list && !takes_list(operator) {
            return self.mistake(
                &comparison.operator.place,
                format!("`{}` takes one value; `in` takes a list", operator.name()),
            );
        }
        let question = match fact.kind().value_type() {
            ValueType::Flag => {
                return self.mistake(
                    &comparison.operator.place,
                    format!("`{fact}` is true or false: write `{fact}` or `not {fact}`"),
                );
            }
            ValueType::Address => self.networks(comparison),
            ValueType::Number(unit) => self.numbers(comparison, unit),
            value_type => self.texts(comparison, value_type),
        }?;
        let test = Expression::Test(Test { fact, question });
        Some(match operator {
            Operator::Unequal | Operator::NoRegex => Expression::Not(Condition(Arc::new(test))),
            _ => test,
        })
    }

    fn networks(&mut self, comparison: &ComparisonSyntax) -> Option<Question> {
        if !matches!(
            comparison.operator.value,
            Operator::In | Operator::Equal | Operator::Unequal
        ) {
            return self.mistake(
                &comparison.operator.place,
                "an address is compared by `in`, `==` and `!=`",
            );
        }
        let mut networks = Vec::new();
        let mut listed = Vec::new();
        for value in &comparison.values {
            match &value.value {
                Value::List(name) => match self.definitions.lists.get(name) {
                    Some(List::Networks(set)) => listed.push(Arc::clone(set)),
                    Some(List::Texts(_)) => {
                        return self
                            .mistake(&value.place, format!("`@{name}` is not a list of networks"));
                    }
                    None => return self.unknown_list(&value.place, name),
                },
                Value::Text(text) | Value::Word(text) => match text.parse::<Network>() {
                    Ok(network) => networks.push(network),
                    Err(error) => return self.mistake(&value.place, error.to_string()),
                },
            }
        }
        // A list that stands alone is shared: it may have a hundred thousand networks.
        if networks.is_empty() && listed.len() == 1 {
            return listed.pop().map(Question::Networks);
        }
        let own = NetworkSet::new(networks);
        let sets = listed.iter().map(|set| &**set).chain([&own]);
        Some(Question::Networks(Arc::new(NetworkSet::union(sets))))
    }

    fn numbers(&mut self, comparison: &ComparisonSyntax, unit: Unit) -> Option<Question> {
        let operator = comparison.operator.value;
        if !is_for_numbers(operator) {
            let message = format!(
                "`{}` is for texts; numbers are compared by `==`, `!=`, `<`, `<=`, `>`, `>=` and `in`",
                operator.name()
            );
            return self.mistake(&comparison.operator.place, message);
        }
        let mut ranges = Vec::new();
        for value in &comparison.values {
            let text = match &value.value {
                Value::Word(text) | Value::Text(text) => text,
                Value::List(_) => {
                    return self.mistake(
                        &value.place,
                        "a number is not compared with a list of texts",
                    );
                }
            };
            // `500..599`, also of units.
            let number = match text.split_once("..") {
                Some((from, until)) => {
                    parse_number(from, unit).and_then(|from| Ok(from..=parse_number(until, unit)?))
                }
                None => parse_number(text, unit).map(|number| number..=number),
            };
            match number {
                Ok(range) if range.is_empty() => {
                    return self.mistake(&value.place, "the range is empty");
                }
                Ok(range) => ranges.push(range),
                Err(message) => return self.mistake(&value.place, message),
            }
        }
        let bound =
            |ranges: &[RangeInclusive<u64>]| ranges.first().map_or(0, |range| *range.start());
        let ranges = match operator {
            Operator::Equal | Operator::Unequal | Operator::In => ranges,
            Operator::Less => match bound(&ranges).checked_sub(1) {
                Some(last) => vec![0..=last],
                None => {
                    return self.mistake(&comparison.operator.place, "no number is less than 0");
                }
            },
            Operator::AtMost => vec![0..=bound(&ranges)],
            Operator::More => vec![bound(&ranges).saturating_add(1)..=u64::MAX],
            Operator::AtLeast => vec![bound(&ranges)..=u64::MAX],
            _ => return None,
        };
        Some(Question::Numbers(ranges))
    }

    fn texts(&mut self, comparison: &ComparisonSyntax, value_type: ValueType) -> Option<Question> {
        let operator = comparison.operator.value;
        let mut values: Vec<Spanned<String>> = Vec::new();
        for value in &comparison.values {
            let mut push = |text: &str| {
                values.push(Spanned {
                    value: text.to_owned(),
                    place: value.place.clone(),
                })
            };
            match &value.value {
                Value::Text(text) | Value::Word(text) => push(text),
                Value::List(name) => match self.definitions.lists.get(name) {
                    Some(List::Texts(texts)) => texts.iter().for_each(|text| push(text)),
                    Some(List::Networks(_)) => {
                        return self.mistake(
                            &value.place,
                            format!("`@{name}` is a list of networks: compare `client` with it"),
                        );
                    }
                    None => return self.unknown_list(&value.place, name),
                },
            }
        }
        let bytes = |values: &[Spanned<String>]| -> Vec<Box<[u8]>> {
            values
                .iter()
                .map(|value| value.value.as_bytes().into())
                .collect()
        };
        match operator {
            Operator::Equal | Operator::Unequal | Operator::In => {
                self.whole_texts(&mut values, value_type)
            }
            Operator::Contains => Some(Question::Contains(bytes(&values))),
            Operator::StartsWith => Some(Question::StartsWith(bytes(&values))),
            Operator::EndsWith => Some(Question::EndsWith(bytes(&values))),
            Operator::Matches => self.patterns(&values, value_type, &comparison.operator.place),
            Operator::Regex | Operator::NoRegex => {
                let value = values.first()?;
                match Regex::new(&value.value) {
                    Ok(regex) => Some(Question::Regex(regex)),
                    Err(error) => self.mistake(
                        &value.place,
                        format!("the regular expression is invalid: {error}"),
                    ),
                }
            }
            Operator::Less | Operator::AtMost | Operator::More | Operator::AtLeast => self.mistake(
                &comparison.operator.place,
                format!("`{}` is for numbers", operator.name()),
            ),
        }
    }

    /// Values that a text has as a whole.
    fn whole_texts(
        &mut self,
        values: &mut [Spanned<String>],
        value_type: ValueType,
    ) -> Option<Question> {
        let mut found = HashSet::new();
        let mut is_sound = true;
        for value in values {
            match value_type {
                ValueType::Host => value.value.make_ascii_lowercase(),
                ValueType::Word(words) if !words.contains(&value.value.as_str()) => {
                    is_sound = false;
                    self.mistakes.push(Mistake::new(
                        value.place.clone(),
                        format!(
                            "it is never `{}`, but one of {}",
                            value.value,
                            words.join(", ")
                        ),
                    ));
                }
                ValueType::Path if !value.value.starts_with('/') => {
                    is_sound = false;
                    self.mistakes.push(Mistake::new(
                        value.place.clone(),
                        format!("a path begins with `/`: `/{}`", value.value),
                    ));
                }
                _ => {}
            }
            found.insert(value.value.as_bytes().into());
        }
        is_sound.then_some(Question::IsOneOf(found))
    }

    fn patterns(
        &mut self,
        values: &[Spanned<String>],
        value_type: ValueType,
        operator: &Range<usize>,
    ) -> Option<Question> {
        match value_type {
            ValueType::Path => {
                let mut globs = Vec::new();
                for value in values {
                    match Glob::parse(&value.value) {
                        Ok(glob) => globs.push(glob),
                        Err(error) => return self.mistake(&value.place, error.to_string()),
                    }
                }
                Some(Question::Globs(globs))
            }
            ValueType::Host => {
                let mut names = ServerNames::default();
                for value in values {
                    match value.value.parse::<ServerName>() {
                        // The same name twice is the same set.
                        Ok(name) => drop(names.insert(&name, 0)),
                        Err(error) => return self.mistake(&value.place, error.to_string()),
                    }
                }
                Some(Question::Hosts(Box::new(names)))
            }
            _ => self.mistake(
                operator,
                "`matches` is for `path` and hosts; use `~` with a regular expression",
            ),
        }
    }

    fn unknown_list<T>(&mut self, place: &Range<usize>, name: &str) -> Option<T> {
        let known: Vec<_> = self
            .definitions
            .lists
            .keys()
            .map(|name| format!("`@{name}`"))
            .collect();
        let message = if known.is_empty() {
            format!("unknown list `@{name}`: none is defined")
        } else {
            format!("unknown list `@{name}`; defined are {}", known.join(", "))
        };
        self.mistake(place, message)
    }
}

fn is_for_numbers(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Equal
            | Operator::Unequal
            | Operator::In
            | Operator::Less
            | Operator::AtMost
            | Operator::More
            | Operator::AtLeast
    )
}

fn takes_list(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::In
            | Operator::Matches
            | Operator::Contains
            | Operator::StartsWith
            | Operator::EndsWith
    )
}

/// The fact or condition whose name is most like this one.
fn nearest(name: &str, definitions: &Definitions) -> Option<String> {
    let facts = FACTS.iter().map(|kind| kind.name());
    let known = facts.chain(definitions.conditions.keys().map(String::as_str));
    known
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 4))
        .map(|(_, known)| known.to_owned())
}

/// How many characters have to be changed, added or removed (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(row.first_mut().unwrap_or(&mut 0), at + 1);
        for (column, known) in other.iter().enumerate() {
            let above = row.get(column + 1).copied().unwrap_or_default();
            let left = row.get(column).copied().unwrap_or_default();
            let cost = diagonal + usize::from(character != *known);
            if let Some(cell) = row.get_mut(column + 1) {
                *cell = cost.min(above + 1).min(left + 1);
            }
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or_default()
}
