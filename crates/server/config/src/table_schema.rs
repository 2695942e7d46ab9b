//! The JSON schema of one table of `apus.toml`.

use serde_json::{Map, Value, json};

use super::description::TableDescription;

/// The schema of one table.
pub(super) fn of_table(table: &TableDescription) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in &table.keys {
        let mut schema = key.kind.schema.clone();
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".to_owned(), plain(key.doc).into());
            if let Some(default) = key.default.as_ref().filter(|default| !default.is_null()) {
                object.insert("default".to_owned(), default.clone());
            }
        }
        properties.insert(key.name.to_owned(), schema);
        if key.required {
            required.push(key.name);
        }
    }
    let mut schema = json!({
        "type": "object",
        "description": plain(table.doc),
        "properties": properties,
        "additionalProperties": false,
    });
    if let Some(object) = schema.as_object_mut()
        && !required.is_empty()
    {
        object.insert("required".to_owned(), json!(required));
    }
    schema
}

/// A doc comment as one paragraph.
pub(super) fn plain(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}
