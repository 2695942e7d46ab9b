//! Dates with times, as TOML writes them (RFC 3339).

use std::time::SystemTime;

use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toml::de::DeValue;

use super::description::TypeDescription;
use super::diagnostics::Finding;
use super::keys::{ConfigReader, KeyType, ValueNode};

const EXPECTED: &str = "a date and time with an offset, such as 2026-12-01T06:00:00Z";

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct DateTime(pub(super) SystemTime);

impl KeyType for DateTime {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Datetime(found) = node.value else {
            reader.wrong_type(node, EXPECTED);
            return None;
        };
        match OffsetDateTime::parse(&found.to_string(), &Rfc3339) {
            Ok(moment) => Some(Self(moment.into())),
            // TOML has dates and times that are different moments at different places.
            Err(_) => {
                let message = format!("{found} is no certain moment");
                let expected = format!("expected {EXPECTED}");
                let finding = Finding::error(&node.span, message, expected);
                reader.report(finding.help("add the time and the offset: `Z`, or as `+08:00`"));
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            "a date and time as 2026-12-01T06:00:00Z",
            json!({"type": "string", "format": "date-time"}),
        )
    }
}
