//! The metrics of the engine of a server or an application, by worker.

use apus_http::ResponseMemory;
use apus_metrics::{
    LabelValue, MetricDefinition, MetricSamples, MetricUnit, PROCESS_METRICS, add_process_metrics,
};
use apus_net::{Engine, WorkerStatus, WorkerTotals};

use crate::status::StartTime;

const WORKER: &[&str] = &["worker"];

static BUILD: MetricDefinition =
    MetricDefinition::gauge("apus_build_info", "Always 1, with the version.").labels(&["version"]);
static STARTED: MetricDefinition = MetricDefinition::gauge(
    "process_start_time",
    "When the process started, in seconds since 1970.",
)
.unit(MetricUnit::Seconds);
static CONNECTIONS: MetricDefinition = MetricDefinition::gauge(
    "apus_connections",
    "Open connections by protocol; `none` has not said yet what it speaks, or does so in a tunnel of layer 4.",
)
.labels(&["worker", "protocol"]);
static ACCEPTED: MetricDefinition = MetricDefinition::counter(
    "apus_connections_accepted",
    "Connections that were accepted.",
)
.labels(WORKER);
static REFUSED: MetricDefinition = MetricDefinition::counter(
    "apus_connections_refused",
    "Connections that were closed at once: beyond a limit, of banned clients, or of clients with many glitches.",
)
.labels(&["worker", "reason"]);
static EVICTED: MetricDefinition = MetricDefinition::counter(
    "apus_connections_evicted",
    "Idle connections that were closed for new ones.",
)
.labels(WORKER);
static ACCEPT_FAILURES: MetricDefinition = MetricDefinition::counter(
    "apus_accept_failures",
    "Connections that could not be accepted for want of descriptors or memory.",
)
.labels(WORKER);
static UPGRADED: MetricDefinition = MetricDefinition::counter(
    "apus_protocol_connections",
    "Connections that spoke HTTP/2 or HTTP/3.",
)
.labels(&["worker", "protocol"]);
static REQUESTS: MetricDefinition =
    MetricDefinition::counter("apus_worker_requests", "Requests whose heads were read.")
        .labels(WORKER);
static BAD_REQUESTS: MetricDefinition = MetricDefinition::counter(
    "apus_bad_requests",
    "Requests that were refused because they broke the protocol or a limit of size.",
)
.labels(WORKER);
static RECEIVED: MetricDefinition =
    MetricDefinition::counter("apus_received", "Bytes that were read, behind TLS.")
        .unit(MetricUnit::Bytes)
        .labels(WORKER);
static SENT: MetricDefinition =
    MetricDefinition::counter("apus_sent", "Bytes that were written, before TLS.")
        .unit(MetricUnit::Bytes)
        .labels(WORKER);
static HANDSHAKES: MetricDefinition =
    MetricDefinition::counter("apus_tls_handshakes", "TLS handshakes.")
        .labels(&["worker", "result"]);
static TIMEOUTS: MetricDefinition = MetricDefinition::counter(
    "apus_client_timeouts",
    "Connections that were closed because a head, a body, a handshake or a reader was too slow.",
)
.labels(WORKER);
static STALLED: MetricDefinition = MetricDefinition::counter(
    "apus_stalled_streams",
    "Requests over HTTP/2 and HTTP/3 that were cut off because the window of the client stayed closed.",
)
.labels(WORKER);
static FLOODS: MetricDefinition = MetricDefinition::counter(
    "apus_floods_stopped",
    "Connections over HTTP/2 and HTTP/3 that were closed because of a flood, by its kind.",
)
.labels(&["worker", "kind"]);
static PANICS: MetricDefinition =
    MetricDefinition::counter("apus_panics", "Handlers that panicked.").labels(WORKER);
static BROKEN: MetricDefinition = MetricDefinition::counter(
    "apus_broken_responses",
    "Responses that were cut off because their source failed.",
)
.labels(WORKER);
static RESTARTS: MetricDefinition = MetricDefinition::counter(
    "apus_worker_restarts",
    "Workers that died and were replaced.",
)
.labels(WORKER);
static RESPONSE_MEMORY: MetricDefinition = MetricDefinition::gauge(
    "apus_response_memory",
    "Memory that responses use beyond the piece that each is sending.",
)
.unit(MetricUnit::Bytes);
static RESPONSE_MEMORY_LIMIT: MetricDefinition =
    MetricDefinition::gauge("apus_response_memory_limit", "The limit of that memory.")
        .unit(MetricUnit::Bytes);
static RESPONSE_MEMORY_REFUSED: MetricDefinition = MetricDefinition::counter(
    "apus_response_memory_refused",
    "How often a response got none of it.",
);

/// The metrics of an engine and its process.
pub fn engine_metrics() -> impl Iterator<Item = &'static MetricDefinition> {
    static OWN: &[&MetricDefinition] = &[
        &BUILD,
        &STARTED,
        &CONNECTIONS,
        &ACCEPTED,
        &REFUSED,
        &EVICTED,
        &ACCEPT_FAILURES,
        &UPGRADED,
        &REQUESTS,
        &BAD_REQUESTS,
        &RECEIVED,
        &SENT,
        &HANDSHAKES,
        &TIMEOUTS,
        &STALLED,
        &FLOODS,
        &PANICS,
        &BROKEN,
        &RESTARTS,
        &RESPONSE_MEMORY,
        &RESPONSE_MEMORY_LIMIT,
        &RESPONSE_MEMORY_REFUSED,
    ];
    OWN.iter().chain(PROCESS_METRICS).copied()
}

/// Adds the metrics of an engine and its process.
pub fn add_engine_metrics(started: StartTime, engine: &Engine, samples: &mut MetricSamples) {
    add_process_metrics(samples);
    samples
        .of(&BUILD)
        .add([env!("CARGO_PKG_VERSION").into()], 1_u64);
    samples.add(&STARTED, started.unix_seconds());
    let memory = ResponseMemory::of_process();
    samples.add(&RESPONSE_MEMORY, memory.used());
    samples.add(&RESPONSE_MEMORY_LIMIT, memory.limit());
    samples.add(&RESPONSE_MEMORY_REFUSED, memory.refused());
    for worker in engine.status().workers {
        add_worker(&worker, samples);
    }
}

fn add_worker(status: &WorkerStatus, samples: &mut MetricSamples) {
    let worker = || LabelValue::from(status.index.to_string());
    // Without `..`, so that a new counter cannot be forgotten.
    let WorkerTotals {
        connections,
        h1_open,
        h2_open,
        h3_open,
        accepted,
        refused,
        banned,
        refused_for_glitches,
        evicted,
        accept_failures,
        requests,
        bytes_in,
        bytes_out,
        handshakes,
        handshake_failures,
        bad_requests,
        timeouts,
        panics,
        broken_responses,
        h2_connections,
        h3_connections,
        stalled_streams,
        stopped_reset_floods,
        stopped_field_block_floods,
        stopped_reply_floods,
        stopped_idle_floods,
        stopped_tiny_window_floods,
    } = status.totals;
    let known = h1_open + h2_open + h3_open;
    for (definition, label, value) in [
        (&CONNECTIONS, "h1", h1_open),
        (&CONNECTIONS, "h2", h2_open),
        (&CONNECTIONS, "h3", h3_open),
        // The counters are read one after the other.
        (&CONNECTIONS, "none", connections.saturating_sub(known)),
        (&UPGRADED, "h2", h2_connections),
        (&UPGRADED, "h3", h3_connections),
        (&REFUSED, "limit", refused),
        (&REFUSED, "banned", banned),
        (&REFUSED, "glitches", refused_for_glitches),
        (&HANDSHAKES, "ok", handshakes),
        (&HANDSHAKES, "failed", handshake_failures),
        (&FLOODS, "reset", stopped_reset_floods),
        (&FLOODS, "field_block", stopped_field_block_floods),
        (&FLOODS, "reply", stopped_reply_floods),
        (&FLOODS, "idle", stopped_idle_floods),
        (&FLOODS, "tiny_window", stopped_tiny_window_floods),
    ] {
        samples.of(definition).add([worker(), label.into()], value);
    }
    for (definition, value) in [
        (&ACCEPTED, accepted),
        (&EVICTED, evicted),
        (&ACCEPT_FAILURES, accept_failures),
        (&REQUESTS, requests),
        (&BAD_REQUESTS, bad_requests),
        (&RECEIVED, bytes_in),
        (&SENT, bytes_out),
        (&TIMEOUTS, timeouts),
        (&STALLED, stalled_streams),
        (&PANICS, panics),
        (&BROKEN, broken_responses),
        (&RESTARTS, status.restarts),
    ] {
        samples.of(definition).add([worker()], value);
    }
}
