//! Maps: a value from a value of the request, as `map` and `geo` of nginx.

mod file;
mod network_map;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use apus_http::{InvalidNetwork, Network, Request, TlsFingerprints};
use apus_patterns::{ServerName, ServerNames};
use regex::bytes::{Regex, RegexSet, RegexSetBuilder};

use crate::fact::{Fact, FactKind, FactStage, ValueType};
use crate::facts::Facts;
use crate::geo::GeoDatabases;

pub use file::{InvalidMapLine, MapLine, map_lines};
use network_map::{NetworkKey, NetworkMap};

/// The most entries of a map.
const MAX_ENTRIES: usize = 1_000_000;

/// A map: a value from a value of the request, as `map` and `geo` of nginx. The most specific key decides.
///
/// What a key is depends on the fact: of addresses, it is a network, of which the longest prefix decides. Of hosts, it is a name as
/// `server_name` has them: the name itself, then the longest wildcard, then regular expressions. Of other texts, it is the whole text, byte
/// for byte, then regular expressions. A regular expression stands behind `~`, or behind `~*` without regard to case; the first that matches
/// decides. The key `""` is for requests without the fact, or with an empty one; `\` before a key takes `~` and
/// `\` as they are.
///
/// A request with several values of the fact, as two fields of the same name, gets the default: nobody chooses by a second value what others
/// do not read.
#[derive(Debug)]
pub struct RequestMap {
    name: Box<str>,
    from: Fact,
    keys: MapKeys,
    /// The positions of values that are known, while entries are added.
    known: HashMap<Arc<str>, u32>,
    values: Vec<Arc<str>>,
    entries: usize,
    absent: Option<u32>,
    default: Option<Arc<str>>,
    may_change: bool,
    /// The databases that know a fact of places.
    geo: Option<Arc<GeoDatabases>>,
}

#[derive(Debug)]
enum MapKeys {
    Texts {
        whole: HashMap<Box<[u8]>, u32>,
        patterns: Vec<(String, u32)>,
        set: RegexSet,
    },
    Hosts(ServerNames),
    Networks {
        /// While entries are added.
        added: HashMap<NetworkKey, u32>,
        map: NetworkMap,
    },
}

impl RequestMap {
    /// A map without entries, from a fact: `client`, `host`, `header.x-api-key`, `map.other`. Its name is letters, digits and `_`.
    ///
    /// # Errors
    /// It is no name, or there is no fact of the request of this name that has a text or an address.
    pub fn new(name: &str, from: &str) -> Result<Self, InvalidMap> {
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            return Err(InvalidMap::Name);
        }
        let Some(from) = Fact::parse(from) else {
            return Err(InvalidMap::UnknownFact(from.to_owned()));
        };
        if from.kind() == FactKind::TlsFingerprint {
            TlsFingerprints::want();
        }
        let keys = match from.kind().value_type() {
            _ if from.kind() == FactKind::Weekday || from.stage() == FactStage::Response => None,
            ValueType::Address => Some(MapKeys::Networks {
                added: HashMap::new(),
                map: NetworkMap::default(),
            }),
            ValueType::Host => Some(MapKeys::Hosts(ServerNames::default())),
            ValueType::Text | ValueType::Word(_) | ValueType::Path => Some(MapKeys::Texts {
                whole: HashMap::new(),
                patterns: Vec::new(),
                set: RegexSet::empty(),
            }),
            ValueType::Number(_) | ValueType::Flag => None,
        };
        Ok(Self {
            name: name.into(),
            keys: keys.ok_or_else(|| InvalidMap::NoText(from.to_string()))?,
            from,
            known: HashMap::new(),
            values: Vec::new(),
            entries: 0,
            absent: None,
            default: None,
            may_change: false,
            geo: None,
        })
    }

    /// The value of requests that no key is for. Without it, they have none.
    #[must_use]
    pub fn default_value(mut self, value: &str) -> Self {
        self.default = Some(value.into());
        self
    }

    /// Adds entries: keys and values.
    ///
    /// # Errors
    /// As [`RequestMap::insert`].
    pub fn entries<'a>(
        mut self,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidMapEntry> {
        for (key, value) in entries {
            self.insert(key, value)?;
        }
        Ok(self)
    }

    /// Notes that the entries are those of a file: a condition may compare the map with values that it does not have yet.
    #[must_use]
    pub fn changing(mut self) -> Self {
        self.may_change = true;
        self
    }

    /// Sets the databases that know facts of places, as `geo.country`.
    ///
    /// # Errors
    /// The map takes its value from a fact that none of them knows.
    pub fn geo_databases(mut self, databases: &Arc<GeoDatabases>) -> Result<Self, InvalidMap> {
        if self.from.kind().is_geo() {
            if !databases.have(self.from.kind()) {
                return Err(InvalidMap::NoDatabase(self.from.to_string()));
            }
            self.geo = Some(Arc::clone(databases));
        }
        Ok(self)
    }

    /// Adds a key and its value.
    ///
    /// # Errors
    /// It is no key of this fact, it is there with another value, or the map is full.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), InvalidMapEntry> {
        if self.entries >= MAX_ENTRIES {
            let why = format!("a map has at most {MAX_ENTRIES} entries");
            return Err(InvalidMapEntry::new("", why));
        }
        let value = self.position(value);
        let is_free = if key.is_empty() {
            *self.absent.get_or_insert(value) == value
        } else {
            self.keys.insert(key, value, self.from.kind())?
        };
        if !is_free {
            let why = "the key is there twice, with different values";
            return Err(InvalidMapEntry::new(key, why));
        }
        self.entries = self.entries.saturating_add(1);
        Ok(())
    }

    fn position(&mut self, value: &str) -> u32 {
        if let Some(position) = self.known.get(value) {
            return *position;
        }
        // There are at most as many values as entries.
        let position = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let value: Arc<str> = value.into();
        self.values.push(Arc::clone(&value));
        self.known.insert(value, position);
        position
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The map that it takes its value from.
    fn other(&self) -> Option<&str> {
        self.from
            .name()
            .filter(|_| self.from.kind() == FactKind::MapValue)
    }

    /// Prepares it for requests.
    fn compile(&mut self) -> Result<(), MapMistake> {
        self.known = HashMap::new();
        match &mut self.keys {
            MapKeys::Texts { patterns, set, .. } if !patterns.is_empty() => {
                let texts = patterns.iter().map(|(text, _)| text);
                *set = RegexSetBuilder::new(texts)
                    .build()
                    .map_err(|_| MapMistake::TooLarge)?;
            }
            MapKeys::Networks { added, map } => *map = NetworkMap::new(std::mem::take(added)),
            MapKeys::Texts { .. } | MapKeys::Hosts(_) => {}
        }
        Ok(())
    }

    fn value(&self, position: Option<u32>) -> Option<&str> {
        position
            .and_then(|position| self.values.get(position as usize))
            .or(self.default.as_ref())
            .map(|value| &**value)
    }

    /// The value for a text; empty is absent.
    fn value_of_text(&self, text: &[u8]) -> Option<&str> {
        self.value(if text.is_empty() {
            self.absent
        } else {
            self.keys.find(text)
        })
    }
}

impl MapKeys {
    /// Adds a key. Returns whether it is not there with another value.
    fn insert(&mut self, key: &str, value: u32, from: FactKind) -> Result<bool, InvalidMapEntry> {
        match self {
            Self::Networks { added, .. } => {
                let network: Network = key.parse().map_err(|error: InvalidNetwork| {
                    InvalidMapEntry::new(key, error.to_string())
                })?;
                Ok(*added.entry(network.into()).or_insert(value) == value)
            }
            Self::Hosts(names) => {
                let invalid =
                    |error: &dyn fmt::Display| InvalidMapEntry::new(key, error.to_string());
                let written = match (key.strip_prefix("~*"), key.strip_prefix('.')) {
                    (Some(pattern), _) => format!("~(?i){pattern}"),
                    (None, Some(parent)) => format!("*.{parent}"),
                    (None, None) => key.to_owned(),
                };
                // `.example.com` is the name and all below it, as in nginx.
                let parent = key.strip_prefix('.').map(str::to_owned);
                for name in [Some(written), parent].into_iter().flatten() {
                    let name: ServerName = name.parse().map_err(|error| invalid(&error))?;
                    if names.insert(&name, value as usize).is_err() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Texts {
                whole, patterns, ..
            } => {
                if let Some(pattern) = key.strip_prefix('~') {
                    let pattern = match pattern.strip_prefix('*') {
                        Some(pattern) => format!("(?i){pattern}"),
                        None => pattern.to_owned(),
                    };
                    // Alone, so that the mistake is that of this key.
                    Regex::new(&pattern).map_err(|error| {
                        let error = error.to_string();
                        let why = error.lines().last().unwrap_or_default();
                        let why = why.trim_start_matches("error: ");
                        let why = format!("the regular expression is invalid: {why}");
                        InvalidMapEntry::new(key, why)
                    })?;
                    patterns.push((pattern, value));
                    return Ok(true);
                }
                let key = key.strip_prefix('\\').unwrap_or(key);
                match from.value_type() {
                    ValueType::Word(words) if !words.contains(&key) => {
                        let why = format!("`{}` is one of {}", from.name(), words.join(", "));
                        return Err(InvalidMapEntry::new(key, why));
                    }
                    ValueType::Path if !key.starts_with('/') => {
                        return Err(InvalidMapEntry::new(key, "a path begins with `/`"));
                    }
                    _ => {}
                }
                Ok(*whole.entry(key.as_bytes().into()).or_insert(value) == value)
            }
        }
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        match self {
            Self::Texts {
                whole,
                patterns,
                set,
            } => {
                if let Some(value) = whole.get(text) {
                    return Some(*value);
                }
                if set.is_empty() || !set.is_match(text) {
                    return None;
                }
                let first = set.matches(text).iter().next()?;
                patterns.get(first).map(|(_, value)| *value)
            }
            Self::Hosts(names) => {
                let (value, _) = names.find(std::str::from_utf8(text).ok()?)?;
                u32::try_from(value).ok()
            }
            Self::Networks { .. } => None,
        }
    }
}

/// The maps of a server, prepared for requests. Clones share them.
#[derive(Clone, Debug)]
pub struct RequestMaps(Arc<MapSet>);

#[derive(Debug)]
struct MapSet {
    maps: Vec<RequestMap>,
    by_name: HashMap<Box<str>, usize>,
}

impl RequestMaps {
    /// Prepares maps.
    ///
    /// # Errors
    /// A map takes its value from one that is not there, or from itself; another one has its name; its regular expressions are too large
    /// together.
    pub fn new(maps: impl IntoIterator<Item = RequestMap>) -> Result<Self, InvalidMaps> {
        let mut maps: Vec<RequestMap> = maps.into_iter().collect();
        let (mut by_name, mut mistakes) = (HashMap::new(), Vec::new());
        for (at, map) in maps.iter_mut().enumerate() {
            if let Err(mistake) = map.compile() {
                mistakes.push((map.name.clone(), mistake));
            }
            if by_name.insert(map.name.clone(), at).is_some() {
                mistakes.push((map.name.clone(), MapMistake::SameName));
            }
        }
        let set = MapSet { maps, by_name };
        for map in &set.maps {
            if let Err(mistake) = set.check_source(map) {
                mistakes.push((map.name.clone(), mistake));
            }
        }
        if mistakes.is_empty() {
            Ok(Self(Arc::new(set)))
        } else {
            Err(InvalidMaps(mistakes))
        }
    }

    /// Whether there is no map.
    pub fn is_empty(&self) -> bool {
        self.0.maps.is_empty()
    }

    /// The names of the maps.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.maps.iter().map(|map| &*map.name)
    }

    /// When the value of a map is known; `None` if there is no map of this name.
    pub fn stage(&self, name: &str) -> Option<FactStage> {
        let first = self.0.first(self.0.map(name)?)?;
        Some(first.from.stage())
    }

    /// The values that a map can have; `None` if a file may change them, or there is no map of this name.
    pub(crate) fn possible_values(&self, name: &str) -> Option<BTreeSet<&str>> {
        let map = self.0.map(name).filter(|map| !map.may_change)?;
        let values = map.values.iter().chain(&map.default);
        Some(values.map(|value| &**value).collect())
    }

    /// The value of the map of this name. `None` if no key is for the request, and there is no default.
    pub fn value(&self, name: &str, facts: &dyn Facts) -> Option<&str> {
        self.0.value(self.0.map(name)?, facts)
    }

    /// Gives a request these maps, for conditions, variables and keys of limits.
    pub fn attach(&self, request: &mut Request) {
        request.extensions_mut().insert(self.clone());
    }

    /// The maps of a request.
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }
}

impl MapSet {
    fn map(&self, name: &str) -> Option<&RequestMap> {
        self.maps.get(*self.by_name.get(name)?)
    }

    /// The map that the value of this one begins with; `None` if there is none.
    fn first<'a>(&'a self, mut map: &'a RequestMap) -> Option<&'a RequestMap> {
        // Maps that take their values from one another in a circle have none.
        for _ in 0..=self.maps.len() {
            match map.other() {
                None => return Some(map),
                Some(other) => map = self.map(other)?,
            }
        }
        None
    }

    fn check_source(&self, map: &RequestMap) -> Result<(), MapMistake> {
        match map.other() {
            Some(other) if self.map(other).is_none() => {
                Err(MapMistake::UnknownMap(other.to_owned()))
            }
            _ if self.first(map).is_none() => Err(MapMistake::Circle),
            _ => Ok(()),
        }
    }

    fn value<'a>(&'a self, map: &'a RequestMap, facts: &dyn Facts) -> Option<&'a str> {
        if let Some(other) = map.other() {
            let text = self.value(self.map(other)?, facts).unwrap_or_default();
            return map.value_of_text(text.as_bytes());
        }
        if let MapKeys::Networks { map: networks, .. } = &map.keys {
            return map.value(networks.find(facts.address()));
        }
        let mut found = None;
        let mut are_several = false;
        // The first value of a path is the path, the second one its script.
        let has_one = map.from.kind() == FactKind::RequestPath;
        let mut look = |text: Cow<'_, [u8]>| {
            are_several = found.is_some();
            found = Some(map.value_of_text(&text));
            are_several || has_one
        };
        match &map.geo {
            None => {
                facts.any_text(&map.from, &mut look);
            }
            Some(geo) => {
                let address = facts.address();
                if let Some(text) = address.and_then(|ip| geo.text(map.from.kind(), ip)) {
                    look(Cow::Borrowed(text.as_bytes()));
                }
            }
        }
        match found {
            None => map.value(map.absent),
            Some(_) if are_several => map.value(None),
            Some(value) => value,
        }
    }
}

/// A map is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMap {
    /// The name has other characters than letters, digits and `_`.
    Name,
    /// There is no such fact.
    UnknownFact(String),
    /// The fact is of the response, or is no text and no address.
    NoText(String),
    /// The fact is about places, and no database knows it.
    NoDatabase(String),
}

impl fmt::Display for InvalidMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("the name of a map is letters, digits and `_`"),
            Self::UnknownFact(name) => write!(f, "there is no fact `{name}`"),
            Self::NoDatabase(name) => {
                write!(f, "no database of `geo_databases` has `{name}`")
            }
            Self::NoText(name) => write!(
                f,
                "a map takes its value from a text or the address of the client, not from `{name}`"
            ),
        }
    }
}

impl std::error::Error for InvalidMap {}

/// An entry of a map is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMapEntry {
    key: Box<str>,
    why: Box<str>,
}

impl InvalidMapEntry {
    fn new(key: &str, why: impl Into<Box<str>>) -> Self {
        Self {
            key: key.into(),
            why: why.into(),
        }
    }

    /// What is wrong, without the key, which may be a secret: the key of an API, say.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for InvalidMapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            let short: String = self.key.chars().take(60).collect();
            write!(f, "`{}`: ", short.escape_debug())?;
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for InvalidMapEntry {}

/// Maps are invalid: the name of each one at fault, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMaps(pub Vec<(Box<str>, MapMistake)>);

impl fmt::Display for InvalidMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, mistake)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            write!(f, "the map `{name}`: {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidMaps {}

/// What is wrong with a map beside others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapMistake {
    /// It takes its value from a map that is not there.
    UnknownMap(String),
    /// Its value leads back to it.
    Circle,
    /// Another map has its name.
    SameName,
    /// Its regular expressions are too large together.
    TooLarge,
}

impl fmt::Display for MapMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMap(name) => write!(f, "there is no map `{name}`"),
            Self::Circle => f.write_str("the map takes its value from itself"),
            Self::SameName => f.write_str("two maps have the same name"),
            Self::TooLarge => f.write_str("the regular expressions are too large together"),
        }
    }
}

impl std::error::Error for MapMistake {}
