//! The HTML page that shows an OpenAPI description without scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use apus_http::escape_html;
use serde_json::Value;

/// The page for a description at the URL `address`.
pub(super) fn html(document: &Value, address: &str) -> String {
    let info = &document["info"];
    let mut groups: BTreeMap<&str, String> = BTreeMap::new();
    for (path, item) in members(&document["paths"]) {
        for (method, operation) in members(item) {
            let group = at(operation, "/tags/0").as_str().unwrap_or("");
            show(groups.entry(group).or_default(), method, path, operation);
        }
    }
    let mut routes = String::new();
    for (group, operations) in groups {
        if !group.is_empty() {
            let _ = write!(routes, "<h2>{}</h2>", escape_html(group));
        }
        routes.push_str(&operations);
    }
    let mut schemas = String::new();
    for (name, schema) in members(at(document, "/components/schemas")) {
        let _ = write!(
            schemas,
            "<details id=\"{0}\"><summary><b>{0}</b></summary><pre>{1}</pre></details>",
            escape_html(name),
            escape_html(&format!("{schema:#}"))
        );
    }
    if !schemas.is_empty() {
        schemas.insert_str(0, "<h2>Types</h2>");
    }
    include_str!("page.html")
        .replace("{title}", &escape_html(text(&info["title"])))
        .replace("{version}", &escape_html(text(&info["version"])))
        .replace("{description}", &paragraphs(text(&info["description"])))
        .replace("{address}", &escape_html(address))
        .replace("{routes}", &routes)
        .replace("{schemas}", &schemas)
}

/// Writes one operation. Writing into a string does not fail.
fn show(page: &mut String, method: &str, path: &str, operation: &Value) {
    let method = method.to_ascii_uppercase();
    let _ = write!(
        page,
        "<details class=\"{0}\"><summary><b>{0}</b> <code>{1}</code> {2}</summary>{3}",
        escape_html(&method),
        escape_html(path),
        escape_html(text(&operation["summary"])),
        paragraphs(text(&operation["description"]))
    );
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters {
        page.push_str("<table><tr><th>parameter<th>in<th>type<th>");
        for parameter in parameters {
            let needed = match parameter["required"].as_bool() {
                Some(true) => "required",
                _ => "",
            };
            let _ = write!(
                page,
                "<tr><td><code>{}</code><td>{}<td>{}<td>{needed} {}",
                escape_html(text(&parameter["name"])),
                escape_html(text(&parameter["in"])),
                type_of(&parameter["schema"]),
                escape_html(text(&parameter["description"]))
            );
        }
        page.push_str("</table>");
    }
    page.push_str("<table><tr><th>content<th>media type<th>type");
    for (media_type, content) in members(at(operation, "/requestBody/content")) {
        row(page, "request", media_type, &content["schema"]);
    }
    for (status, response) in members(&operation["responses"]) {
        let label = match text(&response["description"]) {
            "" => status.to_owned(),
            description => format!("{status} {description}"),
        };
        match response["content"].as_object() {
            Some(contents) => {
                for (media_type, content) in contents {
                    row(page, &label, media_type, &content["schema"]);
                }
            }
            None => row(page, &label, "", &Value::Null),
        }
    }
    page.push_str("</table></details>");
}

fn row(page: &mut String, label: &str, media_type: &str, schema: &Value) {
    let _ = write!(
        page,
        "<tr><td>{}<td>{}<td>{}",
        escape_html(label),
        escape_html(media_type),
        type_of(schema)
    );
}

/// A short text for a schema, as HTML.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|name| name.rsplit('/').next())
    {
        return format!("<a href=\"#{0}\">{0}</a>", escape_html(name));
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(schemas) = schema[several].as_array() {
            let schemas: Vec<String> = schemas.iter().map(type_of).collect();
            return schemas.join(" or ");
        }
    }
    let kind = match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(text).collect();
            kinds.join(" or ")
        }
        _ => String::new(),
    };
    match (kind.as_str(), schema["format"].as_str()) {
        ("array", _) => format!("array of {}", type_of(&schema["items"])),
        (kind, Some(format)) => escape_html(&format!("{kind} ({format})")),
        (kind, None) => escape_html(kind),
    }
}

fn members(of: &Value) -> impl Iterator<Item = (&str, &Value)> {
    of.as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (&**name, value))
}

/// The value that a JSON pointer (RFC 6901) names.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn text(of: &Value) -> &str {
    of.as_str().unwrap_or("")
}

fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").filter(|part| !part.trim().is_empty());
    paragraphs
        .map(|paragraph| format!("<p>{}</p>", escape_html(paragraph)))
        .collect()
}
