//! The metrics of a server: all definitions, and the values of what the control thread knows.
//!
//! Parts that count by themselves have their definitions beside their counters: the engine (apus-control), and sites.

mod origins;
#[cfg(test)]
mod page;
mod policy;
mod storage;

use apus_access_log::LogCounts;
use apus_acme::CertificateStatus;
use apus_config::ServerPlan;
use apus_control::engine_metrics;
use apus_metrics::{LabelValue, MetricDefinition, MetricSamples, MetricUnit};
use apus_sites::SITE_METRICS;
use apus_telemetry::ExportCounts;

use crate::certificate_files::certificate_files;

pub(crate) use origins::{add_pools, add_upstreams};
pub(crate) use policy::{add_bans, add_bots, add_challenges, add_glitches, add_limits, add_rules};
pub(crate) use storage::add_cache;

static RELOADS: MetricDefinition =
    MetricDefinition::counter("apus_reloads", "Reloads that took effect.");
static RELOAD_FAILING: MetricDefinition = MetricDefinition::gauge(
    "apus_reload_failing",
    "Whether the last reload failed, so that the configuration before it is in force.",
);
static LOG_LINES: MetricDefinition = MetricDefinition::counter(
    "apus_access_log_lines",
    "Lines of access logs that were written, and that were lost because a disk or a receiver is too slow, full or gone, by the file or \
     the address of the receiver.",
)
.labels(&["path", "result"]);
static OTLP_MESSAGES: MetricDefinition = MetricDefinition::counter(
    "apus_otlp_messages",
    "Messages for the collector of OpenTelemetry that it accepted, and that were lost.",
)
.labels(&["result"]);
static TRACED: MetricDefinition = MetricDefinition::counter(
    "apus_traced_requests",
    "Requests whose spans the collector of OpenTelemetry accepted, and whose spans were lost, also because their records gave way to newer ones.",
)
.labels(&["result"]);
static EXPIRY: MetricDefinition = MetricDefinition::gauge(
    "apus_certificate_expiry_timestamp",
    "When a certificate that the server orders expires, in seconds since 1970.",
)
.unit(MetricUnit::Seconds)
.labels(&["names"]);
static FILE_EXPIRY: MetricDefinition = MetricDefinition::gauge(
    "apus_certificate_file_expiry_timestamp",
    "When a certificate of a file that sites name expires, as it is in use, in seconds since 1970.",
)
.unit(MetricUnit::Seconds)
.labels(&["file"]);
static FAILURES: MetricDefinition = MetricDefinition::gauge(
    "apus_certificate_failures",
    "Attempts to order a certificate that failed since the last one that succeeded.",
)
.labels(&["names"]);
static ATTEMPTS: MetricDefinition = MetricDefinition::counter(
    "apus_certificate_attempts",
    "Attempts to order a certificate that have ended.",
)
.labels(&["names"]);

static OWN: &[&MetricDefinition] = &[
    &RELOADS,
    &RELOAD_FAILING,
    &LOG_LINES,
    &OTLP_MESSAGES,
    &TRACED,
    &EXPIRY,
    &FILE_EXPIRY,
    &FAILURES,
    &ATTEMPTS,
];

/// All metrics of a server, by part.
fn catalog() -> Vec<(&'static str, Vec<&'static MetricDefinition>)> {
    let of = |definitions: &[&'static MetricDefinition]| definitions.to_vec();
    vec![
        ("Sites", of(SITE_METRICS)),
        ("Workers and the process", engine_metrics().collect()),
        ("Upstream groups", of(origins::UPSTREAM_METRICS)),
        ("Resident PHP workers", of(origins::PHP_METRICS)),
        ("The cache", of(storage::CACHE_METRICS)),
        ("Rules, limits and bans", of(policy::POLICY_METRICS)),
        ("The server", of(OWN)),
    ]
}

/// The metrics of a server, without values yet.
pub(crate) fn samples() -> MetricSamples {
    let mut samples = MetricSamples::new();
    for definition in catalog().into_iter().flat_map(|(_, part)| part) {
        samples.of(definition);
    }
    samples
}

/// Adds what the control thread counts by itself.
pub(crate) fn add_server(reloads: u64, is_failing: bool, samples: &mut MetricSamples) {
    samples.add(&RELOADS, reloads);
    samples.add(&RELOAD_FAILING, is_failing);
}

/// Adds the lines of access logs.
pub(crate) fn add_logs(logs: &[LogCounts], samples: &mut MetricSamples) {
    let lines = samples.of(&LOG_LINES);
    for log in logs {
        let path = LabelValue::from(log.destination.clone());
        lines.add([path.clone(), "written".into()], log.written);
        lines.add([path, "lost".into()], log.lost);
    }
}

/// Adds what became of what was sent to the collector.
pub(crate) fn add_otlp(counts: ExportCounts, samples: &mut MetricSamples) {
    let messages = samples.of(&OTLP_MESSAGES);
    messages.add(["sent".into()], counts.sent);
    messages.add(["lost".into()], counts.lost);
    let requests = samples.of(&TRACED);
    requests.add(["sent".into()], counts.traced);
    requests.add(["lost".into()], counts.untraced);
}

/// Adds the certificates that the server orders.
pub(crate) fn add_certificates(certificates: &[CertificateStatus], samples: &mut MetricSamples) {
    for certificate in certificates {
        let names = LabelValue::from(certificate.names.join(" "));
        if let Some(not_after) = certificate.not_after {
            let seconds = u64::try_from(not_after.unix_timestamp()).unwrap_or(0);
            samples.of(&EXPIRY).add([names.clone()], seconds);
        }
        let failures = u64::from(certificate.failures);
        samples.of(&FAILURES).add([names.clone()], failures);
        samples.of(&ATTEMPTS).add([names], certificate.attempts);
    }
}

/// Adds the certificates of files.
pub(crate) fn add_certificate_files(config: &ServerPlan, samples: &mut MetricSamples) {
    let expiry = samples.of(&FILE_EXPIRY);
    for (path, certificate) in certificate_files(config) {
        let file = LabelValue::from(path.to_string_lossy().into_owned());
        let seconds = u64::try_from(certificate.not_after()).unwrap_or(0);
        expiry.add([file], seconds);
    }
}
