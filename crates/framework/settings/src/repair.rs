//! Finds all mistakes of values: serde ends at the first one, so a value that is not valid is replaced by one that is,
//! and the values are read again.

use std::rc::Rc;

use serde::de::DeserializeOwned;

use crate::error::SettingsMistake;
use crate::read::{MistakeKind, SettingsReadError};
use crate::value::{SettingsValue, ValueKind};

/// The most mistakes that are looked for.
const MAX: usize = 50;

/// Reads a struct, or finds the mistakes of its values.
pub(crate) fn read<T: DeserializeOwned>(
    mut values: SettingsValue,
) -> Result<T, Vec<SettingsMistake>> {
    let mut error = match T::deserialize(&values) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let mut mistakes = Vec::new();
    loop {
        mistakes.push(mistake(&error, &values));
        if mistakes.len() == MAX {
            return Err(mistakes);
        }
        match repair::<T>(&mut values, &error) {
            Some(next) => error = next,
            None => return Err(mistakes),
        }
    }
}

/// What is wrong, without the value.
fn mistake(error: &SettingsReadError, values: &SettingsValue) -> SettingsMistake {
    let mut path = error.path();
    let found = values.get(&path);
    let mut origin = found.map_or_else(String::new, |value| value.origin.to_string());
    let list = |names: &[&str]| names.join(", ");
    let problem = match &error.kind {
        // The message of a type of the application may contain the value.
        MistakeKind::Invalid(problem)
            if !problem.starts_with("expected ")
                && (is_secret(&path) || found.is_some_and(|value| has_text(problem, value))) =>
        {
            "the value is not valid".to_owned()
        }
        MistakeKind::Invalid(problem) => problem.clone(),
        MistakeKind::Missing(field) => {
            path.push((*field).to_owned());
            origin.clear();
            "a value is missing".to_owned()
        }
        MistakeKind::Unknown { expected } => {
            format!("there is no such key; expected one of {}", list(expected))
        }
        MistakeKind::NotListed { expected } => format!("expected one of {}", list(expected)),
    };
    SettingsMistake {
        key: path.join("."),
        origin,
        problem,
    }
}

/// Whether a message contains a value.
fn has_text(message: &str, value: &SettingsValue) -> bool {
    match &value.kind {
        ValueKind::Variable(text) | ValueKind::Text(text) => message.contains(&**text),
        _ => false,
    }
}

/// Whether the name of a key says that its value is a secret.
fn is_secret(path: &[String]) -> bool {
    let names = [
        "password", "secret", "token", "key", "database", "server", "url",
    ];
    path.iter()
        .any(|part| names.iter().any(|name| part.contains(name)))
}

/// Replaces the value of a mistake, so that the values can be read up to the next one. Returns that one.
fn repair<T: DeserializeOwned>(
    values: &mut SettingsValue,
    error: &SettingsReadError,
) -> Option<SettingsReadError> {
    let mut path = error.path();
    let expected = match &error.kind {
        MistakeKind::Unknown { .. } => {
            values.remove(&path);
            return T::deserialize(&*values).err();
        }
        MistakeKind::Missing(field) => {
            path.push((*field).to_owned());
            &[][..]
        }
        MistakeKind::NotListed { expected } => expected,
        MistakeKind::Invalid(_) => &[],
    };
    let mut named = expected;
    let mut tried_names = false;
    loop {
        for kind in candidates(named) {
            let mut tried = values.clone();
            tried.set(&path, SettingsValue::new(kind, &Rc::from("")));
            match T::deserialize(&tried) {
                Ok(_) => {
                    *values = tried;
                    return None;
                }
                Err(next) if is_elsewhere(&next, &path) => {
                    *values = tried;
                    return Some(next);
                }
                // One of a list of names, of which nothing was known before.
                Err(next) => {
                    if let MistakeKind::NotListed { expected } = next.kind {
                        named = expected;
                    }
                }
            }
        }
        if tried_names || named.is_empty() {
            return None;
        }
        tried_names = true;
    }
}

/// Whether a mistake is not the one at this key. A table whose own keys are missing is another one.
fn is_elsewhere(error: &SettingsReadError, path: &[String]) -> bool {
    error.path() != path || matches!(error.kind, MistakeKind::Missing(_))
}

/// Values of which most types accept one.
fn candidates(expected: &[&str]) -> impl Iterator<Item = ValueKind> {
    let texts = [
        "x",
        "1",
        "127.0.0.1:80",
        "127.0.0.1",
        "a@example.com",
        "http://localhost/",
        "1970-01-01T00:00:00Z",
        "1970-01-01",
        "00000000-0000-0000-0000-000000000000",
        "",
    ];
    let named: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let named = named.into_iter().map(ValueKind::Text);
    let kinds = [
        ValueKind::Table(std::collections::BTreeMap::new()),
        ValueKind::Integer(1),
        ValueKind::Boolean(false),
        ValueKind::Float(1.0),
        ValueKind::List(Vec::new()),
    ];
    let texts = texts.map(|text| ValueKind::Text(text.to_owned()));
    named.chain(kinds).chain(texts)
}
