//! What requests are counted by: the client, or facts of the request.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use apus_conditions::{Fact, FactKind, FactStage, Facts, GeoDatabases, RequestFacts, ValueType};
use apus_http::{HeaderName, Request, TlsFingerprints};
use smallvec::SmallVec;

use crate::client_network::client_network;

/// What requests are counted by.
///
/// A request that has no value of it, or several, counts for its client: who leaves out a key, or sends two so that others
/// read another one, is limited by the address.
#[derive(Clone)]
pub struct LimitKey {
    kind: KeyKind,
    /// The databases of facts of places.
    geo: Option<Arc<GeoDatabases>>,
}

#[derive(Clone)]
enum KeyKind {
    Parts(Arc<[KeyPart]>),
    Function(Arc<KeyFunction>),
}

type KeyFunction = dyn Fn(&Request) -> Option<String> + Send + Sync;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPart {
    /// The same for all requests.
    All,
    /// The client: an IPv4 address, or an IPv6 network of 64 bits.
    Client,
    /// The network of the client: 24 bits of an IPv4 address, 48 of an IPv6 address.
    Network,
    /// The connection.
    Connection,
    /// A fact of the request.
    Fact(Fact),
}

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidLimitKey {
    /// There is no such fact.
    Unknown(String),
    /// The fact is of the response, or has no text that requests could be counted by.
    NotCountable(String),
    /// No database has this fact of places.
    NoDatabase(String),
    /// There is no part.
    Empty,
}

/// The bytes that stand for the value of a key.
pub(crate) type KeyBytes = SmallVec<[u8; 64]>;

/// The value of a key for a request.
#[derive(Debug)]
pub(crate) struct KeyValue {
    pub(crate) bytes: KeyBytes,
    /// Whether it is the client alone, or the same for all: nothing that a client would have to be told.
    pub(crate) is_plain: bool,
}

impl LimitKey {
    /// The client: an IPv4 address, or an IPv6 network of 64 bits.
    pub fn client() -> Self {
        Self::of(KeyKind::Parts([KeyPart::Client].into()))
    }

    fn of(kind: KeyKind) -> Self {
        Self { kind, geo: None }
    }

    /// All requests together.
    pub fn all() -> Self {
        Self::of(KeyKind::Parts([KeyPart::All].into()))
    }

    /// A field of the request.
    pub fn header(name: &HeaderName) -> Self {
        let fact = Fact::parse(&format!("header.{name}"));
        match fact {
            Some(fact) => Self::of(KeyKind::Parts([KeyPart::Fact(fact)].into())),
            None => Self::client(),
        }
    }

    /// The result of a function; requests without one are not limited.
    pub fn function(key: impl Fn(&Request) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::of(KeyKind::Function(Arc::new(key)))
    }

    /// The facts of these names together: `client`, `network`, `connection`, `all`, `host`, `path`, `header.x-api-key`, `cookie.session`, `user`.
    ///
    /// # Errors
    /// A name is none of a fact that requests can be counted by.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidLimitKey> {
        Self::parse_with(names, Fact::parse)
    }

    /// The facts of these names together, where a function knows the facts: [`Definitions::fact`](apus_conditions::Definitions::fact)
    /// knows when the values of maps are known.
    ///
    /// # Errors
    /// As [`LimitKey::parse`].
    pub fn parse_with<'a>(
        names: impl IntoIterator<Item = &'a str>,
        fact: impl Fn(&str) -> Option<Fact>,
    ) -> Result<Self, InvalidLimitKey> {
        let parts: Vec<KeyPart> = names
            .into_iter()
            .map(|name| KeyPart::parse(name, &fact))
            .collect::<Result<_, _>>()?;
        if parts.is_empty() {
            return Err(InvalidLimitKey::Empty);
        }
        Ok(Self::of(KeyKind::Parts(parts.into())))
    }

    /// Gives facts of places their databases.
    ///
    /// # Errors
    /// No database has one of the facts.
    pub fn with_geo_databases(
        mut self,
        databases: &Arc<GeoDatabases>,
    ) -> Result<Self, InvalidLimitKey> {
        if let KeyKind::Parts(parts) = &self.kind {
            for part in &**parts {
                if let KeyPart::Fact(fact) = part
                    && fact.kind().is_geo()
                {
                    if !databases.have(fact.kind()) {
                        return Err(InvalidLimitKey::NoDatabase(fact.to_string()));
                    }
                    self.geo = Some(Arc::clone(databases));
                }
            }
        }
        Ok(self)
    }

    /// Whether the key is known only after a request is authenticated.
    pub fn needs_authentication(&self) -> bool {
        let is_of_user = |part: &KeyPart| matches!(part, KeyPart::Fact(fact) if fact.stage() == FactStage::Authentication);
        matches!(&self.kind, KeyKind::Parts(parts) if parts.iter().any(is_of_user))
    }

    /// Whether it is the client alone.
    pub(crate) fn is_client(&self) -> bool {
        matches!(&self.kind, KeyKind::Parts(parts) if matches!(**parts, [KeyPart::Client]))
    }

    /// Whether it tells clients apart by their addresses.
    pub fn has_client(&self) -> bool {
        matches!(&self.kind, KeyKind::Parts(parts) if parts.contains(&KeyPart::Client))
    }

    /// Whether it tells connections apart.
    pub fn has_connection(&self) -> bool {
        matches!(&self.kind, KeyKind::Parts(parts) if parts.contains(&KeyPart::Connection))
    }

    /// Whether it is one text, so that other rates can be given to some of its values.
    pub fn is_one_text(&self) -> bool {
        matches!(&self.kind, KeyKind::Parts(parts) if matches!(**parts, [KeyPart::Fact(_)]))
    }

    /// The value for a request; `None` if the request is not limited: it has no client address, or the function returned none.
    pub(crate) fn value(&self, request: &Request) -> Option<KeyValue> {
        let mut bytes = KeyBytes::new();
        let is_there = match &self.kind {
            KeyKind::Function(function) => {
                push(&mut bytes, function(request)?.as_bytes());
                true
            }
            KeyKind::Parts(parts) => parts
                .iter()
                .all(|part| self.write(part, request, &mut bytes)),
        };
        if is_there {
            let is_plain = matches!(&self.kind, KeyKind::Parts(parts)
                if matches!(**parts, [KeyPart::Client | KeyPart::All | KeyPart::Connection]));
            return Some(KeyValue { bytes, is_plain });
        }
        bytes.clear();
        KeyPart::Client
            .write(request, &mut bytes)
            .then_some(KeyValue {
                bytes,
                is_plain: true,
            })
    }

    /// Adds the value of a part. Returns `false` if the request has none, or several.
    fn write(&self, part: &KeyPart, request: &Request, bytes: &mut KeyBytes) -> bool {
        match (part, &self.geo) {
            (KeyPart::Fact(fact), Some(geo)) if fact.kind().is_geo() => {
                let found = request.client().ip.and_then(|ip| match fact.kind() {
                    FactKind::GeoSystem => geo.system(ip).map(|system| system.to_string().into()),
                    kind => geo.text(kind, ip).map(Cow::Borrowed),
                });
                let is_there = found.as_ref().is_some_and(|text| !text.is_empty());
                if let Some(text) = found.filter(|_| is_there) {
                    push(bytes, text.as_bytes());
                }
                is_there
            }
            _ => part.write(request, bytes),
        }
    }
}

impl LimitKey {
    /// What people call the value of a request; `None` if it may be a secret, as a field, a cookie or a parameter.
    pub(crate) fn shown(&self, request: &Request, value: &KeyValue) -> Option<String> {
        let KeyKind::Parts(parts) = &self.kind else {
            return None;
        };
        if matches!(**parts, [KeyPart::All]) {
            return Some("all".to_owned());
        }
        if value.is_plain {
            return KeyPart::Client.shown(request);
        }
        let shown = |part: &KeyPart| match (part, &self.geo) {
            (KeyPart::Fact(fact), Some(geo)) if fact.kind().is_geo() => {
                let ip = request.client().ip?;
                match fact.kind() {
                    FactKind::GeoSystem => geo.system(ip).map(|system| system.to_string()),
                    kind => geo
                        .text(kind, ip)
                        .map(|text| text.escape_debug().to_string()),
                }
            }
            _ => part.shown(request),
        };
        let shown: Option<Vec<String>> = parts.iter().map(shown).collect();
        Some(shown?.join(" "))
    }

    /// The bytes of the value with this text, of a key of one part.
    pub(crate) fn bytes_of(&self, text: &str) -> Option<KeyBytes> {
        let KeyKind::Parts(parts) = &self.kind else {
            return None;
        };
        let ip = || text.split('/').next()?.parse::<IpAddr>().ok();
        let mut bytes = KeyBytes::new();
        match &**parts {
            [KeyPart::Client] => push_number(&mut bytes, CLIENT, client_network(ip()?)),
            [KeyPart::Network] => push_number(&mut bytes, NETWORK, network(ip()?)),
            [KeyPart::Fact(_)] => push(&mut bytes, text.as_bytes()),
            _ => return None,
        }
        Some(bytes)
    }
}

impl KeyValue {
    /// The text, of a key that is one.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(TEXT_AT..).unwrap_or_default()
    }
}

impl KeyPart {
    fn parse(name: &str, fact: impl Fn(&str) -> Option<Fact>) -> Result<Self, InvalidLimitKey> {
        match name {
            "all" => return Ok(Self::All),
            "client" => return Ok(Self::Client),
            "network" => return Ok(Self::Network),
            "connection" => return Ok(Self::Connection),
            _ => {}
        }
        let fact = fact(name).ok_or_else(|| InvalidLimitKey::Unknown(name.to_owned()))?;
        let is_text = matches!(
            fact.kind().value_type(),
            ValueType::Text | ValueType::Word(_) | ValueType::Path | ValueType::Host
        );
        let is_text = is_text || fact.kind() == FactKind::GeoSystem;
        if fact.kind() == FactKind::TlsFingerprint {
            TlsFingerprints::want();
        }
        if is_text && fact.stage() != FactStage::Response {
            Ok(Self::Fact(fact))
        } else {
            Err(InvalidLimitKey::NotCountable(name.to_owned()))
        }
    }

    /// Adds the value of this part. Returns `false` if the request has none, or several.
    fn write(&self, request: &Request, bytes: &mut KeyBytes) -> bool {
        match self {
            Self::All => true,
            Self::Client => match request.client().ip {
                Some(ip) => {
                    push_number(bytes, CLIENT, client_network(ip));
                    true
                }
                None => false,
            },
            Self::Network => match request.client().ip {
                Some(ip) => {
                    push_number(bytes, NETWORK, network(ip));
                    true
                }
                None => false,
            },
            Self::Connection => {
                bytes.push(CONNECTION);
                bytes.extend_from_slice(&request.connection().id.to_le_bytes());
                true
            }
            Self::Fact(fact) => write_fact(fact, request, bytes),
        }
    }

    /// What people call the value of a request; `None` if it may be a secret.
    fn shown(&self, request: &Request) -> Option<String> {
        match self {
            Self::All | Self::Connection => None,
            Self::Client => Some(match request.client().ip?.to_canonical() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("{}/64", Ipv6Addr::from(ip.to_bits() >> 64 << 64)),
            }),
            Self::Network => Some(match request.client().ip?.to_canonical() {
                IpAddr::V4(ip) => format!("{}/24", Ipv4Addr::from(ip.to_bits() >> 8 << 8)),
                IpAddr::V6(ip) => format!("{}/48", Ipv6Addr::from(ip.to_bits() >> 80 << 80)),
            }),
            Self::Fact(fact) => {
                let is_open = matches!(fact.kind(), FactKind::User | FactKind::Method)
                    || matches!(fact.kind().value_type(), ValueType::Path | ValueType::Host);
                let mut shown = None;
                if is_open {
                    RequestFacts::new(request).any_text(fact, &mut |value| {
                        let text = String::from_utf8_lossy(&value);
                        shown = Some(text.escape_debug().to_string());
                        true
                    });
                }
                shown
            }
        }
    }
}

/// The kinds of parts in [`KeyBytes`].
const TEXT: u8 = 0;
const CLIENT: u8 = 1;
const NETWORK: u8 = 2;
const CONNECTION: u8 = 3;
/// Where the bytes of a text begin: after its kind and its length.
const TEXT_AT: usize = 9;

fn push(bytes: &mut KeyBytes, text: &[u8]) {
    bytes.push(TEXT);
    // With the length, no two lists of texts are the same bytes.
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
}

fn push_number(bytes: &mut KeyBytes, kind: u8, number: u128) {
    bytes.push(kind);
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// The network of an address: 24 bits of IPv4, 48 of IPv6.
fn network(ip: IpAddr) -> u128 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => ip.to_bits() >> 80 << 80,
    }
}

fn write_fact(fact: &Fact, request: &Request, bytes: &mut KeyBytes) -> bool {
    let before = bytes.len();
    let mut values = 0_u32;
    // With `true`, the second value ends the search.
    let are_several = RequestFacts::new(request).any_text(fact, &mut |value| {
        values = values.saturating_add(1);
        if values == 1 && !value.is_empty() {
            push(bytes, &value);
        }
        values > 1
    });
    !are_several && bytes.len() > before
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            KeyKind::Function(_) => f.write_str("a function"),
            KeyKind::Parts(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        f.write_str(" and ")?;
                    }
                    match part {
                        KeyPart::All => f.write_str("all")?,
                        KeyPart::Client => f.write_str("client")?,
                        KeyPart::Network => f.write_str("network")?,
                        KeyPart::Connection => f.write_str("connection")?,
                        KeyPart::Fact(fact) => write!(f, "{fact}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitKey({self})")
    }
}

impl fmt::Display for InvalidLimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no fact `{name}`"),
            Self::NoDatabase(name) => {
                write!(
                    f,
                    "no database of places has `{name}`: name one in `geo_databases`"
                )
            }
            Self::NotCountable(name) => write!(f, "requests cannot be counted by `{name}`"),
            Self::Empty => f.write_str("there is no fact"),
        }
    }
}

impl std::error::Error for InvalidLimitKey {}
