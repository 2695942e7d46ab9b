//! What happened to one request, as text.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::output::{duration, without_controls};

/// The lines of a request.
pub(crate) fn request(value: &Value) -> String {
    let text = |name: &str| without_controls(value[name].as_str().unwrap_or_default());
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<10}{text}");
    };
    let query = match value["query"].as_str() {
        Some(query) => format!("?{}", without_controls(query)),
        None => String::new(),
    };
    let (scheme, host, path) = (text("scheme"), text("host"), text("path"));
    line(
        "request",
        &format!("{} {scheme}://{host}{path}{query}", text("method")),
    );
    line("id", &text("id"));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let age = now.as_secs_f64() - value["time"].as_f64().unwrap_or_default();
    let client = match value["client"].as_str() {
        Some(client) => without_controls(client),
        None => "a Unix socket".to_owned(),
    };
    let ago = duration(age.max(0.0) as u64);
    line(
        "from",
        &format!("{client} by {}, {ago} ago", text("protocol")),
    );
    line("site", &text("site"));
    if value["location"].is_string() {
        line(
            "location",
            &format!("{} ({})", text("location"), text("handler")),
        );
    }
    for rule in list(value, "rules") {
        let dry_run = if rule["dry_run"] == true {
            " (dry run)"
        } else {
            ""
        };
        let name = part(rule, "rule");
        line("rule", &format!("{}: {name}{dry_run}", part(rule, "place")));
    }
    for limit in list(value, "limits") {
        line(
            "limit",
            &format!("{}: {}", part(limit, "limit"), part(limit, "outcome")),
        );
    }
    if value["decided"].is_object() {
        let decided = &value["decided"];
        line(
            "decided",
            &format!("by {}: {}", part(decided, "by"), part(decided, "why")),
        );
    }
    match (value["cache"].as_str(), value["cache_key"].as_str()) {
        (None, None) => {}
        (result, key) => {
            let key = key.map(|key| format!(", key {}", without_controls(key)));
            line(
                "cache",
                &format!(
                    "{}{}",
                    result.unwrap_or("no result"),
                    key.unwrap_or_default()
                ),
            );
        }
    }
    let attempts = list(value, "attempts");
    for made in attempts {
        line("origin", &attempt(made));
    }
    if attempts.is_empty() && value["origin"].is_object() {
        let origin = &value["origin"];
        let time = milliseconds(&origin["seconds"]).unwrap_or_default();
        line(
            "origin",
            &format!(
                "{}: {} after {time}",
                part(origin, "address"),
                origin["status"]
            ),
        );
    }
    let bytes = value["bytes_sent"]
        .as_u64()
        .map(|bytes| format!(", {bytes} bytes sent"));
    let bytes = bytes.unwrap_or_default();
    let status = match value["status"].as_u64() {
        Some(status) => format!("{status}, {}{bytes}", text("outcome")),
        None => text("outcome"),
    };
    line("status", &status);
    let whole = milliseconds(&value["seconds"]).unwrap_or_default();
    match milliseconds(&value["first_byte_seconds"]) {
        Some(first) => line(
            "time",
            &format!("{first} to the head of the response, {whole} to its end"),
        ),
        None => line("time", &whole),
    }
    for error in list(value, "errors") {
        line(
            "log",
            &format!("{} {}", part(error, "level"), part(error, "message")),
        );
    }
    out
}

/// The result and the times of an attempt at an origin. Times without a word about them are since the request came.
fn attempt(attempt: &Value) -> String {
    let (node, address) = (part(attempt, "node"), part(attempt, "address"));
    let mut text = node.clone();
    if !address.is_empty() && address != node {
        let _ = write!(text, " ({address})");
    }
    match attempt["status"].as_u64() {
        Some(status) => {
            let _ = write!(text, ": {status}");
        }
        None => {
            let (phase, cause) = (part(attempt, "phase"), part(attempt, "cause"));
            let _ = write!(text, ": no response ({phase}: {cause})");
        }
    }
    if let Some(began) = milliseconds(&attempt["after_seconds"]) {
        let _ = write!(text, "; begun after {began}");
    }
    if let Some(connect) = milliseconds(&attempt["connect_seconds"]) {
        let _ = write!(text, ", {connect} to connect");
    }
    if let Some(took) = milliseconds(&attempt["seconds"]) {
        let what = if attempt["status"].is_null() {
            "to fail"
        } else {
            "to its head"
        };
        let _ = write!(text, ", {took} {what}");
    }
    if let Some(ended) = milliseconds(&attempt["body_ended_after_seconds"]) {
        let how = if attempt["is_body_complete"] == false {
            "broke off"
        } else {
            "ended"
        };
        let _ = write!(text, ", body {how} after {ended}");
    }
    text
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn part(value: &Value, name: &str) -> String {
    without_controls(value[name].as_str().unwrap_or_default())
}

fn milliseconds(seconds: &Value) -> Option<String> {
    Some(format!("{:.1} ms", seconds.as_f64()? * 1000.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_told_line_by_line() {
        let value = json!({
            "id": "0a", "time": 0.0, "site": "shop", "location": "/api", "handler": "proxy", "client": "192.0.2.1",
            "method": "GET", "scheme": "https", "protocol": "HTTP/2.0", "host": "a.test", "path": "/api/\u{1b}[1m", "query": "token=…",
            "status": 200, "outcome": "complete", "bytes_sent": 1234, "first_byte_seconds": 0.0125, "seconds": 0.0135,
            "cache": "MISS", "cache_key": "00ff", "origin": { "address": "127.0.0.1:1", "status": 200, "seconds": 0.01 },
            "rules": [{ "place": "shop", "rule": "office", "dry_run": true }],
            "limits": [{ "limit": "pages", "outcome": "allowed" }],
            "decided": null,
            "attempts": [
                { "node": "a", "address": "127.0.0.1:1", "after_seconds": 0.001, "connect_seconds": 0.0005, "seconds": 0.0005,
                  "status": null, "phase": "connect", "cause": "connection refused" },
                { "node": "127.0.0.1:2", "address": "127.0.0.1:2", "after_seconds": 0.002, "connect_seconds": null, "seconds": 0.01,
                  "status": 200, "phase": null, "cause": null, "body_ended_after_seconds": 0.013, "is_body_complete": true },
            ],
            "errors": [{ "level": "WARN", "message": "tried another origin after one failed" }],
        });
        let text = request(&value);
        for expected in [
            "request   GET https://a.test/api/\\u{1b}[1m?token=…\n",
            "from      192.0.2.1 by HTTP/2.0, ",
            "location  /api (proxy)\n",
            "rule      shop: office (dry run)\n",
            "limit     pages: allowed\n",
            "cache     MISS, key 00ff\n",
            "origin    a (127.0.0.1:1): no response (connect: connection refused); begun after 1.0 ms, 0.5 ms to connect, 0.5 ms to fail\n",
            "origin    127.0.0.1:2: 200; begun after 2.0 ms, 10.0 ms to its head, body ended after 13.0 ms\n",
            "status    200, complete, 1234 bytes sent\n",
            "time      12.5 ms to the head of the response, 13.5 ms to its end\n",
            "log       WARN tried another origin after one failed\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in {text}");
        }
    }
}
