//! From what is written to what is evaluated: names are looked up, types are compared, and values are compiled.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_http::{Network, ServerLoad, TlsFingerprints};
use apus_patterns::{Glob, ServerName, ServerNames};
use jiff::tz::TimeZone;
use regex::bytes::Regex;

use crate::expression::{Condition, ConditionGlob, Expression, Question, Test};
use crate::fact::{FACTS, Fact, FactKind, FactStage, Unit, ValueType};
use crate::geo::GeoDatabases;
use crate::list::{ConditionList, TextSet};
use crate::map::RequestMaps;
use crate::mistake::Mistake;
use crate::network_set::NetworkSet;
use crate::number::parse_number;
use crate::possible::contradiction;
use crate::share;
use crate::syntax::{ComparisonSyntax, Operator, Spanned, Syntax, Value, parse};

/// The conditions and lists that have names.
#[derive(Debug, Default)]
pub struct Definitions {
    conditions: BTreeMap<String, Condition>,
    lists: BTreeMap<String, ConditionList>,
    /// The names of lists that are read from files.
    changing: BTreeSet<String>,
    maps: Option<RequestMaps>,
    /// The variables that rules set; `None`: any.
    variables: Option<BTreeSet<String>>,
    /// The limits that conditions may ask for, and when their keys are known; `None`: any.
    limits: Option<BTreeMap<String, FactStage>>,
    /// Whether a condition asks for one.
    asks_for_limits: AtomicBool,
    zone: Option<TimeZone>,
    geo: Option<Arc<GeoDatabases>>,
    /// The names of the bots that there are, if that is known.
    bots: Option<BTreeSet<String>>,
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

    /// Gives a list a name whose values are those of a file: what can never be true today may be so tomorrow.
    pub fn define_changing_list(&mut self, name: &str, list: ConditionList) {
        self.changing.insert(name.to_owned());
        self.lists.insert(name.to_owned(), list);
    }

    /// Gives a list a name.
    pub fn define_list(&mut self, name: &str, list: ConditionList) {
        self.lists.insert(name.to_owned(), list);
    }

    /// Defines the maps whose values conditions may compare.
    pub fn define_maps(&mut self, maps: &RequestMaps) {
        self.maps = Some(maps.clone());
    }

    /// Defines the variables that rules set. Without this, conditions may name any.
    pub fn define_variables(&mut self, names: impl IntoIterator<Item = String>) {
        self.variables = Some(names.into_iter().collect());
    }

    /// Defines the limits whose state conditions may ask for, and when their keys are known. Without this, conditions may name any.
    pub fn define_limits(&mut self, limits: impl IntoIterator<Item = (String, FactStage)>) {
        self.limits = Some(limits.into_iter().collect());
    }

    /// Whether a condition that was compiled asks for the state of a limit.
    pub fn asks_for_limits(&self) -> bool {
        self.asks_for_limits.load(Ordering::Relaxed)
    }

    /// The fact of this name. The value of a map is known when that is known which the map takes it from.
    pub fn fact(&self, name: &str) -> Option<Fact> {
        let fact = Fact::parse(name)?;
        if let (FactKind::RuleVariable, Some(known)) = (fact.kind(), &self.variables) {
            return fact
                .name()
                .is_some_and(|name| known.contains(name))
                .then_some(fact);
        }
        if let (FactKind::LimitLeft, Some(known)) = (fact.kind(), &self.limits) {
            let stage = known.get(fact.name()?)?;
            return Some(fact.known_from(*stage));
        }
        if fact.kind() != FactKind::MapValue {
            return Some(fact);
        }
        let stage = self.maps.as_ref()?.stage(fact.name()?)?;
        Some(fact.known_from(stage))
    }

    /// The list of this name.
    pub fn list(&self, name: &str) -> Option<&ConditionList> {
        self.lists.get(name)
    }

    /// Sets the zone of times in conditions that are compiled from now on. By default that of the system.
    pub fn set_zone(&mut self, zone: TimeZone) {
        self.zone = Some(zone);
    }

    /// Sets the databases of places for conditions that are compiled from now on. Without them, facts of places are mistakes.
    pub fn set_geo_databases(&mut self, databases: Arc<GeoDatabases>) {
        self.geo = Some(databases);
    }

    /// Sets the names of all bots, so that another one in a condition is a mistake. By default any is right.
    pub fn set_bots(&mut self, names: impl IntoIterator<Item = String>) {
        self.bots = Some(names.into_iter().collect());
    }

    /// Compiles a condition whose facts have to be known at a stage.
    ///
    /// # Errors
    /// All mistakes in it, each with its place.
    pub fn compile(&self, text: &str, stage: FactStage) -> Result<Condition, Vec<Mistake>> {
        let syntax = parse(text).map_err(|mistake| vec![mistake])?;
        self.check(&syntax, 0..text.len(), stage)
    }

    /// Compiles a condition that is a table: all its facts have to have one of their values. Paths and hosts are patterns,
    /// texts after `~` are regular expressions, and after `~*` regular expressions without regard to case. Places of mistakes are
    /// positions in `fields`.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn compile_table(
        &self,
        fields: &[TableField],
        stage: FactStage,
    ) -> Result<Condition, Vec<Mistake>> {
        let parts = fields
            .iter()
            .enumerate()
            .map(|(at, field)| field.syntax(at));
        self.check(&Syntax::All(parts.collect()), 0..fields.len(), stage)
    }

    fn check(
        &self,
        syntax: &Syntax,
        whole: Range<usize>,
        stage: FactStage,
    ) -> Result<Condition, Vec<Mistake>> {
        let mut checker = Checker {
            definitions: self,
            mistakes: Vec::new(),
            stage,
        };
        let compiled = checker.condition(syntax);
        if let Some(why) = compiled.as_ref().and_then(contradiction) {
            checker.mistakes.push(Mistake::new(whole, why));
        }
        match compiled {
            Some(condition) if checker.mistakes.is_empty() => Ok(condition),
            _ => Err(checker.mistakes),
        }
    }
}

/// A condition on a request, without names of other conditions and lists.
impl FromStr for Condition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        let compiled = Definitions::default().compile(text, FactStage::Request);
        compiled.map_err(InvalidCondition)
    }
}

/// A condition is invalid: all mistakes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCondition(pub Vec<Mistake>);

impl fmt::Display for InvalidCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{mistake} (at {})", mistake.place.start)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidCondition {}

/// The names in a condition that may be those of other conditions. None if it cannot be read.
pub fn names_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(syntax) = parse(text) {
        collect_names(&syntax, &mut names);
    }
    names
}

fn collect_names(syntax: &Syntax, names: &mut Vec<String>) {
    match syntax {
        Syntax::Any(parts) | Syntax::All(parts) => {
            parts.iter().for_each(|part| collect_names(part, names));
        }
        Syntax::Not(inner) => collect_names(inner, names),
        Syntax::Name(name) => names.push(name.value.clone()),
        Syntax::Exists(_) | Syntax::Comparison(_) => {}
    }
}

/// A name that a condition cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

/// A fact of a condition that is a table, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableField {
    /// The fact, as it stands in conditions.
    pub fact: String,
    /// What it is compared with.
    pub values: TableValues,
}

/// What a fact is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableValues {
    /// Whether it is true.
    Flag(bool),
    /// One of these.
    Texts(Vec<String>),
}

impl TableField {
    fn syntax(&self, at: usize) -> Syntax {
        let place = at..at.saturating_add(1);
        let name = Spanned {
            value: self.fact.clone(),
            place: place.clone(),
        };
        let texts = match &self.values {
            TableValues::Flag(true) => return Syntax::Name(name),
            TableValues::Flag(false) => return Syntax::Not(Box::new(Syntax::Name(name))),
            TableValues::Texts(texts) => texts,
        };
        let (expressions, others): (Vec<&String>, Vec<&String>) =
            texts.iter().partition(|text| text.starts_with('~'));
        let is_pattern = Fact::parse(&self.fact).is_some_and(|fact| {
            matches!(fact.kind().value_type(), ValueType::Path | ValueType::Host)
        });
        let comparison = |operator, values: Vec<Value>| {
            let spanned = values.into_iter().map(|value| Spanned {
                value,
                place: place.clone(),
            });
            Syntax::Comparison(ComparisonSyntax {
                fact: name.clone(),
                operator: Spanned {
                    value: operator,
                    place: place.clone(),
                },
                values: spanned.collect(),
                is_list: false,
            })
        };
        let mut parts: Vec<Syntax> = expressions
            .iter()
            .map(|text| {
                let text = text.trim_start_matches('~');
                let text = match text.strip_prefix('*') {
                    Some(text) => format!("(?i){text}"),
                    None => text.to_owned(),
                };
                comparison(Operator::Regex, vec![Value::Text(text)])
            })
            .collect();
        if !others.is_empty() || parts.is_empty() {
            let operator = if is_pattern {
                Operator::Matches
            } else {
                Operator::In
            };
            let values = others.iter().map(|text| match text.strip_prefix('@') {
                Some(list) => Value::List(list.to_owned()),
                None => Value::Text((*text).clone()),
            });
            parts.push(comparison(operator, values.collect()));
        }
        match parts.len() {
            1 => parts.pop().unwrap_or(Syntax::Any(Vec::new())),
            _ => Syntax::Any(parts),
        }
    }
}

struct Checker<'a> {
    definitions: &'a Definitions,
    mistakes: Vec<Mistake>,
    stage: FactStage,
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
            Syntax::Exists(name) => {
                let fact = self.existing(name)?;
                Expression::Test(self.test(fact, Question::Exists))
            }
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
            let condition = condition.clone();
            if condition.stage() > self.stage {
                let message = format!(
                    "`{}` is about what is {}",
                    name.value,
                    too_late(condition.stage())
                );
                return self.mistake(&name.place, message);
            }
            return Some(condition);
        }
        let fact = self.fact(name)?;
        if fact.kind().value_type() != ValueType::Flag {
            return self.mistake(
                &name.place,
                format!("`{fact}` is not true or false: compare it, or ask `{fact} exists`"),
            );
        }
        let test = self.test(fact, Question::IsTrue);
        Some(Condition(Arc::new(Expression::Test(test))))
    }

    fn test(&self, fact: Fact, question: Question) -> Test {
        let is_time = matches!(fact.kind(), FactKind::TimeOfDay | FactKind::Weekday);
        let zone = || {
            self.definitions
                .zone
                .clone()
                .unwrap_or_else(TimeZone::system)
        };
        let geo = self.definitions.geo.as_ref();
        Test {
            geo: geo.filter(|_| fact.kind().is_geo()).cloned(),
            fact,
            question,
            zone: is_time.then(zone),
            may_change: false,
        }
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
        let found = self.definitions.fact(&name.value);
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
        let found = found?;
        if found.kind() == FactKind::Share {
            self.check_share(&found, &name.place)?;
        }
        if found.kind().is_geo() {
            self.check_geo(&found, &name.place)?;
        }
        match found.kind() {
            FactKind::TlsFingerprint => TlsFingerprints::want(),
            FactKind::Load | FactKind::Connections => ServerLoad::want(),
            FactKind::LimitLeft => self
                .definitions
                .asks_for_limits
                .store(true, Ordering::Relaxed),
            _ => {}
        }
        let stage = found.stage();
        if stage > self.stage {
            return self.mistake(&name.place, format!("`{found}` is {}", too_late(stage)));
        }
        Some(found)
    }

    /// A fact of places needs a database that has it.
    fn check_geo(&mut self, fact: &Fact, place: &Range<usize>) -> Option<()> {
        let has = |geo: &Arc<GeoDatabases>| geo.have(fact.kind());
        match &self.definitions.geo {
            Some(geo) if has(geo) => Some(()),
            Some(geo) if geo.databases().next().is_some() => self.mistake(
                place,
                format!("no database of `geo_databases` has `{fact}`"),
            ),
            _ => self.mistake(
                place,
                format!("`{fact}` needs a database of places: name its file in `geo_databases`"),
            ),
        }
    }

    /// What a share is of is a fact whose values are texts.
    fn check_share(&mut self, share: &Fact, place: &Range<usize>) -> Option<()> {
        let name = share.name().unwrap_or_default();
        if name == share::REQUEST {
            return Some(());
        }
        let Some(of) = self.definitions.fact(name) else {
            return self.mistake(
                place,
                format!("unknown fact `{name}` behind `share.`; there are `share.request`, `share.client`, `share.cookie.NAME` and others"),
            );
        };
        let is_text = !matches!(
            of.kind().value_type(),
            ValueType::Number(_) | ValueType::Flag
        ) && of.kind() != FactKind::Weekday
            && !of.kind().is_geo();
        if !is_text || of.stage() > self.stage {
            return self.mistake(place, format!("there is no share of `{of}` here"));
        }
        Some(())
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
        if fact.kind() == FactKind::GeoCountry {
            self.check_countries(comparison)?;
        }
        if matches!(fact.kind(), FactKind::Bot | FactKind::BotClaimed) {
            self.bot_names(comparison)?;
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
        self.check_map_values(&fact, comparison)?;
        let may_change = comparison.values.iter().any(|value| match &value.value {
            Value::List(name) => self.definitions.changing.contains(name),
            Value::Text(_) | Value::Word(_) => false,
        });
        let test = Expression::Test(Test {
            may_change,
            ..self.test(fact, question)
        });
        Some(match operator {
            Operator::Unequal | Operator::NoRegex => Expression::Not(Condition(Arc::new(test))),
            _ => test,
        })
    }

    /// Whole values of a country are codes: another text would be equal to nothing.
    fn check_countries(&mut self, comparison: &ComparisonSyntax) -> Option<()> {
        let are_whole = matches!(
            comparison.operator.value,
            Operator::In | Operator::Equal | Operator::Unequal
        );
        for value in comparison.values.iter().filter(|_| are_whole) {
            if let Value::Text(text) | Value::Word(text) = &value.value
                && !(text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase()))
            {
                let message = format!(
                    "`{text}` is no code of a country: these are two capital letters, as \"DE\" (ISO 3166-1)"
                );
                return self.mistake(&value.place, message);
            }
        }
        Some(())
    }

    /// Reports names that no bot has.
    fn bot_names(&mut self, comparison: &ComparisonSyntax) -> Option<()> {
        let is_of_names = matches!(
            comparison.operator.value,
            Operator::Equal | Operator::Unequal | Operator::In
        );
        let Some(bots) = self.definitions.bots.as_ref().filter(|_| is_of_names) else {
            return Some(());
        };
        let wrong = comparison
            .values
            .iter()
            .find_map(|value| match &value.value {
                Value::Text(name) | Value::Word(name) if !bots.contains(name) => {
                    Some((name, &value.place))
                }
                _ => None,
            });
        let Some((name, place)) = wrong else {
            return Some(());
        };
        let known: Vec<&str> = bots.iter().map(String::as_str).collect();
        let message = if known.is_empty() {
            "no bots are known here".to_owned()
        } else {
            format!("no bot is called `{name}`, but {}", known.join(", "))
        };
        self.mistake(place, message)
    }

    /// Finds values that a map does not have.
    fn check_map_values(&mut self, fact: &Fact, comparison: &ComparisonSyntax) -> Option<()> {
        let operator = comparison.operator.value;
        let is_whole = matches!(operator, Operator::Equal | Operator::Unequal | Operator::In);
        let maps = self.definitions.maps.as_ref();
        let name = fact.name().filter(|_| fact.kind() == FactKind::MapValue);
        let possible = maps
            .zip(name)
            .and_then(|(maps, name)| maps.possible_values(name));
        let Some(possible) = possible.filter(|_| is_whole) else {
            return Some(());
        };
        let unknown = comparison
            .values
            .iter()
            .find_map(|value| match &value.value {
                Value::Text(text) | Value::Word(text) => {
                    (!possible.contains(text.as_str())).then_some((text, &value.place))
                }
                Value::List(_) => None,
            });
        let Some((text, place)) = unknown else {
            return Some(());
        };
        // A map may have many.
        let some: Vec<_> = possible.iter().take(10).copied().collect();
        let message = format!(
            "`{fact}` is never `{text}`; its values are {}",
            some.join(", ")
        );
        self.mistake(place, message)
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
                    Some(ConditionList::Networks(set)) => listed.push(Arc::clone(set)),
                    Some(ConditionList::Texts(_)) => {
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
            match &value.value {
                Value::Text(text) | Value::Word(text) => values.push(Spanned {
                    value: text.clone(),
                    place: value.place.clone(),
                }),
                Value::List(name) => match self.definitions.lists.get(name) {
                    Some(ConditionList::Texts(texts)) => {
                        values.extend(texts.whole.iter().map(|text| Spanned {
                            value: String::from_utf8_lossy(text).into_owned(),
                            place: value.place.clone(),
                        }));
                    }
                    Some(ConditionList::Networks(_)) => {
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
            Operator::Contains => match TextSet::new(values.iter().map(|value| &value.value)) {
                Ok(texts) => Some(Question::Contains(texts)),
                Err(error) => self.mistake(&comparison.operator.place, error.to_string()),
            },
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
                        Ok(glob) => globs.push(ConditionGlob {
                            glob,
                            prefix: literal_prefix(&value.value).into(),
                        }),
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

/// What each path begins with that a pattern matches. A pattern without a slash at its beginning matches in any folder.
fn literal_prefix(pattern: &str) -> &[u8] {
    if !pattern.starts_with('/') {
        return &[];
    }
    let end = pattern.find(['*', '?', '[', '{', '\\']);
    let end = end.unwrap_or(pattern.len());
    pattern.as_bytes().get(..end).unwrap_or_default()
}

/// When facts of a stage are known, for a place that is before.
fn too_late(stage: FactStage) -> &'static str {
    match stage {
        FactStage::Request => "known from the head of the request on",
        FactStage::Authentication => {
            "known after the authentication: in limits, and in rules for responses"
        }
        FactStage::Response => "known with the response: in rules with `on = \"response\"`",
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
    let facts = FACTS.iter().map(|kind| kind.name().to_owned());
    let maps = definitions.maps.iter().flat_map(RequestMaps::names);
    let variables = definitions.variables.iter().flatten();
    let limits = definitions.limits.iter().flat_map(BTreeMap::keys);
    let known = facts
        .chain(definitions.conditions.keys().cloned())
        .chain(maps.map(|map| format!("map.{map}")))
        .chain(variables.map(|name| format!("var.{name}")))
        .chain(limits.map(|name| format!("limit.{name}")));
    known
        .map(|known| (distance(name, &known), known))
        .min()
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 4))
        .map(|(_, known)| known)
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
