//! `Operation`: the description of one method of one path (OpenAPI 3.1 section 4.8.10).

use std::collections::HashSet;

use apus_http::StatusCode;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// What an attribute tells of its route.
#[derive(Clone, Copy)]
pub(crate) struct RouteDescription {
    pub(crate) methods: &'static [&'static str],
    pub(crate) function: &'static str,
    pub(crate) module: &'static str,
    /// Adds what the types of the function tell.
    pub(crate) describe: fn(&mut Operation<'_>),
}

/// The description of a route, to which its arguments and its response add.
#[derive(Debug)]
pub struct Operation<'a> {
    fields: Map<String, Value>,
    /// The parameters of the path in order, then the parameters of the query.
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

    /// Sets the types of the path parameters: the fields of a struct by name, the fields of a tuple in
    /// order, or the only one.
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

    /// Adds a query parameter that a client may leave out.
    pub fn query_parameter(&mut self, name: &str, description: &str, schema: Value) -> &mut Self {
        self.parameters.push(json!({
            "name": name,
            "in": "query",
            "description": description,
            "required": false,
            "schema": schema,
        }));
        self
    }

    /// Adds a field, which is a text, to the responses on success that are described until now.
    pub fn response_field(&mut self, name: &str, description: &str) -> &mut Self {
        let field = json!({ "description": description, "schema": { "type": "string" } });
        let responses = self.responses.iter_mut();
        for (_, response) in responses.filter(|(status, _)| status.starts_with('2')) {
            if let Some(response) = response.as_object_mut()
                && let Some(fields) = response
                    .entry("headers")
                    .or_insert_with(|| json!({}))
                    .as_object_mut()
            {
                fields.insert(name.to_owned(), field.clone());
            }
        }
        self
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

    /// Sets the status of the response on success, in place of the status of the type.
    pub fn status(&mut self, status: u16) -> &mut Self {
        let is_success = |key: &String| key.starts_with('2');
        let known = self.responses.keys().find(|key| is_success(key)).cloned();
        let known = known.and_then(|key| self.responses.remove(&key));
        let mut response = known.unwrap_or_else(|| json!({}));
        set_member(&mut response, "description", reason(status).into());
        self.responses.insert(status.to_string(), response);
        self
    }

    /// Sets the summary, in place of the summary in the doc comment.
    pub fn summary(&mut self, text: &str) -> &mut Self {
        self.fields.insert("summary".into(), text.into());
        self
    }

    /// Sets the description, in place of the description in the doc comment.
    pub fn description(&mut self, text: &str) -> &mut Self {
        self.fields.insert("description".into(), text.into());
        self
    }

    /// Sets the tags, by which the page groups operations, in place of the module.
    pub fn tags<T: Into<Value>>(&mut self, tags: impl IntoIterator<Item = T>) -> &mut Self {
        let tags: Vec<Value> = tags.into_iter().map(Into::into).collect();
        self.fields.insert("tags".into(), tags.into());
        self
    }

    /// Requires a security scheme of the API (see [`crate::openapi::OpenApi::security_scheme`]); of several, one is enough.
    pub fn security(&mut self, scheme: &str) -> &mut Self {
        let known = self.fields.entry("security").or_insert_with(|| json!([]));
        if let Some(known) = known.as_array_mut() {
            known.push(json!({ scheme: [] }));
        }
        self
    }

    /// Requires no security scheme, also if the API requires one.
    pub fn no_security(&mut self) -> &mut Self {
        self.fields.insert("security".into(), json!([]));
        self
    }

    /// Adds a response to an error with problem details (RFC 9457): for example 422, if values of the body can be
    /// invalid.
    pub fn problem(&mut self, status: u16, description: &str) -> &mut Self {
        let content = Some(("application/problem+json", problem_schema()));
        self.response(&status.to_string(), description, content);
        self
    }

    /// Adds the response to invalid fields: 422, with the messages about each field as `errors`.
    #[cfg(feature = "validate")]
    pub(crate) fn invalid_fields(&mut self) {
        let mut schema = problem_schema();
        if let Some(members) = schema.get_mut("properties") {
            let texts = json!({ "type": "array", "items": { "type": "string" } });
            let errors = json!({ "type": "object", "additionalProperties": texts });
            set_member(members, "errors", errors);
        }
        let content = Some(("application/problem+json", schema));
        self.response("422", "fields are not valid", content);
    }

    /// Sets an example of the request body.
    pub fn request_example(&mut self, example: impl Into<Value>) -> &mut Self {
        if let Some(body) = self.fields.get_mut("requestBody") {
            set_example(body, &example.into());
        }
        self
    }

    /// Sets an example of the body of a response, by its status as it is described.
    pub fn response_example(&mut self, status: &str, example: impl Into<Value>) -> &mut Self {
        if let Some(response) = self.responses.get_mut(status) {
            set_example(response, &example.into());
        }
        self
    }

    /// Adds a number to the identifier if another operation has it.
    pub(crate) fn make_id_unique(&mut self, known: &mut HashSet<String>) {
        let Some(id) = self.fields.get("operationId").and_then(Value::as_str) else {
            return;
        };
        let numbered = (2..).map(|number: u32| format!("{id}_{number}"));
        let mut candidates = std::iter::once(id.to_owned()).chain(numbered);
        if let Some(free) = candidates.find(|id| !known.contains(id)) {
            known.insert(free.clone());
            self.fields.insert("operationId".into(), free.into());
        }
    }

    /// The status of responses that are described until now is only known at run time.
    pub fn status_at_run_time(&mut self) {
        for status in ["200", "204"] {
            if let Some(mut response) = self.responses.remove(status) {
                set_member(&mut response, "description", "a response".into());
                self.responses.insert("2XX".into(), response);
            }
        }
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

/// The schema of problem details.
fn problem_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
        },
    })
}

/// The reason phrase of a status.
fn reason(status: u16) -> &'static str {
    let status = StatusCode::from_u16(status).ok();
    let reason = status.and_then(|status| status.canonical_reason());
    reason.unwrap_or("a response")
}

/// Sets a member of an object.
fn set_member(of: &mut Value, name: &str, value: Value) {
    if let Some(object) = of.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}

/// Sets the example of all media types.
fn set_example(of: &mut Value, example: &Value) {
    let contents = of.get_mut("content").and_then(Value::as_object_mut);
    for content in contents.into_iter().flat_map(Map::values_mut) {
        set_member(content, "example", example.clone());
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
