//! The collector of metrics.

use apus_client::ClientTlsSettings;
use apus_http::Headers;
use apus_telemetry::{OtlpProtocol, OtlpSettings};
use http::Uri;

use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::plan::OtlpPlan;
use crate::raw::{self, OtlpProtocolName};

use super::upstream::trusting;

/// Fields that the protocol sets.
const OWN_FIELDS: [&str; 6] = [
    "content-type",
    "content-length",
    "host",
    "te",
    "transfer-encoding",
    "user-agent",
];

/// The plan of the collector; `None`: there is none.
pub(super) fn plan(global: &raw::Global, reader: &mut ConfigReader<'_>) -> Option<OtlpPlan> {
    let raw = &global.otlp.as_ref()?.value;
    let mut headers = Headers::new();
    for (name, value) in &raw.headers.0 {
        let own = OWN_FIELDS.contains(&name.value.0.to_ascii_lowercase().as_str());
        if own {
            reader.report(Finding::error(
                &name.span,
                "this field is set by the protocol",
                "expected another field",
            ));
        } else if headers.try_append(&*name.value.0, &*value.value.0).is_err() {
            reader.report(Finding::error(
                &value.span,
                "not the value of a field",
                "expected visible characters",
            ));
        }
    }
    let ca = raw.ca.as_ref();
    let authorities = match ca {
        Some(ca) => trusting(ca, ClientTlsSettings::new(""), reader)?.authorities,
        None => None,
    };
    // It was parsed when it was read.
    let endpoint: Uri = raw.endpoint.value.0.parse().ok()?;
    Some(OtlpPlan {
        settings: OtlpSettings {
            endpoint,
            protocol: match *raw.protocol {
                OtlpProtocolName::HttpProtobuf => OtlpProtocol::HttpProtobuf,
                OtlpProtocolName::HttpJson => OtlpProtocol::HttpJson,
                OtlpProtocolName::Grpc => OtlpProtocol::Grpc,
            },
            headers,
            authorities,
            resource: vec![("service.name".to_owned(), raw.service_name.value.0.clone())],
        },
        interval: raw.interval.0,
    })
}
