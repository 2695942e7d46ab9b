//! `apus cache list`: what is stored.

use std::fmt::Write as _;

use apus_server::control::{ControlRequest, PurgeScope};
use serde_json::Value;

use crate::CommandError;
use crate::arguments::CacheListArguments;
use crate::ban_commands::ask;
use crate::output::{duration, size, without_controls};

pub(crate) fn run(arguments: CacheListArguments) -> Result<(), CommandError> {
    let scopes = [
        arguments.url.map(PurgeScope::Url),
        arguments.prefix.map(PurgeScope::Prefix),
        arguments.tag.map(PurgeScope::Tag),
    ];
    let what = scopes.into_iter().flatten().next();
    let request = ControlRequest::CacheList {
        site: arguments.site,
        what: what.unwrap_or(PurgeScope::All),
        most: arguments.most,
    };
    ask(&arguments.server.into(), &request, list)
}

/// A line for each response, the largest first.
fn list(value: &Value) -> String {
    let responses = value.get("responses").and_then(Value::as_array);
    let mut out = String::new();
    for response in responses.into_iter().flatten() {
        let number = |name: &str| response.get(name).and_then(Value::as_u64).unwrap_or(0);
        let is = |name: &str| response.get(name).and_then(Value::as_bool) == Some(true);
        let url = response.get("url").and_then(Value::as_str);
        let left = response.get("fresh_seconds").and_then(Value::as_i64);
        let state = match left.map(u64::try_from) {
            Some(Ok(left)) if is("is_fresh") => format!("fresh for {}", duration(left)),
            _ => "stale".to_owned(),
        };
        let place = if is("in_memory") { "memory" } else { "disk" };
        let variant = if is("is_variant") { "  variant" } else { "" };
        let _ = writeln!(
            out,
            "{:>10}  {:>3}  {place:<6}  {state:<22}  {:>8} hits  {}{variant}",
            size(number("bytes")),
            number("status"),
            number("hits"),
            without_controls(url.unwrap_or_default()),
        );
    }
    if out.is_empty() {
        out.push_str("Nothing is stored.\n");
    }
    if value.get("is_complete").and_then(Value::as_bool) == Some(false) {
        out.push_str("The disk is not searched completely: there may be more.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn responses_are_listed_in_columns() {
        let one = json!({ "url": "http://a/\u{1b}", "status": 200, "bytes": 2048, "hits": 3, "fresh_seconds": 60, "is_fresh": true, "in_memory": true, "is_variant": true });
        let other = json!({ "url": "http://a/b", "status": 404, "bytes": 10, "fresh_seconds": -5 });
        let text = list(&json!({ "responses": [one, other], "is_complete": false }));
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].contains("200  memory  fresh for 1 min 0 s"),
            "{text}"
        );
        assert!(
            lines[0].ends_with("3 hits  http://a/\\u{1b}  variant"),
            "{text}"
        );
        assert!(lines[1].contains("404  disk    stale"), "{text}");
        assert_eq!(lines.len(), 3);
        assert_eq!(list(&json!({ "responses": [] })), "Nothing is stored.\n");
    }
}
