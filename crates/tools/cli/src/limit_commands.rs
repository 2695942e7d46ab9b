//! `apus limit`: its commands, and what they print.

use std::fmt::Write as _;

use apus_server::control::ControlRequest;
use serde_json::Value;

use crate::CommandError;
use crate::arguments::LimitCommand;
use crate::ban_commands::ask;
use crate::output;

pub(crate) fn run(command: LimitCommand) -> Result<(), CommandError> {
    match command {
        LimitCommand::List { name, server } => {
            ask(&server.into(), &ControlRequest::LimitList { name }, list)
        }
        LimitCommand::Reset {
            name, key, server, ..
        } => {
            let request = ControlRequest::LimitReset { name, key };
            ask(&server.into(), &request, |value| {
                format!(
                    "{}: {} keys have their whole quota again\n",
                    text(value, "name"),
                    number(value, "keys")
                )
            })
        }
    }
}

/// The quotas, a line each, and below them their keys with what they have used.
fn list(value: &Value) -> String {
    let mut out = String::new();
    for limit in items(value, "quotas") {
        let place = match (text(limit, "site"), text(limit, "location")) {
            ("", _) => "of all sites".to_owned(),
            (site, "") => site.to_owned(),
            (site, location) => format!("{site} {location}"),
        };
        let (name, key) = (text(limit, "name"), text(limit, "key"));
        let Some(quota_of) = limit.get("quota") else {
            continue;
        };
        let _ = writeln!(
            out,
            "limit {place} {name} by {key}: {}",
            output::quota(quota_of)
        );
        for usage in items(quota_of, "usage") {
            let _ = writeln!(
                out,
                "  {:>14}  {}",
                number(usage, "used"),
                text(usage, "key")
            );
        }
    }
    if out.is_empty() {
        out.push_str("there is no quota\n");
    }
    out
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let items = value.get(name).and_then(Value::as_array);
    items.into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotas_are_listed_with_the_keys_that_used_them() {
        let value = json!({ "quotas": [{
            "site": "site", "location": null, "name": "api", "key": "header.x-api-key",
            "quota": {
                "units": 10, "unit": "requests", "window": "day", "resets_in": 3600, "keys": 2, "used_up": 1,
                "usage": [{ "key": "192.0.2.1", "used": 10 }, { "key": "#00000000000000ff", "used": 3 }],
            },
        }] });
        let expected = "limit site api by header.x-api-key: 10 requests in this day: used by 2 keys, used up by 1, whole again in 1 h 0 min\n\
            \x20             10  192.0.2.1\n\
            \x20              3  #00000000000000ff\n";
        assert_eq!(list(&value), expected);
        assert_eq!(list(&json!({ "quotas": [] })), "there is no quota\n");
    }
}
