//! `SessionRecord`: the values of a session, and their JSON format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Values by their names.
pub(super) type Values = BTreeMap<String, Value>;

/// The changes of values by name; `None` removes a value.
pub(super) type Changes = BTreeMap<String, Option<Value>>;

/// A session as JSON in a store or a cookie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    /// The time of its start, in seconds since 1970.
    #[serde(rename = "c")]
    pub(super) created: u64,
    /// The expiry time, in a cookie. A store keeps it itself.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<u64>,
    #[serde(rename = "v")]
    pub(super) values: Values,
}

impl SessionRecord {
    /// The values after the changes; `None` if the changes make no difference.
    pub(super) fn changed(&self, changes: &Changes) -> Option<Values> {
        let makes_difference = changes
            .iter()
            .any(|(name, value)| self.values.get(name) != value.as_ref());
        if !makes_difference {
            return None;
        }
        let mut values = self.values.clone();
        for (name, value) in changes {
            match value {
                Some(value) => values.insert(name.clone(), value.clone()),
                None => values.remove(name),
            };
        }
        Some(values)
    }
}

/// The lifetimes of sessions, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) idle: u64,
    pub(super) absolute: u64,
}

impl Lifetime {
    /// The expiry time of a session that is used now.
    pub(super) fn expires(&self, now: u64, created: u64) -> u64 {
        now.saturating_add(self.idle)
            .min(created.saturating_add(self.absolute))
    }

    /// Whether a use moves the expiry time enough to be written.
    pub(super) fn needs_touch(&self, now: u64, created: u64, expires: u64) -> bool {
        let gained = self.expires(now, created).saturating_sub(expires);
        gained > 0 && gained >= self.idle / 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_without_difference_are_ignored() {
        let record = SessionRecord {
            values: Values::from([("a".into(), 1.into()), ("b".into(), 2.into())]),
            ..SessionRecord::default()
        };
        let same = Changes::from([("a".into(), Some(1.into())), ("c".into(), None)]);
        assert_eq!(record.changed(&same), None);
        let other = Changes::from([("a".into(), None), ("c".into(), Some(3.into()))]);
        let values = Values::from([("b".into(), 2.into()), ("c".into(), 3.into())]);
        assert_eq!(record.changed(&other), Some(values));
    }

    #[test]
    fn use_extends_a_session_up_to_its_absolute_lifetime() {
        let lifetime = Lifetime {
            idle: 100,
            absolute: 250,
        };
        assert_eq!(lifetime.expires(1000, 1000), 1100);
        assert_eq!(lifetime.expires(1200, 1000), 1250);
        assert!(!lifetime.needs_touch(1009, 1000, 1100));
        assert!(lifetime.needs_touch(1010, 1000, 1100));
        assert!(!lifetime.needs_touch(1249, 1000, 1250));
    }
}
