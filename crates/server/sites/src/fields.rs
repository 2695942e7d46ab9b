//! Changes of request and response fields by a site or a location.

use std::fmt;

use apus_http::{HeaderName, HeaderValue, Headers};

use super::template::{InvalidTemplate, Template, ValueEncoding, VariableScope};

/// A change of one field of a request or of a response.
#[derive(Clone, Debug)]
pub struct FieldChange {
    name: HeaderName,
    action: FieldAction,
}

#[derive(Clone, Debug)]
enum FieldAction {
    Set(ChangeValue),
    Add(ChangeValue),
    Remove,
}

#[derive(Clone, Debug)]
enum ChangeValue {
    Static(HeaderValue),
    Template(Template),
}

/// The changes without those that a later one overrides, so that shared field lines are not copied
/// needlessly.
pub(super) fn effective_changes(changes: Vec<FieldChange>) -> Vec<FieldChange> {
    let mut kept: Vec<FieldChange> = Vec::with_capacity(changes.len());
    for change in changes {
        if !matches!(change.action, FieldAction::Add(_)) {
            kept.retain(|earlier| earlier.name != change.name);
        }
        kept.push(change);
    }
    kept
}

impl FieldChange {
    /// Replaces the lines of a name. The value may hold variables; if it is empty for a request,
    /// the field is removed.
    ///
    /// # Errors
    /// The name or the value is invalid, or the field is reserved for the connection.
    pub fn set(name: &str, value: &str) -> Result<Self, InvalidChange> {
        Ok(Self {
            name: field_name(name)?,
            action: FieldAction::Set(field_value(value)?),
        })
    }

    /// Replaces the lines of a name by a valid one.
    pub(super) fn fixed(name: HeaderName, value: HeaderValue) -> Self {
        Self {
            name,
            action: FieldAction::Set(ChangeValue::Static(value)),
        }
    }

    /// Adds a line after the lines of the same name. The value may hold variables; if it is empty
    /// for a request, nothing is added.
    ///
    /// # Errors
    /// As [`FieldChange::set`].
    pub fn add(name: &str, value: &str) -> Result<Self, InvalidChange> {
        Ok(Self {
            name: field_name(name)?,
            action: FieldAction::Add(field_value(value)?),
        })
    }

    /// Removes all lines of a name.
    ///
    /// # Errors
    /// The name is invalid, or the field is reserved for the connection.
    pub fn remove(name: &str) -> Result<Self, InvalidChange> {
        Ok(Self {
            name: field_name(name)?,
            action: FieldAction::Remove,
        })
    }

    /// The line that the change sets, if it is the same for every message.
    pub(super) fn as_static_line(&self) -> Option<(&HeaderName, &HeaderValue)> {
        match &self.action {
            FieldAction::Set(ChangeValue::Static(value)) => Some((&self.name, value)),
            _ => None,
        }
    }

    /// Whether these lines are already as the change makes them, so that shared lines need not be
    /// copied.
    pub(super) fn is_made(&self, headers: &Headers) -> bool {
        match &self.action {
            FieldAction::Set(ChangeValue::Static(value)) => {
                let mut lines = headers.get_all(self.name.as_str());
                lines.next() == Some(value.as_bytes()) && lines.next().is_none()
            }
            FieldAction::Remove => !headers.contains(&self.name),
            _ => false,
        }
    }

    /// The change for one request.
    pub(super) fn resolve(&self, scope: &VariableScope<'_>) -> Self {
        let fill = |value: &ChangeValue| match value {
            ChangeValue::Template(template) => {
                HeaderValue::from_bytes(&template.expand(scope, ValueEncoding::Plain))
                    .ok()
                    .filter(|value| !value.is_empty())
            }
            ChangeValue::Static(value) => Some(value.clone()),
        };
        let action = match &self.action {
            FieldAction::Set(value) => fill(value).map_or(FieldAction::Remove, |value| {
                FieldAction::Set(ChangeValue::Static(value))
            }),
            FieldAction::Add(value) => FieldAction::Add(fill(value).map_or(
                ChangeValue::Static(HeaderValue::from_static("")),
                ChangeValue::Static,
            )),
            FieldAction::Remove => FieldAction::Remove,
        };
        Self {
            name: self.name.clone(),
            action,
        }
    }

    /// Whether its value depends on the request.
    pub(super) fn has_variables(&self) -> bool {
        matches!(
            self.action,
            FieldAction::Set(ChangeValue::Template(_)) | FieldAction::Add(ChangeValue::Template(_))
        )
    }

    /// Whether its value refers to groups of the location's pattern.
    pub(super) fn has_captures(&self) -> bool {
        match &self.action {
            FieldAction::Set(ChangeValue::Template(value))
            | FieldAction::Add(ChangeValue::Template(value)) => value.has_captures(),
            _ => false,
        }
    }

    /// Applies the change; variables must have been expanded.
    pub(super) fn apply(&self, headers: &mut Headers) {
        match &self.action {
            FieldAction::Set(ChangeValue::Static(value)) => headers.insert(&self.name, value),
            FieldAction::Add(ChangeValue::Static(value)) if !value.is_empty() => {
                headers.append(&self.name, value);
            }
            FieldAction::Remove => {
                headers.remove(&self.name);
            }
            FieldAction::Set(ChangeValue::Template(_)) | FieldAction::Add(_) => {}
        }
    }
}

fn field_name(name: &str) -> Result<HeaderName, InvalidChange> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidChange::Name)?;
    match name.as_str() {
        "connection" | "content-length" | "date" | "keep-alive" | "proxy-connection" | "te"
        | "trailer" | "transfer-encoding" | "upgrade" => Err(InvalidChange::Reserved),
        _ => Ok(name),
    }
}

fn field_value(text: &str) -> Result<ChangeValue, InvalidChange> {
    let template = Template::parse(text).map_err(InvalidChange::Template)?;
    match template.as_text() {
        Some(text) => HeaderValue::from_str(text)
            .map(ChangeValue::Static)
            .map_err(|_| InvalidChange::Value),
        None => Ok(ChangeValue::Template(template)),
    }
}

/// A field change is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidChange {
    /// Not a field name (RFC 9110 section 5.1).
    Name,
    /// The value holds a control character (RFC 9110 section 5.5).
    Value,
    /// Framing and connection fields are written by the connection.
    Reserved,
    /// The value holds a variable that does not exist.
    Template(InvalidTemplate),
}

impl fmt::Display for InvalidChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("a field name is letters, digits and !#$%&'*+-.^_`|~"),
            Self::Value => f.write_str("a field value must not hold control characters"),
            Self::Reserved => f.write_str(
                "this field belongs to the connection and is written by the server itself",
            ),
            Self::Template(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidChange {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_a_later_one_undoes_is_not_made() {
        let changes = effective_changes(vec![
            FieldChange::set("a", "1").unwrap(),
            FieldChange::add("a", "2").unwrap(),
            FieldChange::set("b", "1").unwrap(),
            FieldChange::add("b", "2").unwrap(),
            FieldChange::set("a", "3").unwrap(),
            FieldChange::set("c", "1").unwrap(),
            FieldChange::remove("c").unwrap(),
        ]);
        let names: Vec<_> = changes.iter().map(|change| change.name.as_str()).collect();
        assert_eq!(names, ["b", "b", "a", "c"]);
        let mut headers = Headers::new();
        for change in &changes {
            change.apply(&mut headers);
        }
        assert_eq!(headers.get_all("a").collect::<Vec<_>>(), [b"3"]);
        assert_eq!(headers.get_all("b").count(), 2);
        assert!(!headers.contains("c"));
    }
}
