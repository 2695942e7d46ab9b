//! Metrics in the text format of Prometheus, what a process consumes, and the most frequent keys of a stream.
//!
//! # Modules
//!
//! - `prometheus`: writes names, types, labels and samples in the text format, version 0.0.4.
//! - `process_metrics`: CPU time, memory and open descriptors of this process, under the usual names.
//! - `space_saving`: the most frequent keys of a stream in bounded memory, such as the clients with most requests.
//!
//! # Decisions
//!
//! - **The lowest shelf with system calls**: whatever counts, from listeners and workers to sites, jobs and the
//!   layer `Metrics`, can import this crate. It imports no other crate of Apus and needs no runtime, so that the counters of
//!   the engine do not pull in the control socket. Metrics that all of these have in common belong here, too.
//! - **It writes text and has no counters of its own.** They are where they are counted, one for each worker, and are added up when they
//!   are read: a request then writes no memory that another core reads.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. The layer is tested in `crates/server/layers`, the text of
//! `apus status --metrics` in `crates/tools/cli`.

#![forbid(unsafe_code)]

mod process_metrics;
mod prometheus;
mod space_saving;

pub use process_metrics::write_process_metrics;
pub use prometheus::{MetricLabels, MetricType, PROMETHEUS_MEDIA_TYPE, PrometheusText};
pub use space_saving::{FrequentKey, SpaceSaving};
