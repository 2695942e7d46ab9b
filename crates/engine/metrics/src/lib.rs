//! Metrics: definitions, values at one moment, formats, what a process consumes, and the most frequent keys of a stream.
//!
//! # Modules
//!
//! - `definition`: what a metric is, in one place for each.
//! - `samples`: the values of metrics at one moment, which all parts of a program add theirs to.
//! - `histogram`: times, counted by one thread and read by any.
//! - `compact_histogram`: the same in few bytes, for storage.
//! - `history`: what a server did each second, minute and hour, in a file of fixed size.
//! - `exposition`: samples in the formats that Prometheus reads.
//! - `process_metrics`: CPU time, memory and open descriptors of this process, under the usual names.
//! - `space_saving`: the most frequent keys of a stream in bounded memory, such as the clients with most requests.
//!
//! # Decisions
//!
//! - **The lowest shelf with system calls**: whatever counts, from listeners and workers to sites, jobs and the
//!   layer `Metrics`, can import this crate. It imports no other crate of Apus and needs no runtime, so that the counters of
//!   the engine do not pull in the control socket. Metrics that all of these have in common belong here, too.
//! - **Values are where they are counted**, one for each worker, and are added up when they are read: a request then writes no memory
//!   that another core reads. So there is no registry that lives with the program: a reading is a [`MetricSamples`], and formats are written
//!   of it by the crate `prometheus-client`, as one of its collectors.
//! - **One kind of buckets** for all times, and exact: those of native histograms. Classic ones are powers of two of a second, because only
//!   then are they sums of the others.
//! - **History in a ring of slots, without a database**: a slot for each second of two hours, each minute of two days and each hour of a
//!   year. Where a time is in the file follows from the time alone, so nothing is searched, moved or compacted, and the file never grows beyond
//!   32 MB. Each slot has its time and a checksum: what was cut off by a crash is unknown, and nothing else is. Minutes and hours are sums of
//!   seconds, written with each of them, and made again from them at a start, so that a `kill -9` loses the last second at most. The file is
//!   written and read by position and not mapped: a full disk or a file that shrinks is an error, and not a signal.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. The layer is tested in `crates/server/layers`, the text of
//! `apus status --metrics` in `crates/tools/cli`.

#![forbid(unsafe_code)]

mod compact_histogram;
mod definition;
mod exposition;
mod histogram;
mod history;
mod process_metrics;
mod samples;
mod space_saving;

pub use compact_histogram::CompactHistogram;
pub use definition::{MetricDefinition, MetricKind, MetricUnit};
pub use exposition::MetricFormat;
pub use histogram::{DurationHistogram, HistogramReading, raise};
pub use history::{
    HistoryColumn, HistoryFile, HistoryFileOrigin, HistoryQuery, HistoryRecord, HistorySeries,
    HistorySite, HistoryStep, HistoryValue, SiteHistory,
};
pub use process_metrics::{PROCESS_METRICS, add_process_metrics, cpu_time, resident_memory};
pub use samples::{LabelValue, MetricFamily, MetricSample, MetricSamples, MetricValue};
pub use space_saving::{FrequentKey, SpaceSaving};
