//! The metrics of upstream groups and of resident PHP workers.

use apus_metrics::{LabelValue, MetricDefinition, MetricSamples, MetricUnit};
use apus_php::{PoolStatus, WorkerPools};
use apus_upstream::plan::AdminState;
use apus_upstream::{GroupStatus, GroupTotals, NodeAvailability, NodeStatus, Upstreams};

const GROUP: &[&str] = &["upstream"];
const NODE: &[&str] = &["upstream", "node"];
const POOL: &[&str] = &["pool"];

static REQUESTS: MetricDefinition =
    MetricDefinition::counter("apus_upstream_requests", "Requests to a group.").labels(GROUP);
static WAITING: MetricDefinition = MetricDefinition::gauge(
    "apus_upstream_waiting",
    "Requests that wait for a node of the group.",
)
.labels(GROUP);
static EVENTS: MetricDefinition = MetricDefinition::counter(
    "apus_upstream_events",
    "What happened to requests: `retry` and `hedge` were sent to another node, `queued` waited, `queue_full` and `queue_timed_out` failed there, `no_node` found none, `budget_spent` was not retried any more, `reconnect` began anew on a fresh connection, `copy_dropped` was not mirrored.",
)
.labels(&["upstream", "event"]);
static NODE_UP: MetricDefinition =
    MetricDefinition::gauge("apus_upstream_node_up", "Whether the node gets requests.")
        .labels(NODE);
static NODE_IN_FLIGHT: MetricDefinition = MetricDefinition::gauge(
    "apus_upstream_node_in_flight",
    "Requests that the node is working on.",
)
.labels(NODE);
static NODE_REQUESTS: MetricDefinition =
    MetricDefinition::counter("apus_upstream_node_requests", "Requests to a node.").labels(NODE);
static NODE_FAILURES: MetricDefinition = MetricDefinition::counter(
    "apus_upstream_node_failures",
    "Requests to a node that failed, by the kind of failure.",
)
.labels(&["upstream", "node", "kind"]);
static NODE_LATENCY: MetricDefinition = MetricDefinition::gauge(
    "apus_upstream_node_latency",
    "The mean time to the heads of the node's last responses.",
)
.unit(MetricUnit::Seconds)
.labels(NODE);

pub(super) static UPSTREAM_METRICS: &[&MetricDefinition] = &[
    &REQUESTS,
    &WAITING,
    &EVENTS,
    &NODE_UP,
    &NODE_IN_FLIGHT,
    &NODE_REQUESTS,
    &NODE_FAILURES,
    &NODE_LATENCY,
];

static PHP_REQUESTS: MetricDefinition =
    MetricDefinition::counter("apus_php_requests", "Requests to a pool.").labels(POOL);
static PHP_WORKERS: MetricDefinition =
    MetricDefinition::gauge("apus_php_workers", "Workers of a pool, by what they do.")
        .labels(&["pool", "state"]);
static PHP_MAX_WORKERS: MetricDefinition =
    MetricDefinition::gauge("apus_php_max_workers", "The most workers of a pool.").labels(POOL);
static PHP_WAITING: MetricDefinition =
    MetricDefinition::gauge("apus_php_waiting", "Requests that wait for a worker.").labels(POOL);
static PHP_MEMORY: MetricDefinition =
    MetricDefinition::gauge("apus_php_memory", "The memory of all workers of a pool.")
        .unit(MetricUnit::Bytes)
        .labels(POOL);
static PHP_WEBSOCKETS: MetricDefinition = MetricDefinition::gauge(
    "apus_php_websockets",
    "WebSockets and event streams that workers of a pool handle.",
)
.labels(POOL);
static PHP_FAILING: MetricDefinition = MetricDefinition::gauge(
    "apus_php_failing",
    "Whether workers of the pool cannot boot.",
)
.labels(POOL);
static PHP_EVENTS: MetricDefinition = MetricDefinition::counter(
    "apus_php_events",
    "What happened in a pool: `boot`, `boot_failure`, `recycled`, `reload`, `crash` (a worker ended during a request), `timeout` (a request took too long), `retry`, `queued`, `queue_full`, `queue_timed_out`, `task_dropped`.",
)
.labels(&["pool", "event"]);

pub(super) static PHP_METRICS: &[&MetricDefinition] = &[
    &PHP_REQUESTS,
    &PHP_WORKERS,
    &PHP_MAX_WORKERS,
    &PHP_WAITING,
    &PHP_MEMORY,
    &PHP_WEBSOCKETS,
    &PHP_FAILING,
    &PHP_EVENTS,
];

/// Adds upstream groups with their nodes.
pub(crate) fn add_upstreams(upstreams: &Upstreams, samples: &mut MetricSamples) {
    for group in upstreams.status() {
        add_group(&group, samples);
    }
}

fn add_group(group: &GroupStatus, samples: &mut MetricSamples) {
    let name = LabelValue::from(&group.name);
    let GroupTotals {
        requests,
        retries,
        hedges,
        queued,
        queue_full,
        queue_timed_out,
        no_node,
        budget_spent,
        reconnects,
        copies_dropped,
    } = group.totals;
    samples.of(&REQUESTS).add([name.clone()], requests);
    samples.of(&WAITING).add([name.clone()], group.waiting);
    let events = samples.of(&EVENTS);
    for (event, count) in [
        ("retry", retries),
        ("hedge", hedges),
        ("queued", queued),
        ("queue_full", queue_full),
        ("queue_timed_out", queue_timed_out),
        ("no_node", no_node),
        ("budget_spent", budget_spent),
        ("reconnect", reconnects),
        ("copy_dropped", copies_dropped),
    ] {
        events.add([name.clone(), event.into()], count);
    }
    for node in &group.nodes {
        add_node(&name, node, samples);
    }
}

fn add_node(group: &LabelValue, node: &NodeStatus, samples: &mut MetricSamples) {
    let labels = || [group.clone(), (&node.name).into()];
    let is_up = node.admin != AdminState::Down && !matches!(node.state, NodeAvailability::Out(..));
    samples.of(&NODE_UP).add(labels(), is_up);
    let in_flight = u64::from(node.in_flight);
    samples.of(&NODE_IN_FLIGHT).add(labels(), in_flight);
    samples.of(&NODE_REQUESTS).add(labels(), node.requests);
    if let Some(latency) = node.latency {
        let seconds = latency.as_secs_f64();
        samples.of(&NODE_LATENCY).add(labels(), seconds);
    }
    let failures = samples.of(&NODE_FAILURES);
    for (kind, count) in node.failures {
        let [group, node] = labels();
        failures.add([group, node, kind.as_str().into()], count);
    }
}

/// Adds pools of resident PHP workers.
pub(crate) fn add_pools(pools: &WorkerPools, samples: &mut MetricSamples) {
    for pool in pools.status() {
        add_pool(&pool, samples);
    }
}

fn add_pool(pool: &PoolStatus, samples: &mut MetricSamples) {
    let name = LabelValue::from(&pool.name);
    let busy = pool.workers.iter().filter(|worker| worker.busy).count();
    let workers = samples.of(&PHP_WORKERS);
    workers.add([name.clone(), "busy".into()], busy);
    workers.add([name.clone(), "idle".into()], pool.workers.len() - busy);
    let memory = pool.workers.iter().map(|worker| u64::from(worker.memory));
    let memory = memory.sum();
    for (definition, value) in [
        (&PHP_REQUESTS, pool.totals.requests),
        (&PHP_MAX_WORKERS, pool.max as u64),
        (&PHP_WAITING, pool.waiting as u64),
        (&PHP_MEMORY, memory),
        (&PHP_WEBSOCKETS, pool.sockets as u64),
        (&PHP_FAILING, u64::from(pool.last_error.is_some())),
    ] {
        samples.of(definition).add([name.clone()], value);
    }
    let events = samples.of(&PHP_EVENTS);
    for (event, count) in [
        ("boot", pool.totals.boots),
        ("boot_failure", pool.totals.boot_failures),
        ("recycled", pool.totals.recycled),
        ("reload", pool.totals.reloads),
        ("crash", pool.totals.crashes),
        ("timeout", pool.totals.timeouts),
        ("retry", pool.totals.retries),
        ("queued", pool.totals.queued),
        ("queue_full", pool.totals.queue_full),
        ("queue_timed_out", pool.totals.queue_timed_out),
        ("task_dropped", pool.totals.tasks_dropped),
    ] {
        events.add([name.clone(), event.into()], count);
    }
}
