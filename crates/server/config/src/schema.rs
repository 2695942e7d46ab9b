//! The JSON schema of `apus.toml` (draft 2020-12), made from the definitions of the keys.

use serde_json::{Value, json};

use super::keys::ConfigTable;
use super::raw::File;
use super::table_schema::of_table;

/// The JSON schema of `apus.toml`, for completion and checks in editors.
pub fn schema() -> Value {
    let mut schema = of_table(&File::description());
    if let Some(object) = schema.as_object_mut() {
        object.insert(
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        object.insert("title".to_owned(), json!("apus.toml"));
    }
    schema
}
