//! The metrics of the cache.

use apus_cache::store::CacheStatistics;
use apus_metrics::{MetricDefinition, MetricSamples, MetricUnit};

const STORE: &[&str] = &["store"];

static REQUESTS: MetricDefinition = MetricDefinition::counter(
    "apus_cache_requests",
    "Requests that the cache saw: `hit`, `miss`, or `collapsed` into another one for the same.",
)
.labels(&["result"]);
static STORED: MetricDefinition =
    MetricDefinition::counter("apus_cache_stored", "Responses that were stored.");
static PURGES: MetricDefinition = MetricDefinition::counter("apus_cache_purges", "Purges.");
static OBJECTS: MetricDefinition =
    MetricDefinition::gauge("apus_cache_objects", "Stored responses.").labels(STORE);
static SIZE: MetricDefinition =
    MetricDefinition::gauge("apus_cache_size", "What stored responses take.")
        .unit(MetricUnit::Bytes)
        .labels(STORE);
static EVICTIONS: MetricDefinition = MetricDefinition::counter(
    "apus_cache_evictions",
    "Responses that made room for others.",
)
.labels(STORE);
static DISK_HITS: MetricDefinition = MetricDefinition::counter(
    "apus_cache_disk_hits",
    "Responses that were read from disk.",
);
static DISK_FAULTS: MetricDefinition = MetricDefinition::counter(
    "apus_cache_disk_faults",
    "What went wrong on disk: `error` of the system, `damaged` responses that were removed, `skipped` because the disk is too slow.",
)
.labels(&["fault"]);
static DISK_SCANNED: MetricDefinition = MetricDefinition::gauge(
    "apus_cache_disk_scanned",
    "How much of what is on disk is known since the start.",
)
.unit(MetricUnit::Ratio);
static DISK_VERIFIED: MetricDefinition = MetricDefinition::counter(
    "apus_cache_disk_verified",
    "Bytes on disk whose checksums were verified.",
)
.unit(MetricUnit::Bytes);

pub(super) static CACHE_METRICS: &[&MetricDefinition] = &[
    &REQUESTS,
    &STORED,
    &PURGES,
    &OBJECTS,
    &SIZE,
    &EVICTIONS,
    &DISK_HITS,
    &DISK_FAULTS,
    &DISK_SCANNED,
    &DISK_VERIFIED,
];

/// Adds the cache.
pub(crate) fn add_cache(cache: &CacheStatistics, has_disk: bool, samples: &mut MetricSamples) {
    let requests = samples.of(&REQUESTS);
    for (result, count) in [
        ("hit", cache.hits),
        ("miss", cache.misses),
        ("collapsed", cache.collapsed),
    ] {
        requests.add([result.into()], count);
    }
    samples.add(&STORED, cache.stored);
    samples.add(&PURGES, cache.purges);
    let memory = || ["memory".into()];
    samples.of(&OBJECTS).add(memory(), cache.memory_objects);
    samples.of(&SIZE).add(memory(), cache.memory_bytes);
    samples.of(&EVICTIONS).add(memory(), cache.evictions);
    if !has_disk {
        return;
    }
    let disk = || ["disk".into()];
    samples.of(&OBJECTS).add(disk(), cache.disk_objects);
    samples.of(&SIZE).add(disk(), cache.disk_bytes);
    samples.of(&EVICTIONS).add(disk(), cache.disk_evictions);
    samples.add(&DISK_HITS, cache.disk_hits);
    #[expect(clippy::cast_precision_loss, reason = "thousandths")]
    samples.add(&DISK_SCANNED, cache.disk_scanned as f64 / 1000.0);
    samples.add(&DISK_VERIFIED, cache.disk_verified_bytes);
    let faults = samples.of(&DISK_FAULTS);
    for (fault, count) in [
        ("error", cache.disk_errors),
        ("damaged", cache.disk_damaged),
        ("skipped", cache.disk_skipped),
    ] {
        faults.add([fault.into()], count);
    }
}
