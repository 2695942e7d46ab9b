//! The keys of rules, and of the lists that conditions name.

use serde_json::json;
use toml::de::DeValue;

use super::YEAR;
use super::response::{FieldChanges, Return};
use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, ValueNode, choices, keys};
use crate::string_type::origin::UpstreamName;
use crate::string_type::{StatusNumber, UriTemplate};
use crate::value::{FilePath, Map, OneOrMore, Text, Time};
use crate::when::When;

keys! {
    /// A rule: what happens to the requests, or responses, that its condition holds for. Its actions happen in the order of
    /// this table; the next rule follows, unless one of them ends the rules.
    pub(crate) struct Rule {
        /// The name in `apus status --rules` and `apus explain`. By default its number, as in `rule 3`.
        name: Text,
        /// The condition, as `'path matches "/admin/**" and not client in @office'` or as a table `{ path = "/api/**", method = "POST" }`.
        /// Without one the rule holds for all.
        when: When,
        /// Whether the rule is asked with the head of the request, or with that of the response.
        on: RuleStage = RuleStage::Request,
        /// Whether the rule only counts and is shown, and does nothing.
        dry_run: bool = false,
        /// Words for later conditions: `tag = "bot"` is the fact `tag.bot`.
        tag: OneOrMore<Text> = OneOrMore::default(),
        /// Variables of the request, whose values may hold others: `set = { shop = "$map_shop" }` is the fact `var.shop` of later conditions, and
        /// `$var_shop` in templates and access logs. Names are letters, digits and `_`.
        set: Map<Text, Text> = Map::default(),
        /// Changes of fields of the request.
        request_headers: FieldChanges,
        /// Changes of fields of the response.
        headers: FieldChanges,
        /// Whether the request is logged. `false` leaves it out of the access log.
        log: bool = true,
        /// Whether caches are used for the request. `false` sends it to the origin, and does not store the response.
        cache: bool = true,
        /// Another path for the request, which may hold variables. Its query stays, unless the path has one.
        rewrite: UriTemplate,
        /// The location of the site that serves the request, whatever the path of the request is: the `path` of that location as it is
        /// written there. It may be internal.
        location: Text,
        /// The origins that the request is sent to in place of those that its location names: a group of the site, or a URL, without a path. Its
        /// location has to proxy. Caches keep the responses apart.
        upstream: UpstreamName,
        /// The limit that the request counts against: the `name` of one with `by_rules = true`, of the place of the rule or further out.
        limit: Text,
        /// The chain whose rules are asked next. Behind them, the next rule follows.
        jump: Text,
        /// For how long the client is banned, and longer if it was banned before, as `[global.bans]` says. Its request is refused with 403,
        /// or as `deny` or `return` say. A rule for responses bans for what comes next.
        ban: Time<YEAR>,
        /// How long the request is held before it is served, or its response before it is sent. The times of several rules add up, to
        /// a minute at most. A client that has a hundred requests held on a worker gets 429 for more, and 503 if a thousand are.
        delay: Time<60>,
        /// Whether browsers have to pass the challenge of the site, and other clients are refused with 403. Clients that have passed go on to
        /// the next rule.
        challenge: bool = false,
        /// The status with which the request is refused.
        deny: StatusNumber,
        /// The status, redirect or text that the client gets.
        r#return: Return,
        /// Whether the connection is closed without a response, as by 444 of nginx. Over HTTP/2 and HTTP/3 the stream is reset, and the
        /// connection ends after its other requests; the connection of a trusted proxy stays.
        close: bool = false,
        /// Whether the request is allowed: no other rule is asked, also none of the site and of the location.
        allow: bool = false,
        /// Whether the rest of the chain is left out; outside of chains, the rest of these rules.
        leave: bool = false,
    }
}

choices! {
    /// When a rule is asked.
    pub(crate) RuleStage: "a time at which rules are asked" {
        /// With the head of the request.
        Request = "request",
        /// With the head of the response, before error pages. `set`, `headers`, `log`, `ban`, `delay`, `challenge`, `deny`, `return` and `close` are for responses.
        Response = "response",
    }
}

keys! {
    /// A list in a file: one value on each line, without what is behind `#` and without white space around it.
    pub(crate) struct ListFile {
        /// The file with networks, for `client`.
        networks: FilePath,
        /// The file with texts, for other facts.
        texts: FilePath,
    }
}

/// A list that conditions name with `@`.
#[derive(Clone, Debug)]
pub(crate) enum NamedList {
    /// These values.
    Values(OneOrMore<Text>),
    /// Those of a file.
    File(ListFile),
}

impl KeyType for NamedList {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Table(_) => ListFile::read(node, reader).map(Self::File),
            _ => OneOrMore::read(node, reader).map(Self::Values),
        }
    }

    fn type_description() -> TypeDescription {
        let table = ListFile::type_description();
        let values = OneOrMore::<Text>::type_description();
        TypeDescription {
            expected: "a list of networks or texts, or a table with a file".to_owned(),
            schema: json!({"anyOf": [values.schema, table.schema]}),
            ..table
        }
    }
}
