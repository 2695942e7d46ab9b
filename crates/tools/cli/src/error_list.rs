//! `apus status --errors`: the last warnings and errors of the server, a line each.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::output::{duration, without_controls};

/// The lines, the last one first.
pub(crate) fn lines(value: &Value) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut out = String::new();
    for line in value["errors"].as_array().into_iter().flatten() {
        let text = |name: &str| without_controls(line[name].as_str().unwrap_or_default());
        let age = now.as_secs_f64() - line["time"].as_f64().unwrap_or_default();
        let ago = duration(age.max(0.0) as u64);
        let _ = write!(out, "{ago} ago  {}  {}", text("level"), text("message"));
        for name in ["site", "request_id"] {
            if line[name].is_string() {
                let _ = write!(out, " {name}={}", text(name));
            }
        }
        for (name, value) in line["fields"].as_object().into_iter().flatten() {
            let value = match value.as_str() {
                Some(text) => without_controls(text),
                None => value.to_string(),
            };
            let _ = write!(out, " {}={value}", without_controls(name));
        }
        out.push('\n');
    }
    if out.is_empty() {
        out.push_str("The log has no warnings and errors since the server started.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_its_fields_and_nothing_that_a_terminal_obeys() {
        let line = json!({
            "time": 0.0, "level": "WARN", "message": "a\u{1b}[2J", "site": "shop", "request_id": "0a",
            "fields": { "status": 502, "cause": "refused" },
        });
        let text = lines(&json!({ "errors": [line] }));
        let expected = "  WARN  a\\u{1b}[2J site=shop request_id=0a cause=refused status=502\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(lines(&json!({ "errors": [] })).contains("no warnings"));
    }
}
