//! The operations of the API: one table for routes, roles, the checks of what is sent, and the OpenAPI description.

use apus_control::{ControlRequest, LogLevelName, OperatorRole};
use apus_metrics::HistoryStep;
use serde_json::{Map, Value, json};

/// Something that the API can do.
pub(crate) struct AdminOperation {
    pub(crate) method: &'static str,
    /// Behind `/api/v1`.
    pub(crate) path: &'static str,
    pub(crate) role: OperatorRole,
    pub(crate) summary: &'static str,
    pub(crate) fields: &'static [ApiField],
    pub(crate) kind: OperationKind,
}

/// What an operation does.
pub(crate) enum OperationKind {
    /// Sends a request, with what was sent, to the control thread.
    Command(&'static str),
    /// Shows parts of the status.
    Parts(&'static [&'static str]),
    /// Sends the history as it happens.
    Live,
    /// Shows requests as they end.
    Tail,
    /// Reads the history, which needs no request to the control thread. It shows an account its sites.
    History,
    /// Sends a request that is for some sites or for all, to accounts of all kinds. If there is nothing for these sites, the response is 404.
    OfSites(&'static str),
}

/// Something that can be sent: in the query of GET and DELETE, else in a JSON object.
pub(crate) struct ApiField {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    /// What it is without it, as JSON; `None`: it has to be there.
    pub(crate) default: Option<&'static str>,
    pub(crate) help: &'static str,
}

/// The kinds of what can be sent.
#[derive(Clone, Copy)]
pub(crate) enum FieldKind {
    Text,
    /// The name of a site: accounts that are for some sites may name these.
    Site,
    Integer,
    Boolean,
    NodeState,
    MaintenanceState,
    Scope,
    KeyChanges,
    LogLevel,
    Step,
}

const fn field(
    name: &'static str,
    kind: FieldKind,
    default: Option<&'static str>,
    help: &'static str,
) -> ApiField {
    ApiField {
        name,
        kind,
        default,
        help,
    }
}

const NO_FIELDS: &[ApiField] = &[];

use FieldKind::{
    Boolean, Integer, KeyChanges, LogLevel, MaintenanceState, NodeState, Scope, Site, Step, Text,
};
use OperationKind::{Command, History, Live, OfSites, Parts, Tail};
use OperatorRole::{Configure, Operate, Read};

/// Which version a change of the configuration is for.
const VERSION: ApiField = field(
    "version",
    Integer,
    None,
    "The version that the change was made for, as `GET /config` says; 409 if another one is in force.",
);
const TRY_SECONDS: ApiField = field(
    "try_seconds",
    Integer,
    Some("60"),
    "How long it is tried, up to 3600; 0: it is kept at once.",
);
const KEEP: ApiField = field(
    "keep",
    Boolean,
    Some("false"),
    "Whether it is kept after that time also if nobody confirms it.",
);
const WRITE: ApiField = field(
    "write",
    Boolean,
    Some("false"),
    "Whether it is written to the file when it is kept.",
);
const NOTE: ApiField = field("note", Text, Some("null"), "Why, for the list of versions.");

/// All operations, beside those of sessions.
#[rustfmt::skip]
pub(crate) const OPERATIONS: &[AdminOperation] = &[
    AdminOperation { method: "GET", path: "/status", role: Read, summary: "The status of the server.", fields: NO_FIELDS, kind: Command("status") },
    AdminOperation { method: "GET", path: "/sites", role: Read, summary: "The sites, with their names and addresses.", fields: NO_FIELDS, kind: Command("sites") },
    AdminOperation { method: "GET", path: "/upstreams", role: Read, summary: "The groups of origins, and the state of their nodes.", fields: NO_FIELDS, kind: Parts(&["upstreams"]) },
    AdminOperation { method: "POST", path: "/upstreams", role: Operate, summary: "Sets the state of a node.", fields: &[
        field("group", Text, None, "The name of the group."),
        field("node", Text, None, "The name of the node."),
        field("state", NodeState, None, "`up`: it gets requests; `drain`: only those with its sticky cookie; `down`: none."),
    ], kind: Command("upstream") },
    AdminOperation { method: "GET", path: "/cache", role: Read, summary: "The state of the cache.", fields: NO_FIELDS, kind: Parts(&["cache"]) },
    AdminOperation { method: "POST", path: "/cache/purge", role: Operate, summary: "Removes stored responses.", fields: &[
        field("site", Site, Some("null"), "Only those of this site."),
        field("what", Scope, None, "`\"all\"`, or an object with one of `url`, `prefix` and `tag`."),
        field("soft", Boolean, Some("false"), "Whether they only become stale, and can be served while they are revalidated."),
    ], kind: Command("cache_purge") },
    AdminOperation { method: "GET", path: "/cache/responses", role: Operate, summary: "The largest stored responses.", fields: &[
        field("site", Site, Some("null"), "Only those of this site."),
        field("url", Text, Some("null"), "Only those for this URL, with all their variants."),
        field("prefix", Text, Some("null"), "Only those for URLs that begin with this one."),
        field("tag", Text, Some("null"), "Only those with this tag."),
        field("most", Integer, Some("100"), "How many, up to 1000."),
    ], kind: Command("cache_list") },
    AdminOperation { method: "PUT", path: "/log-level", role: Operate, summary: "Changes the level of the server's log for a time.", fields: &[
        field("level", LogLevel, Some("null"), "The level; without it that of the configuration."),
        field("seconds", Integer, Some("600"), "For how long, up to a day."),
    ], kind: Command("log_level") },
    AdminOperation { method: "GET", path: "/certificates", role: Read, summary: "The certificates that are ordered by ACME, and those of files.", fields: NO_FIELDS, kind: Parts(&["certificates", "certificate_files"]) },
    AdminOperation { method: "POST", path: "/certificates/renew", role: Operate, summary: "Orders the certificates of a name anew.", fields: &[
        field("name", Text, None, "The name."),
    ], kind: Command("renew_certificate") },
    AdminOperation { method: "GET", path: "/rules", role: Read, summary: "The rules, and how many requests they were for.", fields: NO_FIELDS, kind: Parts(&["rules"]) },
    AdminOperation { method: "GET", path: "/traffic", role: Read, summary: "The busiest sites, nodes, clients and paths.", fields: &[
        field("seconds", Integer, Some("0"), "For how long requests are counted from now on, up to 60; 0 only shows what was counted."),
        field("anew", Boolean, Some("false"), "Whether counting begins anew."),
    ], kind: Command("traffic") },
    AdminOperation { method: "GET", path: "/history", role: Read, summary: "What the server did in each second, minute or hour: counts, times and the busiest sites.", fields: &[
        field("step", Step, Some("\"second\""), "The length of each step."),
        field("from", Integer, Some("null"), "The time of the first step, in seconds since 1970; without it 300 steps before the last."),
        field("to", Integer, Some("null"), "The time after the last step; without it now."),
    ], kind: History },
    AdminOperation { method: "GET", path: "/live", role: Read, summary: "What the server did in each second, as an event `sample` when it has ended.", fields: NO_FIELDS, kind: Live },
    AdminOperation { method: "GET", path: "/requests", role: Read, summary: "Requests as they end, each as an event `request`; `missed` counts those that are left out.", fields: &[
        field("filter", Text, Some("null"), "Which ones: `status >= 500 and path starts_with \"/api/\"`."),
    ], kind: Tail },
    AdminOperation { method: "GET", path: "/errors", role: Read, summary: "The last warnings and errors of the server's log, the last one first.", fields: NO_FIELDS, kind: OfSites("errors") },
    AdminOperation { method: "GET", path: "/requests/explain", role: Read, summary: "What happened to a request of the last minutes.", fields: &[
        field("id", Text, None, "The id of the request."),
    ], kind: OfSites("explain_request") },
    AdminOperation { method: "GET", path: "/bans", role: Read, summary: "The bans of clients.", fields: NO_FIELDS, kind: Command("ban_list") },
    AdminOperation { method: "POST", path: "/bans", role: Operate, summary: "Bans an address or a network.", fields: &[
        field("network", Text, None, "The address, or the network such as `10.0.0.0/8`."),
        field("seconds", Integer, Some("null"), "For how long; without it until the ban is removed."),
        field("reason", Text, Some("\"by the API\""), "Why."),
        field("force", Boolean, Some("false"), "Whether networks are banned that are never banned otherwise: loopback and proxies."),
    ], kind: Command("ban_add") },
    AdminOperation { method: "DELETE", path: "/bans", role: Operate, summary: "Ends the ban of an address or a network.", fields: &[
        field("network", Text, None, "The address or network, as it was banned."),
    ], kind: Command("ban_remove") },
    AdminOperation { method: "GET", path: "/limits", role: Read, summary: "What clients have used of quotas.", fields: &[
        field("name", Text, Some("null"), "Only of limits with this name."),
    ], kind: Command("limit_list") },
    AdminOperation { method: "POST", path: "/limits/reset", role: Operate, summary: "Gives a client the whole quota again.", fields: &[
        field("name", Text, None, "The name of the limit."),
        field("key", Text, Some("null"), "The client; without it all."),
    ], kind: Command("limit_reset") },
    AdminOperation { method: "PUT", path: "/maintenance", role: Operate, summary: "Turns the maintenance of a site on or off.", fields: &[
        field("site", Site, None, "The site."),
        field("state", MaintenanceState, None, "`on`, `off`, or `configured`: as the configuration says."),
        field("until", Integer, Some("null"), "When it ends, in seconds since 1970."),
    ], kind: Command("maintenance") },
    AdminOperation { method: "POST", path: "/reload", role: Operate, summary: "Loads the configuration again.", fields: NO_FIELDS, kind: Command("reload") },
    AdminOperation { method: "GET", path: "/audit", role: Configure, summary: "What was changed, by whom.", fields: NO_FIELDS, kind: Command("audit") },
    AdminOperation { method: "GET", path: "/config", role: Configure, summary: "The configuration in force, with its secrets hidden.", fields: NO_FIELDS, kind: Command("config") },
    AdminOperation { method: "PUT", path: "/config", role: Configure, summary: "Tries another text of the configuration file.", fields: &[
        field("text", Text, None, "The text. Secrets that `GET /config` hides may stay hidden."),
        VERSION, TRY_SECONDS, KEEP, WRITE, NOTE,
    ], kind: Command("config_change") },
    AdminOperation { method: "PATCH", path: "/config", role: Configure, summary: "Tries other values of single keys of the configuration file.", fields: &[
        field("keys", KeyChanges, None, "The keys and their values."),
        VERSION, TRY_SECONDS, KEEP, WRITE, NOTE,
    ], kind: Command("config_change") },
    AdminOperation { method: "POST", path: "/config/check", role: Configure, summary: "Finds the mistakes of a text of the configuration file, and what it would change.", fields: &[
        field("text", Text, None, "The text."),
    ], kind: Command("config_check") },
    AdminOperation { method: "GET", path: "/config/trial", role: Configure, summary: "The change that is tried, or what became of the last one.", fields: NO_FIELDS, kind: Command("config_trial") },
    AdminOperation { method: "POST", path: "/config/confirm", role: Configure, summary: "Keeps the change that is tried.", fields: NO_FIELDS, kind: Command("config_confirm") },
    AdminOperation { method: "POST", path: "/config/rollback", role: Configure, summary: "Ends the change that is tried: the version before is in force again.", fields: NO_FIELDS, kind: Command("config_rollback") },
    AdminOperation { method: "GET", path: "/config/versions", role: Configure, summary: "The versions of the configuration.", fields: NO_FIELDS, kind: Command("config_versions") },
    AdminOperation { method: "GET", path: "/config/version", role: Configure, summary: "A version, with its secrets hidden, and what it changed.", fields: &[
        field("id", Integer, None, "Its number."),
    ], kind: Command("config_version") },
    AdminOperation { method: "POST", path: "/config/restore", role: Configure, summary: "Tries a version that was in force before.", fields: &[
        field("id", Integer, None, "Its number."),
        VERSION, TRY_SECONDS, KEEP, WRITE, NOTE,
    ], kind: Command("config_change") },
];

/// The most bytes of a body.
pub(crate) const MAX_BODY: u64 = 64 * 1024;

/// The most bytes of a text of the configuration, in JSON.
const MAX_CONFIG_BODY: u64 = 6 * 1024 * 1024;

/// What was sent.
pub(crate) enum Sent {
    /// The values of a query, all of them text.
    Query(Vec<(String, String)>),
    Body(Value),
}

impl AdminOperation {
    /// The most bytes of its body.
    pub(crate) fn max_body(&self) -> u64 {
        if self.fields.iter().any(|field| field.name == "text") {
            MAX_CONFIG_BODY
        } else {
            MAX_BODY
        }
    }

    /// The fields of a request to the control thread.
    pub(crate) fn arguments(&self, sent: Sent) -> Result<Map<String, Value>, String> {
        let mut given = match sent {
            Sent::Query(pairs) => self.query_fields(pairs)?,
            Sent::Body(Value::Object(fields)) => fields,
            Sent::Body(Value::Null) => Map::new(),
            Sent::Body(_) => return Err("expected a JSON object".to_owned()),
        };
        let mut arguments = Map::new();
        for field in self.fields {
            let value = match (given.remove(field.name), field.default) {
                (Some(value), _) if !value.is_null() => value,
                (_, Some(default)) => serde_json::from_str(default).unwrap_or_default(),
                (_, None) => return Err(format!("`{}` is missing: {}", field.name, field.help)),
            };
            if !value.is_null() && !field.kind.is(&value) {
                let expected = field.kind.expected();
                return Err(format!("`{}` is not {expected}", field.name));
            }
            arguments.insert(field.name.to_owned(), value);
        }
        match given.keys().next() {
            Some(unknown) => Err(format!("`{}` is unknown here", unknown.escape_debug())),
            None => Ok(arguments),
        }
    }

    fn query_fields(&self, pairs: Vec<(String, String)>) -> Result<Map<String, Value>, String> {
        let mut given = Map::new();
        for (name, text) in pairs {
            let kind = self.fields.iter().find(|field| field.name == name);
            let value = match kind.map(|field| field.kind) {
                Some(Integer | Boolean) => {
                    serde_json::from_str(&text).unwrap_or(Value::String(text))
                }
                _ => Value::String(text),
            };
            if given.insert(name.clone(), value).is_some() {
                return Err(format!("`{}` is there twice", name.escape_debug()));
            }
        }
        Ok(given)
    }

    /// The site that the arguments name, if the operation is for one.
    pub(crate) fn site<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a str> {
        let field = (self.fields.iter()).find(|field| matches!(field.kind, Site))?;
        arguments.get(field.name).and_then(Value::as_str)
    }

    /// The request to the control thread.
    pub(crate) fn request(
        &self,
        mut arguments: Map<String, Value>,
    ) -> Result<ControlRequest, String> {
        let command = match self.kind {
            Command(command) | OfSites(command) => command,
            Parts(_) => "status",
            History | Live | Tail => {
                return Err("this is no request to the control thread".to_owned());
            }
        };
        match command {
            "upstream" => {
                let state = arguments.remove("state").unwrap_or_default();
                arguments.insert("change".to_owned(), state);
            }
            "maintenance" => {
                let state = arguments.remove("state").unwrap_or_default();
                let until = arguments.remove("until").unwrap_or_default();
                let change = match state.as_str() {
                    Some("on") => json!({ "on": { "until": until } }),
                    _ if !until.is_null() => return Err("`until` is for `on`".to_owned()),
                    _ => state,
                };
                arguments.insert("change".to_owned(), change);
            }
            "cache_list" => {
                let mut scopes = ["url", "prefix", "tag"]
                    .into_iter()
                    .filter_map(|name| match arguments.remove(name) {
                        None | Some(Value::Null) => None,
                        Some(value) => Some(json!({ name: value })),
                    })
                    .collect::<Vec<_>>();
                let scope = scopes.pop().unwrap_or_else(|| "all".into());
                if !scopes.is_empty() {
                    return Err("expected one of `url`, `prefix` and `tag`".to_owned());
                }
                arguments.insert("what".to_owned(), scope);
            }
            "config_change" => {
                let edits = [("text", "text"), ("keys", "keys"), ("id", "version")];
                let edit = edits.into_iter().find_map(|(field, edit)| {
                    let value = arguments.remove(field)?;
                    Some(json!({ edit: value }))
                });
                arguments.insert("edit".to_owned(), edit.unwrap_or_default());
            }
            _ => {}
        }
        arguments.insert("command".to_owned(), command.into());
        serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
    }
}

impl FieldKind {
    fn is(self, value: &Value) -> bool {
        let is_one_of = |names: &[&str]| value.as_str().is_some_and(|text| names.contains(&text));
        match self {
            Text | Site => value.is_string(),
            Integer => value.is_u64(),
            Boolean => value.is_boolean(),
            NodeState => is_one_of(&["up", "drain", "down"]),
            MaintenanceState => is_one_of(&["on", "off", "configured"]),
            LogLevel => is_one_of(&LogLevelName::ALL.map(LogLevelName::name)),
            KeyChanges => value.as_array().is_some_and(|changes| {
                let mut changes = changes.iter();
                changes.all(|change| {
                    let key = change.get("key").and_then(Value::as_array);
                    key.is_some_and(|key| key.iter().all(Value::is_string))
                })
            }),
            Step => is_one_of(&HistoryStep::ALL.map(HistoryStep::name)),
            Scope => {
                let one = value.as_object().filter(|fields| fields.len() == 1);
                let (name, scope) = match one.and_then(|fields| fields.iter().next()) {
                    Some((name, scope)) => (name.as_str(), scope.is_string()),
                    None => ("", false),
                };
                value == "all" || (scope && matches!(name, "url" | "prefix" | "tag"))
            }
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Text => "text",
            Site => "the name of a site",
            Integer => "a whole number that is not negative",
            Boolean => "true or false",
            NodeState => "`up`, `drain` or `down`",
            MaintenanceState => "`on`, `off` or `configured`",
            LogLevel => "`error`, `warn`, `info`, `debug` or `trace`",
            KeyChanges => "a list of objects with `key`, a list of names, and `value`",
            Step => "`second`, `minute` or `hour`",
            Scope => "`\"all\"` or an object with one of `url`, `prefix` and `tag`",
        }
    }

    fn schema(self) -> Value {
        match self {
            Text | Site => json!({ "type": "string" }),
            Integer => json!({ "type": "integer", "minimum": 0 }),
            Boolean => json!({ "type": "boolean" }),
            NodeState => json!({ "type": "string", "enum": ["up", "drain", "down"] }),
            MaintenanceState => json!({ "type": "string", "enum": ["on", "off", "configured"] }),
            LogLevel => {
                json!({ "type": "string", "enum": LogLevelName::ALL.map(LogLevelName::name) })
            }
            KeyChanges => {
                let text = json!({ "type": "string" });
                let properties = json!({
                    "key": { "type": "array", "items": text, "description": "The names of the tables and of the key; a table of an array by its `name` or its number, from 0." },
                    "value": { "description": "The value; null removes the key." },
                });
                json!({ "type": "array", "items": { "type": "object", "properties": properties, "required": ["key", "value"], "additionalProperties": false } })
            }
            Step => json!({ "type": "string", "enum": HistoryStep::ALL.map(HistoryStep::name) }),
            Scope => {
                let one = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name], "additionalProperties": false });
                json!({ "oneOf": [{ "const": "all" }, one("url"), one("prefix"), one("tag")] })
            }
        }
    }
}

/// The OpenAPI description.
pub(crate) fn description() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let media_type = match operation.kind {
            Live | Tail => "text/event-stream",
            _ => "application/json",
        };
        let mut described = json!({
            "summary": operation.summary,
            "description": format!("For accounts with the role `{}`.", operation.role.name()),
            "responses": {
                "200": { "description": "What was asked for.", "content": { media_type: {} } },
                "default": { "$ref": "#/components/responses/problem" },
            },
        });
        let has_query = matches!(operation.method, "GET" | "DELETE");
        if has_query && !operation.fields.is_empty() {
            let parameters = operation.fields.iter().map(|field| {
                json!({
                    "name": field.name, "in": "query", "required": field.default.is_none(),
                    "description": field.help, "schema": field.kind.schema(),
                })
            });
            insert(&mut described, "parameters", parameters.collect());
        } else if !operation.fields.is_empty() {
            let schema = object_schema(operation.fields);
            let body = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
            insert(&mut described, "requestBody", body);
        }
        add(&mut paths, operation.path, operation.method, described);
    }
    let session = |summary: &str| {
        json!({
            "summary": summary,
            "responses": {
                "200": { "description": "Who asks, what it may do, and after a log-in the token of its requests.", "content": { "application/json": {} } },
                "default": { "$ref": "#/components/responses/problem" },
            },
        })
    };
    add(
        &mut paths,
        "/session",
        "GET",
        session("Who asks, and what it may do."),
    );
    add(&mut paths, "/session", "DELETE", session("Logs out."));
    let mut log_in = session(
        "Logs in, by `name` and `password` of an account or by the `code` of `apus admin login`.",
    );
    let text = json!({ "type": "string" });
    let schema =
        json!({ "type": "object", "properties": { "name": text, "password": text, "code": text } });
    insert(
        &mut log_in,
        "requestBody",
        json!({ "required": true, "content": { "application/json": { "schema": schema } } }),
    );
    insert(&mut log_in, "security", json!([]));
    add(&mut paths, "/session", "POST", log_in);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Apus", "version": "1", "description": "The API of a running server." },
        "servers": [{ "url": "/api/v1" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": { "problem": {
                "description": "Why not (RFC 9457).",
                "content": { "application/problem+json": { "schema": {
                    "type": "object",
                    "properties": { "title": { "type": "string" }, "status": { "type": "integer" }, "detail": { "type": "string" } },
                } } },
            } },
        },
    })
}

fn object_schema(fields: &[ApiField]) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = field.kind.schema();
        insert(&mut schema, "description", field.help.into());
        properties.insert(field.name.to_owned(), schema);
    }
    let required = fields.iter().filter(|field| field.default.is_none());
    let required: Vec<_> = required.map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn insert(object: &mut Value, name: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}

fn add(paths: &mut Map<String, Value>, path: &str, method: &str, described: Value) {
    let at = paths.entry(path).or_insert_with(|| json!({}));
    insert(at, &method.to_ascii_lowercase(), described);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(method: &str, path: &str) -> &'static AdminOperation {
        let mut operations = OPERATIONS.iter();
        operations
            .find(|one| one.method == method && one.path == path)
            .unwrap()
    }

    fn request(method: &str, path: &str, body: Value) -> Result<ControlRequest, String> {
        let operation = operation(method, path);
        operation.request(operation.arguments(Sent::Body(body))?)
    }

    #[test]
    fn each_operation_is_a_request_that_its_role_may_send() {
        let commands = OPERATIONS.iter();
        for operation in commands.filter(|one| !matches!(one.kind, History | Live | Tail)) {
            let fields = operation
                .fields
                .iter()
                .filter(|field| field.default.is_none());
            let example = |kind| match kind {
                Text | Site => json!("x"),
                Integer => json!(1),
                Boolean => json!(true),
                NodeState => json!("drain"),
                MaintenanceState => json!("on"),
                Step => json!("hour"),
                Scope => json!({ "tag": "news" }),
                LogLevel => json!("debug"),
                KeyChanges => json!([{ "key": ["global", "workers"], "value": 2 }]),
            };
            let body = fields.map(|field| (field.name.to_owned(), example(field.kind)));
            let body = Value::Object(body.collect());
            let request = request(operation.method, operation.path, body).unwrap();
            assert_eq!(request.role(), Some(operation.role), "{}", operation.path);
            let changes = operation.method != "GET" && operation.path != "/config/check";
            assert_eq!(request.is_change(), changes, "{}", operation.path);
        }
    }

    #[test]
    fn what_is_sent_is_checked() {
        for (method, path, body, expected) in [
            ("POST", "/bans", json!({}), "`network` is missing"),
            (
                "POST",
                "/bans",
                json!({ "network": 1 }),
                "`network` is not text",
            ),
            (
                "POST",
                "/bans",
                json!({ "network": "a", "b\n": 1 }),
                "`b\\n` is unknown",
            ),
            ("POST", "/bans", json!([]), "expected a JSON object"),
            (
                "POST",
                "/bans",
                json!({ "network": "a", "seconds": -1 }),
                "`seconds` is not a whole",
            ),
            (
                "POST",
                "/cache/purge",
                json!({ "what": "some" }),
                "`what` is not `\"all\"`",
            ),
            (
                "POST",
                "/cache/purge",
                json!({ "what": { "url": 1 } }),
                "`what` is not",
            ),
            (
                "PUT",
                "/maintenance",
                json!({ "site": "a", "state": "off", "until": 1 }),
                "`until` is for `on`",
            ),
            (
                "POST",
                "/upstreams",
                json!({ "group": "a", "node": "b", "state": "gone" }),
                "`state` is not `up`",
            ),
        ] {
            let error = request(method, path, body).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let traffic = operation("GET", "/traffic");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let sent = Sent::Query(vec![pair("seconds", "30")]);
        let asked = traffic.request(traffic.arguments(sent).unwrap()).unwrap();
        assert_eq!(
            asked,
            ControlRequest::Traffic {
                seconds: 30,
                anew: false
            }
        );
        for pairs in [
            vec![pair("seconds", "x")],
            vec![pair("seconds", "1"), pair("seconds", "2")],
            vec![pair("other", "1")],
        ] {
            assert!(traffic.arguments(Sent::Query(pairs)).is_err());
        }
    }

    #[test]
    fn the_description_has_every_operation() {
        let described = description();
        for operation in OPERATIONS {
            let method = operation.method.to_ascii_lowercase();
            assert!(described["paths"][operation.path][method].is_object());
        }
    }
}
