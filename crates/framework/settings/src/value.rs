//! `SettingsValue`: a tree of values that knows where each of them comes from.

use std::collections::BTreeMap;
use std::rc::Rc;

/// A value, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct SettingsValue {
    pub(crate) kind: ValueKind,
    pub(crate) origin: Rc<str>,
}

#[derive(Clone, Debug)]
pub(crate) enum ValueKind {
    /// A variable, which is parsed into the type of the field.
    Variable(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<SettingsValue>),
    Table(BTreeMap<String, SettingsValue>),
}

impl SettingsValue {
    pub(crate) fn new(kind: ValueKind, origin: &Rc<str>) -> Self {
        Self {
            kind,
            origin: origin.clone(),
        }
    }

    pub(crate) fn table() -> Self {
        Self::new(ValueKind::Table(BTreeMap::new()), &Rc::from(""))
    }

    /// The value of a document in TOML.
    pub(crate) fn of_toml(value: toml::Value, origin: &Rc<str>) -> Self {
        let kind = match value {
            toml::Value::String(text) => ValueKind::Text(text),
            toml::Value::Integer(number) => ValueKind::Integer(number),
            toml::Value::Float(number) => ValueKind::Float(number),
            toml::Value::Boolean(is_set) => ValueKind::Boolean(is_set),
            toml::Value::Datetime(time) => ValueKind::Text(time.to_string()),
            toml::Value::Array(values) => {
                let values = values.into_iter();
                ValueKind::List(values.map(|value| Self::of_toml(value, origin)).collect())
            }
            toml::Value::Table(table) => {
                let values = table.into_iter();
                let values = values.map(|(key, value)| (key, Self::of_toml(value, origin)));
                ValueKind::Table(values.collect())
            }
        };
        Self::new(kind, origin)
    }

    /// Replaces and extends these values by others.
    pub(crate) fn merge(&mut self, other: Self) {
        match (&mut self.kind, other.kind) {
            (ValueKind::Table(values), ValueKind::Table(others)) => {
                for (key, value) in others {
                    match values.get_mut(&key) {
                        Some(known) => known.merge(value),
                        None => {
                            values.insert(key, value);
                        }
                    }
                }
            }
            (kind, other_kind) => {
                *kind = other_kind;
                self.origin = other.origin;
            }
        }
    }

    /// Sets the value of a key, whose tables are made if they are missing.
    pub(crate) fn set(&mut self, path: &[String], value: Self) {
        let Some((key, rest)) = path.split_first() else {
            return self.merge(value);
        };
        match &mut self.kind {
            ValueKind::Table(values) => {
                values
                    .entry(key.clone())
                    .or_insert_with(Self::table)
                    .set(rest, value);
            }
            ValueKind::List(values) => {
                let index = key.parse().ok();
                if let Some(found) = index.and_then(|index: usize| values.get_mut(index)) {
                    found.set(rest, value);
                }
            }
            _ => {
                self.kind = ValueKind::Table(BTreeMap::new());
                self.set(path, value);
            }
        }
    }

    /// Removes the value of a key.
    pub(crate) fn remove(&mut self, path: &[String]) {
        let Some((key, rest)) = path.split_first() else {
            return;
        };
        match &mut self.kind {
            ValueKind::Table(values) if rest.is_empty() => {
                values.remove(key);
            }
            ValueKind::Table(values) => {
                if let Some(found) = values.get_mut(key) {
                    found.remove(rest);
                }
            }
            ValueKind::List(values) => {
                let index = key.parse().ok();
                if let Some(found) = index.and_then(|index: usize| values.get_mut(index)) {
                    found.remove(rest);
                }
            }
            _ => {}
        }
    }

    /// The value of a key.
    pub(crate) fn get(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |value, key| match &value.kind {
            ValueKind::Table(values) => values.get(key),
            ValueKind::List(values) => values.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }
}
