//! Conditions that can never be true.

use std::ops::RangeInclusive;

use crate::expression::{Condition, Expression, Question, Test};
use crate::fact::{Fact, FactKind, ValueType};

/// Why a condition, or a part of it, can never be true.
// Each part is looked at by itself, as each was written to be true at some time. What no set of texts shows, such as two regular
// expressions that no text matches, is not found.
pub(crate) fn contradiction(condition: &Condition) -> Option<String> {
    match &*condition.0 {
        Expression::Any(parts) => parts.iter().find_map(contradiction),
        Expression::All(parts) => parts
            .iter()
            .find_map(contradiction)
            .or_else(|| conflict(parts)),
        Expression::Not(inner) => contradiction(inner),
        Expression::Test(_) => conflict(std::slice::from_ref(condition)),
    }
}

/// A test of a conjunction, and whether it has to hold or must not.
struct Literal<'a> {
    test: &'a Test,
    holds: bool,
}

/// Why the tests among these conditions cannot all be as they have to be.
fn conflict(parts: &[Condition]) -> Option<String> {
    let mut literals = Vec::new();
    collect(parts, &mut literals);
    literals.retain(|literal| !literal.test.may_change);
    let mut seen: Vec<&Fact> = Vec::new();
    for literal in &literals {
        let fact = &literal.test.fact;
        if seen.contains(&fact) {
            continue;
        }
        seen.push(fact);
        let own: Vec<&Literal<'_>> = literals
            .iter()
            .filter(|other| other.test.fact == *fact)
            .collect();
        if !is_possible(fact, &own) {
            return Some(format!("it is never true: no `{fact}` is like this"));
        }
    }
    None
}

fn collect<'a>(parts: &'a [Condition], literals: &mut Vec<Literal<'a>>) {
    for part in parts {
        match &*part.0 {
            Expression::Test(test) => literals.push(Literal { test, holds: true }),
            Expression::All(inner) => collect(inner, literals),
            Expression::Not(inner) => {
                if let Expression::Test(test) = &*inner.0 {
                    literals.push(Literal { test, holds: false });
                }
            }
            Expression::Any(_) => {}
        }
    }
}

fn is_possible(fact: &Fact, literals: &[&Literal<'_>]) -> bool {
    let is_absent = literals
        .iter()
        .any(|literal| !literal.holds && matches!(literal.test.question, Question::Exists));
    if is_absent && literals.iter().any(|literal| literal.holds) {
        return false;
    }
    match fact.kind().value_type() {
        ValueType::Flag => {
            let first = literals.first().map(|literal| literal.holds);
            literals.iter().all(|literal| Some(literal.holds) == first)
        }
        ValueType::Number(_) => is_number_possible(fact.kind(), literals),
        ValueType::Address => {
            let sets: Vec<_> = literals
                .iter()
                .filter(|literal| literal.holds)
                .filter_map(|literal| match &literal.test.question {
                    Question::Networks(set) => Some(set),
                    _ => None,
                })
                .collect();
            let is_pair_possible = |at: usize| {
                let rest = sets.get(at + 1..).unwrap_or_default();
                sets.get(at)
                    .is_none_or(|set| rest.iter().all(|other| !set.is_disjoint(other)))
            };
            sets.iter().all(|set| !set.is_empty()) && (0..sets.len()).all(is_pair_possible)
        }
        // One value may be the one, and another the other.
        _ if fact.is_multiple() => literals.iter().all(|literal| {
            !literal.holds
                || !matches!(&literal.test.question, Question::IsOneOf(values) if values.is_empty())
        }),
        value_type => is_text_possible(value_type, literals),
    }
}

/// Tries the values that are named, which are all that there can be if one test names them.
fn is_text_possible(value_type: ValueType, literals: &[&Literal<'_>]) -> bool {
    let named = literals
        .iter()
        .find_map(|literal| match &literal.test.question {
            Question::IsOneOf(values) if literal.holds => Some(
                values
                    .iter()
                    .map(|value| value.to_vec())
                    .collect::<Vec<_>>(),
            ),
            _ => None,
        });
    let words = match value_type {
        ValueType::Word(words) => Some(words.iter().map(|word| word.as_bytes().to_vec()).collect()),
        _ => None,
    };
    // The value may be unknown, unless a test has to hold.
    let may_be_absent = literals.iter().all(|literal| !literal.holds);
    named.or(words).is_none_or(|candidates| {
        may_be_absent
            || candidates.iter().any(|candidate| {
                literals
                    .iter()
                    .all(|literal| literal.test.question.is_met_by(candidate) == literal.holds)
            })
    })
}

fn is_number_possible(kind: FactKind, literals: &[&Literal<'_>]) -> bool {
    if literals.iter().all(|literal| !literal.holds) {
        return true;
    }
    let domain = match kind {
        // RFC 9110 section 15.
        FactKind::Status => 100..=599,
        FactKind::Load => 0..=10_000,
        FactKind::TimeOfDay => 0..=24 * 60 - 1,
        _ => 0..=u64::MAX,
    };
    let mut possible: Vec<RangeInclusive<u64>> = vec![domain];
    for literal in literals {
        if let Question::Numbers(ranges) = &literal.test.question {
            possible = if literal.holds {
                intersection(&possible, ranges)
            } else {
                ranges
                    .iter()
                    .fold(possible, |left, range| without(&left, range))
            };
        }
    }
    !possible.is_empty()
}

fn intersection(
    one: &[RangeInclusive<u64>],
    other: &[RangeInclusive<u64>],
) -> Vec<RangeInclusive<u64>> {
    let pairs = one
        .iter()
        .flat_map(|one| other.iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| *one.start().max(other.start())..=*one.end().min(other.end()))
        .filter(|range| !range.is_empty())
        .collect()
}

fn without(
    ranges: &[RangeInclusive<u64>],
    removed: &RangeInclusive<u64>,
) -> Vec<RangeInclusive<u64>> {
    let mut rest = Vec::new();
    for range in ranges {
        if let Some(before) = removed.start().checked_sub(1) {
            rest.push(*range.start()..=before.min(*range.end()));
        }
        if let Some(after) = removed.end().checked_add(1) {
            rest.push(after.max(*range.start())..=*range.end());
        }
    }
    rest.retain(|range| !range.is_empty());
    rest
}
