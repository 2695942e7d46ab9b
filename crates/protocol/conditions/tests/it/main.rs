//! Conditions as an operator writes them.

#[cfg(test)]
mod geo;
#[cfg(test)]
mod maps;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod results;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use apus_conditions::{Fact, Facts};

/// Facts by their names, as they stand in conditions.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestFacts {
    pub(crate) client: Option<IpAddr>,
    pub(crate) texts: BTreeMap<String, Vec<String>>,
    pub(crate) numbers: BTreeMap<String, u64>,
    pub(crate) flags: Vec<String>,
    pub(crate) now: jiff::Timestamp,
}

impl TestFacts {
    pub(crate) fn with(texts: &[(&str, &str)]) -> Self {
        let mut facts = Self::default();
        for (name, value) in texts {
            let values: &mut Vec<String> = facts.texts.entry((*name).to_owned()).or_default();
            values.push((*value).to_owned());
        }
        facts
    }
}

impl Facts for TestFacts {
    fn any_text(&self, fact: &Fact, each: &mut dyn FnMut(Cow<'_, [u8]>) -> bool) -> bool {
        let values = self.texts.get(&fact.to_string());
        values
            .into_iter()
            .flatten()
            .any(|value| each(Cow::Borrowed(value.as_bytes())))
    }

    fn number(&self, fact: &Fact) -> Option<u64> {
        self.numbers.get(&fact.to_string()).copied()
    }

    fn address(&self) -> Option<IpAddr> {
        self.client
    }

    fn flag(&self, fact: &Fact) -> bool {
        self.flags.contains(&fact.to_string())
    }

    fn request_id(&self) -> String {
        "1".to_owned()
    }

    fn now(&self) -> jiff::Timestamp {
        self.now
    }
}
