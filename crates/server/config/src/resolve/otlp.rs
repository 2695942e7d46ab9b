//! The collector of metrics.

use apus_client::ClientTlsSettings;
use apus_http::{Headers, TraceSampling};
use apus_telemetry::{OtlpProtocol, OtlpSettings};
use http::Uri;

use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::plan::{OtlpPlan, TracePlan};
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
    let traces = raw.traces.table(&raw.traces.span, reader);
    let traces = traces.map(|keys: raw::TraceKeys| TracePlan {
        sampling: TraceSampling::new(keys.percent.size() as f64 / 100.0)
            .trust_clients(*keys.trust_clients),
        slow: Some(keys.slow.0).filter(|slow| !slow.is_zero()),
    });
    if traces.is_none() && !*raw.metrics {
        reader.report(Finding::error(
            &raw.metrics.span,
            "nothing is pushed",
            "expected `traces` beside this, or no `otlp`",
        ));
    }
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
        interval: raw.metrics.then_some(raw.interval.0),
        traces,
    })
}
