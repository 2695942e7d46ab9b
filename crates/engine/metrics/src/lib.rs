//! Metrics in the text format of Prometheus, and what a process consumes.
//!
//! # Modules
//!
//! - `prometheus`: writes names, types, labels and samples in the text format, version 0.0.4.
//! - `process_metrics`: CPU time, memory and open descriptors of this process, under the usual names.
//!
//! # Decisions
//!
//! - **The lowest shelf with system calls**: whatever counts, from listeners and workers to sites, jobs and the
//!   layer `Metrics`, can import this crate. It imports no other crate of Apus and needs no runtime, so that the counters of
//!   the engine do not pull in the control socket. Metrics that all of these have in common belong here, too.
//! - **It writes text and keeps no numbers.** Counters are where they are counted, one for each worker, and are added up when they
//!   are read: a request then writes no memory that another core reads.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. The layer is tested in `crates/server/layers`, the text of
//! `apus status --metrics` in `crates/tools/cli`.

#![forbid(unsafe_code)]

mod process_metrics;
mod prometheus;

pub use process_metrics::write_process_metrics;
pub use prometheus::{MetricLabels, MetricType, PROMETHEUS_MEDIA_TYPE, PrometheusText};
