//! Compiled conditions: what is evaluated for each request.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use apus_patterns::{Glob, ServerNames};
use jiff::tz::TimeZone;
use regex::bytes::Regex;

use crate::fact::{Fact, FactKind, FactStage, ValueType};
use crate::facts::Facts;
use crate::geo::GeoDatabases;
use crate::list::TextSet;
use crate::network_set::NetworkSet;
use crate::share;

/// A compiled condition, which many places may share.
#[derive(Clone, Debug)]
pub struct Condition(pub(crate) Arc<Expression>);

#[derive(Debug)]
pub(crate) enum Expression {
    Any(Vec<Condition>),
    All(Vec<Condition>),
    Not(Condition),
    Test(Test),
}

/// A question about one fact.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) fact: Fact,
    pub(crate) question: Question,
    /// The zone of a time.
    pub(crate) zone: Option<TimeZone>,
    /// The databases of a fact of places.
    pub(crate) geo: Option<Arc<GeoDatabases>>,
    /// Whether its values are those of a file, so that others may be there tomorrow.
    pub(crate) may_change: bool,
}

#[derive(Debug)]
pub(crate) enum Question {
    IsTrue,
    Exists,
    IsOneOf(HashSet<Box<[u8]>>),
    Contains(TextSet),
    StartsWith(Vec<Box<[u8]>>),
    EndsWith(Vec<Box<[u8]>>),
    Regex(Regex),
    Globs(Vec<ConditionGlob>),
    Hosts(Box<ServerNames>),
    Networks(Arc<NetworkSet>),
    Numbers(Vec<RangeInclusive<u64>>),
}

/// A pattern of paths.
#[derive(Debug)]
pub(crate) struct ConditionGlob {
    pub(crate) glob: Glob,
    /// What each path that matches begins with.
    pub(crate) prefix: Box<[u8]>,
}

impl Condition {
    /// Whether the condition holds.
    pub fn holds(&self, facts: &dyn Facts) -> bool {
        match &*self.0 {
            Expression::Any(parts) => parts.iter().any(|part| part.holds(facts)),
            Expression::All(parts) => parts.iter().all(|part| part.holds(facts)),
            Expression::Not(inner) => !inner.holds(facts),
            Expression::Test(test) => test.holds(facts),
        }
    }

    /// A condition that always holds.
    pub fn always() -> Self {
        Self(Arc::new(Expression::All(Vec::new())))
    }

    /// Why the condition does not hold, in a few words: the first fact that is not as it would have to be.
    pub fn why_not(&self, facts: &dyn Facts) -> String {
        match &*self.0 {
            Expression::All(parts) => {
                let failing = parts.iter().find(|part| !part.holds(facts));
                failing.map_or_else(String::new, |part| part.why_not(facts))
            }
            Expression::Any(parts) => {
                let reasons: Vec<_> = parts.iter().map(|part| part.why_not(facts)).collect();
                reasons.join(", ")
            }
            Expression::Not(inner) => match &*inner.0 {
                Expression::Test(test) => test.value(facts),
                _ => "what must not hold does".to_owned(),
            },
            Expression::Test(test) => test.value(facts),
        }
    }

    /// When all its facts are known.
    pub fn stage(&self) -> FactStage {
        let of = |parts: &[Self]| parts.iter().map(Self::stage).max();
        match &*self.0 {
            Expression::Any(parts) | Expression::All(parts) => {
                of(parts).unwrap_or(FactStage::Request)
            }
            Expression::Not(inner) => inner.stage(),
            Expression::Test(test) => test.fact.stage(),
        }
    }

    /// Calls `each` with the facts that it is about.
    pub fn each_fact<'a>(&'a self, each: &mut dyn FnMut(&'a Fact)) {
        match &*self.0 {
            Expression::Any(parts) | Expression::All(parts) => {
                parts.iter().for_each(|part| part.each_fact(each));
            }
            Expression::Not(inner) => inner.each_fact(each),
            Expression::Test(test) => each(&test.fact),
        }
    }
}

impl Test {
    fn holds(&self, facts: &dyn Facts) -> bool {
        match &self.question {
            Question::IsTrue => facts.flag(&self.fact),
            Question::Exists => self.exists(facts),
            Question::Networks(set) => set.has_client(facts.address()),
            Question::Numbers(ranges) => self
                .number(facts)
                .is_some_and(|number| ranges.iter().any(|range| range.contains(&number))),
            text if self.fact.kind() == FactKind::Weekday => {
                const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
                let day = self.local(facts).weekday().to_monday_zero_offset();
                let day = usize::try_from(day).ok().and_then(|day| DAYS.get(day));
                day.is_some_and(|day| text.is_met_by(day.as_bytes()))
            }
            text => self.any_text(facts, &mut |value| text.is_met_by(&value)),
        }
    }

    /// The fact and its value.
    fn value(&self, facts: &dyn Facts) -> String {
        let fact = &self.fact;
        if fact.kind().value_type() == ValueType::Flag {
            let is = if facts.flag(fact) { "is" } else { "is not" };
            return format!("`{fact}` {is} true");
        }
        if let Question::Networks(_) = self.question {
            return match facts.address() {
                Some(address) => format!("`client` is {address}"),
                None => "the client is behind a Unix socket".to_owned(),
            };
        }
        if let Some(number) = self.number(facts) {
            return format!("`{fact}` is {number}");
        }
        let mut values = Vec::new();
        self.any_text(facts, &mut |value| {
            values.push(format!("\"{}\"", value.escape_ascii()));
            false
        });
        if values.is_empty() {
            format!("there is no `{fact}`")
        } else {
            format!("`{fact}` is {}", values.join(" and "))
        }
    }

    fn exists(&self, facts: &dyn Facts) -> bool {
        self.number(facts).is_some() || self.any_text(facts, &mut |_| true)
    }

    fn any_text(&self, facts: &dyn Facts, each: &mut dyn FnMut(Cow<'_, [u8]>) -> bool) -> bool {
        match (&self.geo, facts.address()) {
            (None, _) => facts.any_text(&self.fact, each),
            (Some(geo), Some(ip)) => geo
                .text(self.fact.kind(), ip)
                .is_some_and(|text| each(Cow::Borrowed(text.as_bytes()))),
            (Some(_), None) => false,
        }
    }

    fn number(&self, facts: &dyn Facts) -> Option<u64> {
        match self.fact.kind() {
            FactKind::TimeOfDay => {
                let time = self.local(facts);
                let hours = u64::try_from(time.hour()).unwrap_or_default();
                let minutes = u64::try_from(time.minute()).unwrap_or_default();
                Some(hours.saturating_mul(60).saturating_add(minutes))
            }
            FactKind::GeoSystem => {
                let system = self.geo.as_ref()?.system(facts.address()?);
                system.map(u64::from)
            }
            FactKind::Share => share::of(self.fact.name()?, facts),
            _ => facts.number(&self.fact),
        }
    }

    fn local(&self, facts: &dyn Facts) -> jiff::Zoned {
        let zone = self.zone.clone().unwrap_or(TimeZone::UTC);
        facts.now().to_zoned(zone)
    }
}

impl Question {
    /// Whether a text is as the question asks.
    pub(crate) fn is_met_by(&self, value: &[u8]) -> bool {
        match self {
            Self::Exists => true,
            Self::IsOneOf(values) => values.contains(value),
            Self::Contains(texts) => texts.is_part_of(value),
            Self::StartsWith(parts) => parts.iter().any(|part| value.starts_with(part)),
            Self::EndsWith(parts) => parts.iter().any(|part| value.ends_with(part)),
            Self::Regex(regex) => regex.is_match(value),
            Self::Globs(globs) => globs.iter().any(|pattern| pattern.glob.matches(value)),
            Self::Hosts(names) => {
                std::str::from_utf8(value).is_ok_and(|host| names.find(host).is_some())
            }
            Self::IsTrue | Self::Networks(_) | Self::Numbers(_) => false,
        }
    }
}
