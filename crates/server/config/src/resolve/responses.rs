//! Fixed responses, and changes of fields: of a site, of a location and of a rule.

use apus_sites::{FieldChange, InvalidReturn, ReturnHandler};
use http::HeaderValue;

use super::templates::check_text;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw;
use crate::source::{Setting, SourceSpan};
use crate::string_type::{FieldName, FieldValue};

/// The response of a `return`.
pub(super) fn return_handler(
    keys: &Setting<raw::Return>,
    reader: &mut ConfigReader<'_>,
) -> Option<ReturnHandler> {
    let status = keys.status.value.0;
    if let Some(location) = &keys.location {
        check_text(&location.0, &location.span, reader);
    }
    if let Some(text) = &keys.text {
        check_text(&text.0, &text.span, reader);
    }
    let made = match (&keys.location, &keys.text) {
        (Some(location), Some(text)) => {
            reader.report(
                Finding::error(
                    &text.span,
                    "`text` and `location` exclude each other",
                    "expected one of them",
                )
                .related(&location.span, "the other one"),
            );
            return None;
        }
        (Some(location), None) => ReturnHandler::redirect(status, &location.0)
            .map_err(|error| (error, location.span.clone())),
        (None, Some(text)) => HeaderValue::from_str(&keys.content_type.0)
            .map_err(|_| InvalidReturn::Status)
            .and_then(|kind| ReturnHandler::text(status, kind, &text.0))
            .map_err(|error| (error, text.span.clone())),
        (None, None) if reader.has_wrong(&keys.span, &["location", "text"]) => return None,
        (None, None) if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) => {
            reader.report(Finding::error(
                &keys.span,
                "a redirect without a destination",
                "expected `location` here",
            ));
            return None;
        }
        (None, None) => Ok(ReturnHandler::status(status)),
    };
    made.map_err(|(error, span)| {
        let span = match error {
            InvalidReturn::Status => &keys.status.span,
            _ => &span,
        };
        reader.report(Finding::error(span, error.to_string(), "in this `return`"));
    })
    .ok()
}

/// The changes of a table `headers` or `request_headers`.
pub(super) fn field_changes(
    raw: Option<&Setting<raw::FieldChanges>>,
    reader: &mut ConfigReader<'_>,
) -> Vec<FieldChange> {
    let Some(raw) = raw else {
        return Vec::new();
    };
    for (_, value) in raw.set.0.iter().chain(&raw.add.0) {
        check_text(&value.0, &value.span, reader);
    }
    let mut changes = Vec::new();
    let mut push =
        |made: Result<FieldChange, apus_sites::InvalidChange>, span: &SourceSpan| match made {
            Ok(change) => changes.push(change),
            Err(error) => {
                reader.report(Finding::error(span, error.to_string(), "in this change"));
            }
        };
    for name in &raw.remove.0 {
        push(FieldChange::remove(&name.0), &name.span);
    }
    type Entry = (Setting<FieldName>, Setting<FieldValue>);
    for (name, value) in &raw.set.0 as &Vec<Entry> {
        push(FieldChange::set(&name.0, &value.0), &name.span);
    }
    for (name, value) in &raw.add.0 as &Vec<Entry> {
        push(FieldChange::add(&name.0, &value.0), &name.span);
    }
    changes
}
