//! Compiled conditions: what is evaluated for each request.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use apus_patterns::{Glob, ServerNames};
use regex::bytes::Regex;

use crate::fact::{Fact, Stage};
use crate::network_set::NetworkSet;

/// What is known of a request and its response. A fact that is not known has no value.
pub trait Facts {
    /// Calls `each` with the values of a text, until it returns `true`; returns whether it did.
    fn any_text(&self, fact: &Fact, each: &mut dyn FnMut(Cow<'_, [u8]>) -> bool) -> bool;

    /// A number, in the unit of its type.
    fn number(&self, fact: &Fact) -> Option<u64>;

    /// The address of the client; `None` for a Unix socket.
    fn address(&self) -> Option<IpAddr>;

    /// Whether something is true of the request.
    fn flag(&self, fact: &Fact) -> bool;
}

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
}

#[derive(Debug)]
pub(crate) enum Question {
    IsTrue,
    Exists,
    IsOneOf(HashSet<Box<[u8]>>),
    Contains(Vec<Box<[u8]>>),
    StartsWith(Vec<Box<[u8]>>),
    EndsWith(Vec<Box<[u8]>>),
    Regex(Regex),
    Globs(Vec<Glob>),
    Hosts(Box<ServerNames>),
    Networks(Arc<NetworkSet>),
    Numbers(Vec<RangeInclusive<u64>>),
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

    /// When all its facts are known.
    pub fn stage(&self) -> Stage {
        let of = |parts: &[Self]| parts.iter().map(Self::stage).max();
        match &*self.0 {
            Expression::Any(parts) | Expression::All(parts) => of(parts).unwrap_or(Stage::Request),
            Expression::Not(inner) => inner.stage(),
            Expression::Test(test) => test.fact.kind().stage(),
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
            Question::Networks(set) => match facts.address() {
                Some(address) => set.contains(address),
                None => set.contains_unix(),
            },
            Question::Numbers(ranges) => facts
                .number(&self.fact)
                .is_some_and(|number| ranges.iter().any(|range| range.contains(&number))),
            text => facts.any_text(&self.fact, &mut |value| text.is_met_by(&value)),
        }
    }

    fn exists(&self, facts: &dyn Facts) -> bool {
        facts.number(&self.fact).is_some() || facts.any_text(&self.fact, &mut |_| true)
    }
}

impl Question {
    /// Whether a text is as the question asks.
    pub(crate) fn is_met_by(&self, value: &[u8]) -> bool {
        match self {
            Self::Exists => true,
            Self::IsOneOf(values) => values.contains(value),
            Self::Contains(parts) => parts.iter().any(|part| contains(value, part)),
            Self::StartsWith(parts) => parts.iter().any(|part| value.starts_with(part)),
            Self::EndsWith(parts) => parts.iter().any(|part| value.ends_with(part)),
            Self::Regex(regex) => regex.is_match(value),
            Self::Globs(globs) => globs.iter().any(|glob| glob.matches(value)),
            Self::Hosts(names) => {
                std::str::from_utf8(value).is_ok_and(|host| names.find(host).is_some())
            }
            Self::IsTrue | Self::Networks(_) | Self::Numbers(_) => false,
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}
