//! Conditions on requests and responses: `path matches "/api/**" and not client in @office`.
//!
//! A condition is checked and compiled when a configuration is loaded ([`Definitions::compile`]), and evaluated for each
//! request ([`Condition::holds`]) by what a server knows of it ([`Facts`]).
//!
//! # Modules
//!
//! - `fact`: what conditions can be about, each with its type ([`FactKind`]). `facts`: what they ask of a request.
//! - `token`, `syntax`: what is written. `check`: names, types and values; `number`: numbers with units; `possible`: conditions that
//!   can never be true.
//! - `index`: of many conditions, those that may hold; `prefix_tree`: by the beginning of the path, `network_index`: by the client.
//! - `expression`: what is evaluated. `network_set`: networks. `list`: lists of texts and networks. `map`: values from values. `share`: shares of values.
//! - `geo`: countries, cities and autonomous systems of addresses; `geo_database`: their files, with the feature `geo`.
//! - `request_facts`: what is known of an HTTP request and its response; `claims`: of the token of its user. `bot`: the bot that it is from. `variables`: what rules
//!   set.
//!
//! # Decisions
//!
//! - **The language is our own.** CEL has types that are known only when it is evaluated, and its crate (`cel`) interprets a tree of
//!   values that are copied for each step: a comparison of a number with a text, a network that is none and two methods at once
//!   would be found by a request, not by `apus check`.
//! - **A fact without a value is equal to nothing**, so that a comparison is true or false, never unknown: `header.x == "1"` does not hold without
//!   the field, and `header.x != "1"` is `not header.x == "1"`. The order of evaluation cannot change a result.
//! - **A map is found through the request** ([`RequestMaps::of`]), and evaluated when something asks for its value. Templates and keys of
//!   limits know it by its name only, so they are parsed before the maps are there.
//! - **Each value counts** of a field, a cookie or a parameter that came several times: what one of two readers would see decides.
//! - **Databases of places belong to the condition**, as the zone of times does, so that an address is looked up only when such a
//!   condition is asked, and a request carries nothing.
//!
//! # Tests
//!
//! `tests/it`: mistakes with their places (`mistakes`), results (`results`), random conditions beside an interpreter of the text
//! (`oracle`), and maps (`maps`).

#![forbid(unsafe_code)]

mod bot;
mod check;
mod claims;
mod expression;
mod fact;
mod facts;
mod geo;
#[cfg(feature = "geo")]
mod geo_database;
#[cfg(not(feature = "geo"))]
#[path = "geo_database_off.rs"]
mod geo_database;
mod index;
mod limits;
mod list;
mod map;
mod mistake;
mod network_index;
mod network_set;
mod number;
mod possible;
mod prefix_tree;
mod request_facts;
mod share;
mod syntax;
mod token;
mod variables;

pub use bot::{BotClaim, BotProof};
pub use check::{Definitions, InvalidCondition, InvalidName, TableField, TableValues, names_in};
pub use expression::Condition;
pub use fact::{FACTS, Fact, FactKind, FactStage, Unit, ValueType};
pub use facts::Facts;
pub use geo::GeoDatabases;
pub use geo_database::GeoDatabase;
#[cfg(feature = "geo")]
pub use geo_database::InvalidGeoDatabase;
pub use index::ConditionIndex;
pub use limits::{LimitReading, RequestLimits};
pub use list::{ConditionList, TextSet, TooManyTexts};
pub use map::{
    InvalidMap, InvalidMapEntry, InvalidMapLine, InvalidMaps, MapLine, MapMistake, RequestMap,
    RequestMaps, map_lines,
};
pub use mistake::Mistake;
pub use network_set::NetworkSet;
pub use request_facts::{RequestFacts, Tags};
pub use variables::RequestVariables;
