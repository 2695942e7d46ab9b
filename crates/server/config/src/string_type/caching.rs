//! Types of values of the cache: lifetimes by status, name patterns, parts of keys, and tokens.

use std::time::Duration;

use serde_json::json;
use toml::de::DeValue;

use super::origin::HostAndPort;
use crate::description::TypeDescription;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode};
use crate::value::{Map, OneOrMore, Seconds};

/// The longest lifetime that can be configured, in seconds.
const LONGEST: u64 = 315_360_000;

/// Freshness lifetimes by status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifetimes(
    /// Single statuses before classes: the first that contains a status applies.
    pub(crate) Vec<(CacheableStatuses, Duration)>,
);

/// The statuses that a single time applies to: successful responses and permanent redirects. Other
/// redirects (302, 307) mostly depend on the client or the moment, as those to a login page.
const USUAL: [u16; 4] = [200, 206, 301, 308];

impl KeyType for Lifetimes {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Table(_) => {
                let Map(entries) =
                    Map::<CacheableStatuses, Seconds<0, LONGEST>>::read(node, reader)?;
                let mut lifetimes: Vec<_> = entries
                    .into_iter()
                    .map(|(statuses, time)| (statuses.value, time.value.0))
                    .collect();
                lifetimes.sort_by_key(|(statuses, _)| statuses.first != statuses.last);
                Some(Self(lifetimes))
            }
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::String(_) => {
                let Seconds(time) = Seconds::<0, LONGEST>::read(node, reader)?;
                let usual = USUAL.map(|status| (CacheableStatuses::one(status), time));
                Some(Self(usual.into()))
            }
            _ => {
                reader.wrong_type(node, "a number of seconds, or a table");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let (one, table) = (
            Seconds::<0, LONGEST>::type_description(),
            Map::<CacheableStatuses, Seconds<0, LONGEST>>::type_description(),
        );
        TypeDescription::new(
            format!("{}; or {}", one.expected, table.expected),
            json!({"anyOf": [one.schema, table.schema]}),
        )
    }
}

/// A status of a final response, or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheableStatuses {
    /// The first one.
    pub(crate) first: u16,
    /// The last one, itself included.
    pub(crate) last: u16,
}

impl CacheableStatuses {
    fn one(status: u16) -> Self {
        Self {
            first: status,
            last: status,
        }
    }
}

impl StringType for CacheableStatuses {
    const EXPECTED: &'static str = "a status from 200 to 599, or \"2xx\" to \"5xx\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if let Some(class) = text.strip_suffix("xx") {
            let class: u16 = class.parse().map_err(|_| ValueError::Unexpected)?;
            return match class {
                2..=5 => Ok(Self {
                    first: class * 100,
                    last: class * 100 + 99,
                }),
                _ => Err(ValueError::Unexpected),
            };
        }
        match text.parse() {
            // 304 only updates a stored response.
            Ok(304) => Err("responses with this status are never stored".into()),
            Ok(status @ 200..=599) => Ok(Self::one(status)),
            _ => Err(ValueError::Unexpected),
        }
    }
}

/// A name, or with `*` at an end the names that contain it there.
#[derive(Clone, Debug)]
pub(crate) struct NamePatternText(pub(crate) String);

impl StringType for NamePatternText {
    const EXPECTED: &'static str =
        "a name, or a part of one with `*` for what is before or behind it";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let name = name.strip_prefix('*').unwrap_or(name);
        if name.contains('*') || text == "**" {
            return Err("`*` stands at the front and at the end of a name only".into());
        }
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"=;,&\"".contains(&byte);
        if !text.is_empty() && name.bytes().all(is_name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

impl NamePatternText {
    pub(crate) fn pattern(&self) -> apus_cache::policy::CacheNamePattern {
        apus_cache::policy::CacheNamePattern::new(&self.0)
    }
}

/// The host in a key.
#[derive(Clone, Debug)]
pub(crate) enum KeyHost {
    /// The host of the request.
    Requested,
    /// This one for all.
    Named(String),
}

impl StringType for KeyHost {
    const EXPECTED: &'static str = "`$host`, or a host";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "$host" => Ok(Self::Requested),
            _ => HostAndPort::parse(text).map(|host| Self::Named(host.0)),
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(match self {
            Self::Requested => "$host",
            Self::Named(host) => host,
        })
    }
}

/// The part of the query in a key.
#[derive(Clone, Debug)]
pub(crate) enum KeyQuery {
    /// All of it.
    All,
    /// Nothing.
    Nothing,
    /// These parameters.
    Only(Vec<NamePatternText>),
    /// All but these.
    Except(Vec<NamePatternText>),
}

const QUERY: &str = "true, false, a list of names, or { except = a list of names }";

impl KeyType for KeyQuery {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(true) => Some(Self::All),
            DeValue::Boolean(false) => Some(Self::Nothing),
            DeValue::Array(_) => {
                let names = OneOrMore::<NamePatternText>::read(node, reader)?;
                Some(Self::Only(plain(names)))
            }
            DeValue::Table(table) => {
                let only = table.iter().next().filter(|_| table.len() == 1);
                let Some((_, names)) = only.filter(|(key, _)| key.get_ref() == "except") else {
                    reader.report(Finding::error(
                        &node.span,
                        "a table with other keys than `except`",
                        format!("expected {QUERY}"),
                    ));
                    return None;
                };
                let names = ValueNode::new(names, node.span.file);
                OneOrMore::<NamePatternText>::read(&names, reader)
                    .map(|names| Self::Except(plain(names)))
            }
            _ => {
                reader.wrong_type(node, QUERY);
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let names = OneOrMore::<NamePatternText>::type_description().schema;
        TypeDescription::new(
            QUERY,
            json!({"anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"type": "string"}},
                {
                    "type": "object",
                    "properties": {"except": names},
                    "required": ["except"],
                    "additionalProperties": false,
                },
            ]}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        match self {
            Self::All => true.into(),
            Self::Nothing => false.into(),
            Self::Only(_) | Self::Except(_) => serde_json::Value::Null,
        }
    }
}

fn plain(names: OneOrMore<NamePatternText>) -> Vec<NamePatternText> {
    names.0.into_iter().map(|name| name.value).collect()
}

/// A secret token.
#[derive(Clone)]
pub(crate) struct PurgeToken(pub(crate) String);

impl std::fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PurgeToken")
    }
}

/// Shorter ones can be guessed.
const SHORTEST_TOKEN: usize = 16;

impl KeyType for PurgeToken {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, SECRET)?;
        let why = if text.len() < SHORTEST_TOKEN {
            format!("the secret is shorter than {SHORTEST_TOKEN} characters")
        } else if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            "the secret has characters that a token in a field cannot have".to_owned()
        } else {
            return Some(Self(text));
        };
        reader.report(
            Finding::error(&node.span, why, format!("expected {SECRET}"))
                .help("make one with: openssl rand -hex 32"),
        );
        None
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(SECRET, json!({"type": "string"}))
    }
}

const SECRET: &str =
    "at least 16 visible ASCII characters, best from the environment as \"${PURGE_TOKEN}\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_single_or_a_class() {
        let read = |text| CacheableStatuses::parse(text).map(|set| (set.first, set.last));
        assert_eq!(read("404"), Ok((404, 404)));
        assert_eq!(read("5xx"), Ok((500, 599)));
        for text in ["", "xx", "1xx", "6xx", "304", "199", "600", "2x", "any"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_star_stands_at_the_end() {
        for text in ["id", "utm_*", "*", "a.b[]"] {
            assert!(NamePatternText::parse(text).is_ok(), "{text:?}");
        }
        for text in ["", "a*b", "**", "a b", "a=b", "a;"] {
            assert!(NamePatternText::parse(text).is_err(), "{text:?}");
        }
    }
}
