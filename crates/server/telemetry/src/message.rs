//! What all messages of the OpenTelemetry protocol have.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// What a message says about who sends it.
pub(crate) fn resource(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter();
    Resource {
        attributes: attributes
            .map(|(name, text)| attribute(name, text))
            .collect(),
        ..Resource::default()
    }
}

pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "apus".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

pub(crate) fn attribute(name: &str, text: &str) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(text.to_owned())),
        }),
        ..KeyValue::default()
    }
}

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
