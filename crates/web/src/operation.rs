//! `Operation`: the description of one method of one path (OpenAPI 3.1 section 4.8.10).

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The description of a route, to which its arguments and its response add.
#[derive(Debug)]
pub struct Operation<'a> {
    fields: Map<String, Value>,
    /// The parameters of the path in order, then those of the query.
    parameters: Vec<Value>,
    responses: Map<String, Value>,
    generator: &'a mut SchemaGenerator,
}

impl<'a> Operation<'a> {
    /// An operation with this identifier, of a handler in this module.
    pub(crate) fn new(
        id: String,
        module: &str,
        parameters: &[String],
        generator: &'a mut SchemaGenerator,
    ) -> Self {
        let mut fields = Map::new();
        fields.insert("operationId".into(), id.into());
        Self::of(fields, module, parameters, generator)
    }

    /// An operation of which only the type name of the handler is known.
    pub(crate) fn listed(
        handler: &str,
        parameters: &[String],
        generator: &'a mut SchemaGenerator,
    ) -> Self {
        let mut fields = Map::new();
        let (module, function) = handler.rsplit_once("::").unwrap_or(("", handler));
        // A closure has no name of its own; the function around it has one.
        if function.starts_with('{') {
            let (module, _) = module.rsplit_once("::").unwrap_or_default();
            return Self::of(fields, module, parameters, generator);
        }
        fields.insert("operationId".into(), function.into());
        Self::of(fields, module, parameters, generator)
    }

    fn of(
        mut fields: Map<String, Value>,
        module: &str,
        parameters: &[String],
        generator: &'a mut SchemaGenerator,
    ) -> Self {
        // The root of the crate is not a group.
        if let Some((_, module)) = module.rsplit_once("::") {
            fields.insert("tags".into(), json!([module]));
        }
        let parameter = |name: &String| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        Self {
            fields,
            parameters: parameters.iter().map(parameter).collect(),
            responses: Map::new(),
            generator,
        }
    }

    /// Sets the first paragraph of a text as the summary, and the rest as the description.
    pub fn documentation(&mut self, text: &str) {
        let (summary, description) = text.split_once("\n\n").unwrap_or((text, ""));
        let summary = summary.replace('\n', " ");
        for (key, text) in [
            ("summary", summary.trim()),
            ("description", description.trim()),
        ] {
            if !text.is_empty() {
                self.fields.insert(key.into(), text.into());
            }
        }
    }

    /// The schema of a type.
    pub fn schema<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().to_value()
    }

    /// Sets the types of the path parameters: the fields of a struct by name, those of a tuple in order, or
    /// the only one.
    pub fn path_parameters<T: JsonSchema>(&mut self) {
        let schema = self.resolved::<T>();
        let members = schema.get("prefixItems").and_then(Value::as_array);
        for (index, parameter) in self.parameters.iter_mut().enumerate() {
            let name = parameter.get("name").and_then(Value::as_str).unwrap_or("");
            let known = match (&members, schema.get("properties")) {
                (Some(members), _) => members.get(index),
                (None, Some(properties)) => properties.get(name),
                (None, None) => Some(&schema),
            };
            if let (Some(known), Some(parameter)) = (known, parameter.as_object_mut()) {
                parameter.insert("schema".into(), known.clone());
            }
        }
    }

    /// Sets the query parameters: the fields of a struct.
    pub fn query_parameters<T: JsonSchema>(&mut self) {
        let schema = self.resolved::<T>();
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let mut parameter = json!({
                "name": name,
                "in": "query",
                "required": is_required(name),
                "schema": schema,
            });
            if let (Some(parameter), Some(text)) =
                (parameter.as_object_mut(), schema.get("description"))
            {
                parameter.insert("description".into(), text.clone());
            }
            self.parameters.push(parameter);
        }
    }

    /// Sets the media type and schema of the request body.
    pub fn request_body(&mut self, media_type: &str, schema: Value) {
        let content = json!({ "required": true, "content": { media_type: { "schema": schema } } });
        self.fields.insert("requestBody".into(), content);
    }

    /// Adds a response: its status, as `200`, `4XX` or `default`, and the media type and schema of its body.
    pub fn response(&mut self, status: &str, description: &str, content: Option<(&str, Value)>) {
        let mut response = json!({ "description": description });
        if let (Some(response), Some((media_type, schema))) = (response.as_object_mut(), content) {
            let content = json!({ media_type: { "schema": schema } });
            response.insert("content".into(), content);
        }
        self.responses.insert(status.into(), response);
    }

    /// The schema of a type itself, not a reference to it.
    fn resolved<T: JsonSchema>(&mut self) -> Value {
        let schema = self.schema::<T>();
        let name = schema.get("$ref").and_then(Value::as_str);
        let name = name.and_then(|name| name.rsplit('/').next());
        name.and_then(|name| self.generator.definitions().get(name).cloned())
            .unwrap_or(schema)
    }

    pub(crate) fn into_value(mut self) -> Value {
        if !self.parameters.is_empty() {
            self.fields
                .insert("parameters".into(), self.parameters.into());
        }
        if self.responses.is_empty() {
            let unknown = json!({ "description": "a response" });
            self.responses.insert("default".into(), unknown);
        }
        self.fields
            .insert("responses".into(), self.responses.into());
        self.fields.into()
    }
}

/// The path in OpenAPI syntax, `/users/{id}` for `/users/{id:[0-9]+}` and `/files/{rest}` for
/// `/files/{*rest}`, and the names of its parameters.
pub(crate) fn path_of(pattern: &str) -> (String, Vec<String>) {
    let mut path = String::with_capacity(pattern.len());
    let mut names = Vec::new();
    let mut name = String::new();
    let mut depth = 0_usize;
    for character in pattern.chars() {
        match character {
            '{' if depth == 0 => depth = 1,
            '{' => depth = depth.saturating_add(1),
            '}' if depth == 1 => {
                depth = 0;
                let written = std::mem::take(&mut name);
                let plain = written.split(':').next().unwrap_or("");
                let plain = plain.trim_start_matches('*').to_owned();
                path.push_str(&format!("{{{plain}}}"));
                names.push(plain);
            }
            '}' => depth = depth.saturating_sub(1),
            character if depth == 0 => path.push(character),
            character => name.push(character),
        }
    }
    (path, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_without_constraints() {
        assert_eq!(path_of("/"), ("/".to_owned(), vec![]));
        let (path, names) = path_of("/a/{id:[0-9]{2}}/{*rest}");
        assert_eq!(path, "/a/{id}/{rest}");
        assert_eq!(names, ["id", "rest"]);
    }
}
