//! What `apus site` and `apus status` print of sites.

use std::fmt::Write as _;

use serde_json::Value;

/// The sites, a line each, in columns: name, maintenance, host names, addresses.
pub(crate) fn list(value: &Value) -> String {
    let sites = value.get("sites").and_then(Value::as_array);
    let rows: Vec<[String; 4]> = sites
        .into_iter()
        .flatten()
        .map(|site| {
            let words = |name: &str| {
                let words = site.get(name).and_then(Value::as_array).into_iter();
                let words = words.flatten().filter_map(Value::as_str);
                words.collect::<Vec<_>>().join(" ")
            };
            let name = site.get("name").and_then(Value::as_str);
            [
                name.unwrap_or_default().to_owned(),
                state(site),
                words("server_names"),
                words("listening"),
            ]
        })
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths = [0, 1, 2, 3].map(width);
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Whether a site is in maintenance, in words.
pub(crate) fn state(site: &Value) -> String {
    let is = |name: &str| site.get(name).and_then(Value::as_bool) == Some(true);
    let by = if is("maintenance_by_command") {
        " by command"
    } else {
        ""
    };
    if !is("maintenance") {
        return format!("serving{by}");
    }
    match site.get("maintenance_until").and_then(Value::as_str) {
        Some(until) => format!("maintenance{by} until {until}"),
        None => format!("maintenance{by}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sites_are_listed_in_columns() {
        let site = |name: &str, on: bool, until: Value| {
            json!({"name": name, "server_names": [name], "listening": ["http://localhost/"],
                "maintenance": on, "maintenance_until": until, "maintenance_by_command": on})
        };
        let value = json!({"sites": [
            site("a", false, Value::Null),
            site("shop", true, json!("2026-12-01T06:00:00Z")),
        ]});
        assert_eq!(
            list(&value),
            "a     serving                                            a     http://localhost/\n\
             shop  maintenance by command until 2026-12-01T06:00:00Z  shop  http://localhost/\n"
        );
    }
}
